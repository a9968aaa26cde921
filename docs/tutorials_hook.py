"""Notebooks and pages of the tutorials, which are written as scripts in docs/tutorials.

A script in percent format (`# %%`) is the only source. `make notebooks` writes the notebooks beside
the scripts: without outputs, so that they never show old numbers, and kept with the sources, so
that they can be opened where nothing is installed that would make them. A test compares the two.

When the documentation is built, every notebook is executed in an empty folder, and becomes a page
with its outputs; the site ships it with them too. An error in a tutorial stops the build.

What was executed, of tutorials and of other pages, is kept in build/docs by its content: the code,
the source of the package, and versions. It is executed again when one of them has changed.
"""

import base64
import hashlib
import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jupytext
import nbclient
import nbformat
import numpy as np

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
log = logging.getLogger("mkdocs.hooks.tutorials")


@cache
def surroundings() -> str:
    """What decides the outputs of code besides the code itself, as a digest."""
    digest = hashlib.sha256()
    for folder in ("src", "docs/data", "benchmarks/results", "results"):
        for file in sorted(p for p in (ROOT / folder).rglob("*") if p.is_file()):
            if file.suffix in (".py", ".json", ".npz"):
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    for version in (jax.__version__, np.__version__, platform.python_version()):
        digest.update(version.encode())
    return digest.hexdigest()


def kept(code: str, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What the code has left when it was executed last, or leaves now."""
    key = hashlib.sha256((surroundings() + code).encode()).hexdigest()[:32]
    file = KEPT / f"{key}.json"
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
    made = jupytext.reads(script.read_text("utf-8"), fmt="py:percent")
    made.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(made.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.from_dict({})
    made.nbformat, made.nbformat_minor = 4, 5
    nbformat.validate(made)
    return made


def text_of(notebook: Any) -> str:
    """The contents of the file of a notebook."""
    return nbformat.writes(notebook) + "\n"


def execute(notebook: Any, folder: str | Path, environment: dict[str, str] | None = None) -> Any:
    """The notebook with its outputs; what it writes to files goes to the folder."""
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        extra_arguments=ARGUMENTS,
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute(env=os.environ | (environment or {}))


def executed(script: Path) -> dict[str, str]:
    """The notebook of a script with its outputs, and the films that it wrote, as texts."""

    def make() -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            done = execute(notebook(script), folder, INLINE)
            films = {path.name: _base64(path) for path in sorted(Path(folder).glob("*.gif"))}
        return {"notebook": text_of(done), **films}

    began = time.monotonic()
    found = kept(script.read_text("utf-8"), make)
    log.info("tutorial %s: %.0f s", script.stem, time.monotonic() - began)
    return found


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every tutorial, its pictures, and its notebook with outputs."""
    from mkdocs.structure.files import File

    _keep_blocks_of_pages()
    log.info("%s tutorials, two at a time", len(scripts()))
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(scripts(), pool.map(executed, scripts()), strict=True))
    for script, outcome in found.items():
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
    log.info("page %s", page.file.src_uri)


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
        whole = f"{before.get(session, '') if session else ''}\n# block\n{code}"
        output = kept(f"{session}\n{whole}", make)["output"]
        if session:
            before[session] = whole
            if not is_new:
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
    # A stream comes in pieces, which only together say what is left of it to see.
    streams = {"stdout": "", "stderr": ""}
    for output in cell.outputs:
        if output.output_type == "stream":
            streams[output.name] += output.text
    text = "".join(map(_settled, streams.values())).strip("\n")
    if text:
        yield f"```text\n{text}\n```"
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" in data:
            file = f"{name}_{len(pictures) + 1}.png"
            pictures[file] = base64.b64decode(data["image/png"])
            width = output.metadata.get("image/png", {}).get("width", 600)
            yield f"![]({file}){{ width={width} }}"
        elif "text/plain" in data:
            yield f"```text\n{data['text/plain']}\n```"


def _settled(text: str) -> str:
    """What is left to see of a stream: a line of progress draws over itself, and wipes itself."""
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))


if __name__ == "__main__":
    for path in scripts():
        path.with_suffix(".ipynb").write_text(text_of(notebook(path)), "utf-8")
