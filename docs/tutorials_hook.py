"""Notebooks and pages of the tutorials, which are written as scripts in docs/tutorials.

A script in percent format (`# %%`) is the only source. `make notebooks` executes each in an empty
folder and writes its notebook beside it, with outputs, so that it can be read where nothing is
installed. A test compares the two. When the documentation is built, every notebook is executed in
the same way, and becomes a page; the site ships it too. An error in a tutorial stops the build.

What was executed, of tutorials and of other pages, is kept in build/docs by its content: the code,
the source of the package, and versions. It is executed again when one of them has changed, two at
a time and the longest first: each tutorial in a process of its own, and pages one after another in
two processes, so that a page loads and compiles only what none before it has.
"""

import base64
import gc
import hashlib
import io
import json
import logging
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from operator import call, itemgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

import jax
import nbformat
import numpy as np
from api_hook import linked

FOLDER = Path(__file__).parent / "tutorials"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Figures as a notebook shows them, with twice as many pixels for fine screens.
INLINE = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
ARGUMENTS = ["--InlineBackend.figure_format=retina", "--log-level=ERROR"]
SECONDS = 300
ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "docs"
BEGAN = time.monotonic()
log = logging.getLogger("mkdocs.hooks.tutorials")
# Two processes for the code of pages, None for one that does not run.
Workers: TypeAlias = "SimpleQueue[subprocess.Popen[str] | None]"


@cache
def surroundings() -> str:
    """What decides the outputs of code besides the code itself, as a digest."""
    digest = hashlib.sha256()
    for folder in ("src", "docs/data", "tests/faults"):
        for file in sorted(p for p in (ROOT / folder).rglob("*") if p.is_file()):
            if file.suffix in (".py", ".json", ".npz"):
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    for version in (jax.__version__, np.__version__, platform.python_version()):
        digest.update(version.encode())
    return digest.hexdigest()


def place(code: str) -> Path:
    """The file for what some code leaves."""
    return KEPT / f"{hashlib.sha256((surroundings() + code).encode()).hexdigest()[:32]}.json"


