"""Every tutorial runs, as a script and as a notebook, and ends with the check that it teaches."""

import importlib.util
import os
import runpy
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import jax
import pytest

import dalembert as da

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorials"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def hook():
    """docs/tutorials_hook.py, which makes notebooks and pages, and finds its neighbours."""
    sys.path.insert(0, str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("hook", ROOT / "docs" / "tutorials_hook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(ROOT / "docs"))
    return module


@pytest.fixture
def environment():
    """The package that is tested, wherever a tutorial runs, and no traces beside its script."""
    package = str(Path(da.__file__).parents[1])
    return os.environ | {"PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"}


def test_there_are_some():
    assert len(NAMES) >= 8


@pytest.mark.slow
def test_the_first_one_runs_as_it_is(tmp_path, monkeypatch, capsys):
    """In this process, with the settings of users."""
    monkeypatch.chdir(tmp_path)
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    jax.config.update("jax_numpy_rank_promotion", "allow")
    runpy.run_path(str(FOLDER / "first_ten_lines.py"))
    assert "largest deviation" in capsys.readouterr().out
    assert (tmp_path / "first_ten_lines.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_script(name, tmp_path, environment):
    command = [sys.executable, "-W", "error", str(FOLDER / f"{name}.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "assert " in (FOLDER / f"{name}.py").read_text("utf-8").rpartition("# %%")[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the notebook machinery are not ours
@pytest.mark.parametrize("name", NAMES)
def test_notebook(name, tmp_path, environment, hook):
    notebook = hook.nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    executed = hook.execute(notebook, tmp_path, environment | hook.INLINE)
    text, pictures = hook.page(hook.tidied(executed), name)
    assert text.startswith("# ") and any(file.endswith(".png") for file in pictures)


def test_an_error_in_a_tutorial_is_not_passed_over(tmp_path, environment, hook):
    script = tmp_path / "wrong.py"
    script.write_text("# %% [markdown]\n# # Wrong\n\n# %%\nassert 1 == 2\n", "utf-8")
    with pytest.raises(Exception, match="AssertionError"):
        hook.execute(hook.notebook(script), tmp_path, environment)


def test_a_page_shows_what_is_left_of_a_line_of_progress(hook):
    """Nothing: it draws over itself and wipes itself."""
    pieces = [
        ("stderr", "\r| 1 %"),
        ("stderr", "\r| 99 %"),
        ("stdout", "Run\n  failed paths: none\n"),
        ("stderr", "\r      \r"),
    ]
    outputs = [hook.nbformat.v4.new_output("stream", name=name, text=text) for name, text in pieces]
    cells = [
        hook.nbformat.v4.new_markdown_cell("# Title"),
        hook.nbformat.v4.new_code_cell("print(run)", outputs=outputs),
    ]
    text, _ = hook.page(hook.tidied(hook.nbformat.v4.new_notebook(cells=cells)), "title")
    assert "%" not in text and "```text\nRun\n  failed paths: none\n```" in text


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_in_step_with_its_script(name, hook):
    written = hook.nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    code = [cell for cell in written.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output.output_type == "error" for output in outputs)
    for cell in code:
        cell.execution_count, cell.outputs = None, []
    bare = hook.text_of(hook.notebook(FOLDER / f"{name}.py"))
    assert hook.text_of(written) == bare, "run `make notebooks`"


def test_every_tutorial_has_a_page_and_nothing_else_lies_beside_them():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert all(f"tutorials/{name}.md" in navigation for name in NAMES)
    assert sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".py") == [
        f"{name}.ipynb" for name in NAMES
    ]


def test_code_is_executed_again_only_when_something_has_changed(hook, tmp_path, monkeypatch):
    monkeypatch.setattr(hook, "KEPT", tmp_path)
    monkeypatch.setattr(hook, "surroundings", lambda: "one")
    made = []

    def make():
        made.append(1)
        return {"output": f"run {len(made)}"}

    assert hook.kept("a = 1", make) == hook.kept("a = 1", make) == {"output": "run 1"}
    assert hook.kept("a = 2", make) == {"output": "run 2"}
    monkeypatch.setattr(hook, "surroundings", lambda: "another")
    assert hook.kept("a = 1", make) == {"output": "run 3"}
    assert not list(tmp_path.glob("*.[!j]*")), "nothing unfinished is left"


def test_blocks_of_a_page_are_executed_only_if_new(hook, tmp_path, monkeypatch):
    """A new block needs what those before it in its session have left."""
    python = pytest.importorskip("markdown_exec._internal.formatters.python")
    monkeypatch.setattr(hook, "KEPT", tmp_path)
    monkeypatch.setattr(hook, "surroundings", lambda: "one")
    executed, plain = [], python._run_python

    def run(code, **options):
        executed.append(code)
        return plain(code, **options)

    def build(*blocks):
        monkeypatch.setattr(python, "_run_python", run)
        python._sessions_globals.clear()
        executed.clear()
        hook._keep_blocks_of_pages()
        return [python._run_python(code, session="s") for code in blocks]

    first, second, third = "a = 1\nprint(a)", "print(a + 1)", "print(a + 2)"
    assert build(first, second) == ["1\n", "2\n"] and executed == [first, second]
    assert build(first, second) == ["1\n", "2\n"] and executed == []
    assert build(first, third) == ["1\n", "3\n"] and executed == [first, third]


def test_code_of_a_page_that_was_executed_ahead_is_not_executed_again(hook, tmp_path, monkeypatch):
    """What a page is looked up by is what its blocks are kept by."""
    python = pytest.importorskip("markdown_exec._internal.formatters.python")
    monkeypatch.setattr(hook, "KEPT", tmp_path)
    monkeypatch.setattr(hook, "surroundings", lambda: "one")
    monkeypatch.setattr(python, "_run_python", python._run_python)
    monkeypatch.setattr(hook, "_by_a_worker", lambda page, _: ahead.append(page))
    ahead = []
    page = tmp_path / "page.md"
    page.write_text(
        """# Page

```python exec="on" source="material-block" session="s"
a = "`da.midpoint`"
```

```python exec="on" session="s"
print(a)
```

```python exec="on"
print(2)
```
""",
        "utf-8",
    )
    assert [session for _, session in hook.blocks(page.read_text("utf-8"))] == ["s", "s", None]
    hook._execute_ahead(page, None)
    assert ahead == [page], "by another process"
    hook._execute_page(page)
    hook._execute_ahead(page, None)
    assert ahead == [page], "all of it is kept"


def test_a_worker_goes_on_after_an_error_and_a_new_one_comes_after_it_has_died(hook, tmp_path):
    pytest.importorskip("markdown_exec._internal.formatters.python")
    workers = hook.SimpleQueue()
    workers.put(None)
    (tmp_path / "page.md").write_text("# No code\n", "utf-8")
    living = []
    for name in ("page.md", "missing.md", "page.md"):
        hook._by_a_worker(tmp_path / name, workers)
        living.append(workers.get())
        workers.put(living[-1])
    assert living[0] is not None and living[0] is living[1] is living[2]
    living[0].kill()
    living[0].wait()
    hook._by_a_worker(tmp_path / "page.md", workers)
    assert workers.get() is None
    for pipe in (living[0].stdin, living[0].stdout):
        with suppress(BrokenPipeError):
            pipe.close()
