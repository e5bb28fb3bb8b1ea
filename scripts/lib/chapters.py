# SPDX-License-Identifier: Apache-2.0
"""docs/lab's chapters as notebooks. The Markdown is the one source; jupytext takes it apart.

In a chapter
    ```sh       is run, by bash, which stops at the first command that fails
    ```python   is run as it is; it shows a picture
    ```text     right behind one of them, or a picture in a line of its own, is what came out when the
                chapter was written. It becomes the cell's output, until somebody runs the cell.
                `…` in a line of its own stands for lines left out; ```text varies has times or rates
                in it, which no test compares
    ```console  is not run: it needs a GPU, a download or hours
"""
import dataclasses
import pathlib
import re

import jupytext
import nbformat

SHELL = "%%bash -eo pipefail"
# Without it jupytext would take the language of most cells for that of the notebook.
HEADER = "---\njupyter:\n  kernelspec:\n    display_name: Python 3\n    language: python\n    name: python3\n---\n"
QUOTED_TEXT = re.compile(r"\s*```text( varies)?\n(.*?)^```[ \t]*\n?", re.S | re.M)
QUOTED_PICTURE = re.compile(r"\s*!\[([^]]*)\]\(([^)]*)\)[ \t]*\n?")


@dataclasses.dataclass
class Quoted:
    """What a chapter says that a cell gives."""

    text: str = ""  # or, of a picture,
    picture: str = ""  # its path beside the chapter
    varies: bool = False


def read_chapter(path):
    """The notebook of a chapter, its cells' outputs as quoted; and {number of a cell: Quoted}."""
    notebook = jupytext.reads(HEADER + path.read_text(encoding="utf-8"), fmt="md")
    cells, quoted = [], {}
    for cell in notebook.cells:
        cell.metadata = nbformat.NotebookNode()
        if cell.cell_type == "code":
            cell.source = re.sub(r"\A%%(sh|bash)\b.*", SHELL, cell.source)
        elif cells and cells[-1].cell_type == "code":
            found, cell.source = take_quoted(cell.source)
            if found:
                quoted[len(cells) - 1] = found
                cells[-1].outputs = [as_output(found, path.parent)]
        if cell.source.strip():
            cells.append(cell)
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel())
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same text gives the same file
    return notebook, quoted


def take_quoted(source):
    """(what stands at the beginning of source as the output of the cell before it, the rest)"""
    if match := QUOTED_TEXT.match(source + "\n"):
        return Quoted(text=match[2], varies=bool(match[1])), source[match.end() :].lstrip("\n")
    if match := QUOTED_PICTURE.match(source + "\n"):
        return Quoted(picture=match[2]), source[match.end() :].lstrip("\n")
    return None, source


def as_output(quoted, folder):
    if quoted.picture:
        data = {"image/svg+xml": (folder / quoted.picture).read_text(encoding="utf-8")}
        return nbformat.v4.new_output("display_data", data=data)
    return nbformat.v4.new_output("stream", name="stdout", text=quoted.text)


def kernel():
    return {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def chapters(folder):
    """The chapters of docs/lab in order; README.md, the contents, is one without cells."""
    return [folder / "README.md"] + sorted(pathlib.Path(folder).glob("[0-9][0-9]-*.md"))


def pages(folder):
    """All that become notebooks: the chapters, and docs/lab/gpu, whose cells want a rented GPU and are run by no test."""
    return chapters(folder) + chapters(folder / "gpu")
