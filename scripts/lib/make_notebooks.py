# SPDX-License-Identifier: Apache-2.0
"""make_notebooks.py ROOT FOLDER [--copy]: writes ROOT/docs/lab as notebooks into FOLDER.

What the cells name lies beside them: `recipes` (a link, with --copy a copy) and charts.py. Links between
chapters lead from notebook to notebook; those to other pages lead to the pages themselves.
"""
import argparse
import os
import pathlib
import re
import shutil

import nbformat

import chapters


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--copy", action="store_true", help="copy recipes and pages: the folder will be moved")
    arguments = parser.parse_args()
    for path in write(arguments.root.resolve(), arguments.folder, arguments.copy):
        print(path)


def write(root, folder, copy=False):
    """Paths of the notebooks: those of the chapters in order, then those of the pages in gpu/."""
    lab = root / "docs" / "lab"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(lab / "charts.py", folder)
    for name in ("recipes", "docs"):
        beside(root / name, folder / name, copy)
    written = []
    for path in chapters.pages(lab):
        notebook, _ = chapters.read_chapter(path)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = lead_on(cell.source, path, root)
        target = folder / notebook_name(path, lab)
        nbformat.write(notebook, target)
        written.append(target)
    return written


def notebook_name(page, lab):
    """gpu/01-lease.md is gpu-01-lease.ipynb: all are in one folder, where recipes/ and out/ are."""
    parts = page.relative_to(lab).with_suffix("").parts
    return "-".join("00-contents" if part == "README" else part for part in parts) + ".ipynb"


def beside(source, target, copy):
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif target.is_dir():
        shutil.rmtree(target)
    if copy:
        shutil.copytree(source, target)
    else:
        target.symlink_to(source)


def lead_on(source, page, root):
    """A page's links as they are right from the notebooks' folder, in which `recipes` and `docs` lie."""
    lab = root / "docs" / "lab"
    notebooks = chapters.pages(lab)

    def link(match):
        target, anchor = match[1], match[2] or ""
        if "://" in target or not target:
            return match[0]
        path = pathlib.Path(os.path.normpath(page.parent / target))
        if path in notebooks:
            return f"]({notebook_name(path, lab)})"
        return f"]({path.relative_to(root)}{anchor})"

    return re.sub(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", link, source)


if __name__ == "__main__":
    main()