def kept(code: str, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What the code has left when it was executed last, or leaves now."""
    file = place(code)
    if not file.is_file():
        made = make()
        KEPT.mkdir(parents=True, exist_ok=True)
        # A build that is stopped here leaves no half of a file.
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(made), "utf-8")
        new.replace(file)
    return json.loads(file.read_text("utf-8"))


def scripts() -> list[Path]:
    """The tutorials."""
    return sorted(FOLDER.glob("*.py"))


def notebook(script: Path) -> Any:
    """The notebook of a script, the same whenever it is made."""
    import jupytext

    made = jupytext.reads(script.read_text("utf-8"), fmt="py:percent")
    made.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(made.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.from_dict({})
        # A word to the formatter of this repository.
        cell.source = cell.source.replace("  # fmt: skip", "")
    made.nbformat, made.nbformat_minor = 4, 5
    nbformat.validate(made)
    return made


def text_of(notebook: Any) -> str:
    """The contents of the file of a notebook."""
    return nbformat.writes(notebook) + "\n"


def execute(notebook: Any, folder: str | Path, environment: dict[str, str] | None = None) -> Any:
    """The notebook with its outputs; what it writes to files goes to the folder."""
    import nbclient

    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        extra_arguments=ARGUMENTS,
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute(env=os.environ | (environment or {}))


def tidied(executed: Any) -> Any:
    """An executed notebook with what is left to see of its outputs, in small files."""
    executed.metadata = nbformat.from_dict(METADATA)
    for cell in executed.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type != "code":
            continue
        streams = {"stdout": "", "stderr": ""}
        for output in cell.outputs:
            if output.output_type == "stream":
                streams[output.name] += output.text
        rest = [output for output in cell.outputs if output.output_type != "stream"]
        for output in rest:
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _of_few_colours(output.data["image/png"])
        seen = "".join(map(_settled, streams.values())).strip("\n")
        stream = [nbformat.v4.new_output("stream", name="stdout", text=f"{seen}\n")] if seen else []
        cell.outputs = stream + rest
    return executed


def _settled(text: str) -> str:
    """What is left to see of a stream, whose pieces only together say it.

    A line of progress draws over itself, and wipes itself.
    """
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))


def _of_few_colours(png: str) -> str:
    """A picture with 256 colours at most, which takes a third of the bytes."""
    from PIL import Image

    file = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def executed(script: Path) -> dict[str, str]:
    """The notebook of a script with its outputs, and the films that it wrote, as texts."""

    def make() -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            done = tidied(execute(notebook(script), folder, INLINE))
            films = {path.name: _base64(path) for path in sorted(Path(folder).glob("*.gif"))}
        return {"notebook": text_of(done), **films}

    began = time.monotonic()
    found = kept(script.read_text("utf-8"), make)
    _say(f"tutorial {script.stem}", began)
    return found


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every tutorial, its pictures, and its notebook with outputs."""
    from mkdocs.structure.files import File

    _keep_blocks_of_pages()
    pages = [file.abs_src_path for file in files.documentation_pages()]
    log.info("code of %d tutorials and %d pages, two at a time", len(scripts()), len(pages))
    for script, outcome in _execute_all(pages).items():
        with_outputs = outcome.pop("notebook")
        text, pictures = page(nbformat.reads(with_outputs, 4), script.stem)
        pictures |= {name: base64.b64decode(film) for name, film in outcome.items()}
        bare = files.get_file_from_path(f"tutorials/{script.stem}.ipynb")
        if bare is not None:
            files.remove(bare)
        made = {f"{script.stem}.md": text, f"{script.stem}.ipynb": with_outputs, **pictures}
        for name, content in made.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Say which page is made: its code may take a while."""
    log.info("%4.0f s: page %s", time.monotonic() - BEGAN, page.file.src_uri)


def _say(what: str, began: float) -> None:
    """Say what has been executed, and what is known from before in no time."""
    now = time.monotonic()
    log.info("%4.0f s: %s in %.0f s", now - BEGAN, what, now - began)


def blocks(markdown: str) -> list[tuple[str, str | None]]:
    """The code of a page that is executed, and the sessions that it belongs to."""
    return [
        (code, session[1] if (session := re.search('session="(.*?)"', options)) else None)
        for options, code in re.findall(
            r'^```python exec="on"(.*?)\n(.*?)\n```$', markdown, re.DOTALL | re.MULTILINE
        )
    ]


def _execute_all(pages: list[str]) -> dict[Path, dict[str, str]]:
    """What all tutorials leave; the code of all pages is executed too, the longest texts first."""
    workers: Workers = SimpleQueue()
    for _ in range(2):
        workers.put(None)
    tasks: list[tuple[int, Path, Callable[[], Any]]] = []
    for script in scripts():
        tasks.append((script.stat().st_size, script, partial(executed, script)))
    for page in map(Path, pages):
        size = sum(len(code) for code, _ in blocks(page.read_text("utf-8")))
        tasks.append((size, page, partial(_execute_ahead, page, workers)))
    tasks.sort(key=itemgetter(0), reverse=True)
    _, paths, work = zip(*tasks, strict=True)
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(paths, pool.map(call, work), strict=True))
    for _ in range(2):
        if worker := workers.get():
            worker.communicate()
    return {script: found[script] for script in scripts()}


def _execute_ahead(page: Path, workers: Workers) -> None:
    """Let a worker execute the code of a page; the page then finds what it left.

    An error is met again when the page is made, and stops the build there.
    """
    before: dict[str | None, str] = {}
    code = [known_by(*block, before) for block in blocks(linked(page.read_text("utf-8")))]
    if not all(place(block).is_file() for block in code):
        began = time.monotonic()
        _by_a_worker(page, workers)
        _say(f"code of {page.name}", began)


def _by_a_worker(page: Path, workers: Workers) -> None:
    """Give a page to a process that waits for one, or to a new one."""
    worker = workers.get() or subprocess.Popen(
        [sys.executable, __file__, "pages"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert worker.stdin and worker.stdout
    with suppress(BrokenPipeError):
        print(page, file=worker.stdin, flush=True)
    answer = worker.stdout.readline()
    workers.put(worker if answer else None)  # one that does not answer has died


def _execute_pages() -> None:
    """Execute the pages whose paths come in, and answer each with a line."""
    from markdown_exec._internal.formatters import python

    # What else pages write to the output is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for page in sys.stdin:
        with suppress(Exception):
            _execute_page(Path(page.rstrip("\n")))
        # What one page leaves is not to be met by the next.
        python._sessions_globals.clear()
        gc.collect()
        print(file=answers, flush=True)


def _execute_page(page: Path) -> None:
    from markdown_exec._internal.formatters import python

    _keep_blocks_of_pages()
    for code, session in blocks(linked(page.read_text("utf-8"))):
        python._run_python(code, session=session)


def known_by(code: str, session: str | None, before: dict[str | None, str]) -> str:
    """What a block is known by: its own code and that of its session before it."""
    whole = f"{before.get(session, '') if session else ''}\n# block\n{code}"
    if session:
        before[session] = whole
    return f"{session}\n{whole}"


def _keep_blocks_of_pages() -> None:
    """Let markdown-exec execute a block only if it, or one before it in its session, is new."""
    from markdown_exec._internal.formatters import python

    run: Callable[..., str] = python._run_python
    if hasattr(run, "is_kept"):
        return
    before: dict[str | None, str] = {}
    skipped: dict[str | None, list[Callable[[], str]]] = {}

    def run_if_new(code: str, session: str | None = None, **options: Any) -> str:
        def execute() -> str:
            return run(code, session=session, **options)

        def make() -> dict[str, str]:
            for earlier in skipped.pop(session, []):
                earlier()
            nonlocal is_new
            is_new = True
            return {"output": execute()}

        is_new = False
        output = kept(known_by(code, session, before), make)["output"]
        if session and not is_new:
            skipped.setdefault(session, []).append(execute)
        return output

    run_if_new.is_kept = True  # pyright: ignore[reportFunctionMemberAccess]
    python._run_python = run_if_new


def page(executed: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """Markdown of an executed notebook, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in executed.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        results = list(_results(cell, name, pictures))
        if results:
            parts.append("\n\n".join(['<div class="result" markdown>', *results, "</div>"]))
    parts.insert(1, f"Get this page as a [script]({name}.py) or as a [notebook]({name}.ipynb).")
    return "\n\n".join(parts) + "\n", pictures


def _results(cell: Any, name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    for output in cell.outputs:
        if output.output_type == "stream":
            text = output.text.strip("\n")
            yield f"```text\n{text}\n```"
        data = output.get("data", {})
        if "image/png" in data:
            file = f"{name}_{len(pictures) + 1}.png"
            pictures[file] = base64.b64decode(data["image/png"])
            width = output.metadata.get("image/png", {}).get("width", 600)
            yield f"![]({file}){{ .halves width={width} }}"
        elif "text/plain" in data:
            yield f"```text\n{data['text/plain']}\n```"


if __name__ == "__main__" and sys.argv[1:]:
    _execute_pages()
elif __name__ == "__main__":
    for path in scripts():
        path.with_suffix(".ipynb").write_text(executed(path)["notebook"], "utf-8")
        print(f"wrote {path.stem}.ipynb", flush=True)
