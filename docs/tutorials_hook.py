"""Notebooks and pages of the tutorials, which are written as scripts in docs/tutorials.

A script in percent format (`# %%`) is the only source. `make notebooks` writes the notebooks beside
the scripts: without outputs, so that they never show old numbers, and kept with the sources, so
that they can be opened where nothing is installed that would make them. A test compares the two.

When the documentation is built, every notebook is executed in an empty folder, and becomes a page
with its outputs. An error in a tutorial stops the build.
"""

import base64
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat

FOLDER = Path(__file__).parent / "tutorials"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Figures as a notebook shows them, with twice as many pixels for fine screens.
INLINE = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
ARGUMENTS = ["--InlineBackend.figure_format=retina", "--log-level=ERROR"]
SECONDS = 300


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


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every tutorial, and its pictures."""
    from mkdocs.structure.files import File

    for script in scripts():
        with tempfile.TemporaryDirectory() as folder:
            executed = execute(notebook(script), folder, INLINE)
            text, pictures = page(executed, script.stem)
            pictures |= {path.name: path.read_bytes() for path in Path(folder).glob("*.gif")}
        for name, content in {f"{script.stem}.md": text, **pictures}.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


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
