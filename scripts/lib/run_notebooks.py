# SPDX-License-Identifier: Apache-2.0
"""run_notebooks.py ROOT [NAME...] [--fill]: runs the notebook of each chapter of ROOT/docs/lab from its first cell to its
last, in a temporary folder, with the `snug` that is found on the PATH. A cell that fails, that takes longer than
--timeout, or that gives something else than its chapter quotes (times and what is marked `varies` aside) is
an error; all are told, and the exit status is 1. With --fill outputs that are empty in a chapter or differ from
what came out now, and all pictures, are written into it instead; lines left out (`…`) stay left out.
"""
import argparse
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

import nbclient
import nbformat

import chapters
import make_notebooks


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="beginnings of chapters' file names; none: all")
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--timeout", type=int, default=300, help="seconds of a cell at most")
    parser.add_argument("--keep", type=pathlib.Path, help="leave the notebooks with their outputs here")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    if not shutil.which("snug"):
        sys.exit("run_notebooks.py: no program `snug` on the PATH")
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        keep_home_clean(folder)
        written = make_notebooks.write(root, folder / "lab")
        for path, page in zip(written, chapters.chapters(root / "docs" / "lab")):
            if not arguments.names or any(page.name.startswith(name) for name in arguments.names):
                faults += run_one(path, page, arguments)
        if arguments.keep:
            shutil.copytree(folder / "lab", arguments.keep, symlinks=True, dirs_exist_ok=True)
    sys.exit(1 if faults else 0)


def keep_home_clean(folder):
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        os.environ[name] = str(folder / name.lower())


def run_one(path, page, arguments):
    """Runs one notebook and says how it went; the number of its faults."""
    started = time.monotonic()
    notebook = nbformat.read(path, as_version=4)
    _, quoted = chapters.read_chapter(page)
    if all(cell.cell_type != "code" for cell in notebook.cells):
        return 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = nbclient.NotebookClient(
        notebook,
        timeout=arguments.timeout,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--log-level=ERROR"],
    )
    faults = []
    try:
        client.execute()
    except (nbclient.exceptions.CellExecutionError, nbclient.exceptions.CellTimeoutError) as error:
        faults.append(told(error, notebook))
    nbformat.write(notebook, path)
    if arguments.fill and not faults:
        fill(page, notebook, quoted)
    elif not faults:
        for number, expected in quoted.items():
            if fault := differs(expected, notebook.cells[number]):
                faults.append(f"{first_line(notebook.cells[number])}\n{fault}")
    print(f"{page.name}: {time.monotonic() - started:.1f} s, {len(faults)} faults", flush=True)
    for fault in faults:
        print(f"--- {page.name}: {fault}\n", flush=True)
    return len(faults)


def told(error, notebook):
    """The cell at which a notebook stopped, and the last that it printed."""
    run = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    if not run:
        return str(error)
    cell = run[-1]
    text = "".join(out.get("text", "") for out in cell.outputs)
    last = str(error).strip().splitlines()[-1]
    return "\n".join([cell.source, ""] + text.splitlines()[-30:] + [re.sub(r"\x1b\[[0-9;]*m", "", last)])


def first_line(cell):
    return cell.source.replace(chapters.SHELL + "\n", "").splitlines()[0]


def printed(cell):
    return "".join(out.text for out in cell.outputs if out.output_type == "stream" and out.name == "stdout")


def picture(cell):
    for out in cell.outputs:
        if "image/svg+xml" in out.get("data", {}):
            return out.data["image/svg+xml"]
    return ""


def differs(quoted, cell, same=None):
    """What of a quoted output a cell did not give; empty where all is well. `same` says what of a line counts."""
    same = same or steady
    if quoted.picture:
        return "" if picture(cell) else "the cell gave no picture"
    if quoted.varies:
        return "" if printed(cell).strip() else "the cell printed nothing"
    lines = [same(line) for line in printed(cell).strip("\n").splitlines()]
    at, free = 0, False
    for line in quoted.text.strip("\n").splitlines():
        if line.strip() == "…":
            free = True
            continue
        wanted = same(line)
        found = lines.index(wanted, at) if free and wanted in lines[at:] else at
        if found >= len(lines) or lines[found] != wanted:
            now = lines[found] if found < len(lines) else "(nothing more)"
            return f"  quoted   {line}\n  now      {now if not free else 'no such line'}"
        at, free = found + 1, False
    return "" if free or at == len(lines) else f"  not quoted: {lines[at]}"


def steady(line):
    """A line without what may change though memory does not: the cost model's seconds."""
    line = line.rstrip()
    if re.match(r"(Time|Cost) |.*\btokens/s|[0-9.]+ s of collectives", line):
        return re.sub(r"[0-9.]+", "#", line)
    if re.match(r" *[0-9,]+ .* [0-9]+ %$", line):  # --scaling: seconds, tokens/s and efficiency are the last
        return re.sub(r"( +[0-9.]+){3} %$", " #", line)
    if fitted := re.match(r"[0-9.]+ [KMG]iB +[0-9.]+ [KMG]iB +[0-9.]+ +[0-9,]+ +--", line):  # --fit: s/step, tokens/s
        return re.sub(r" +[0-9.]+ +[0-9,]+ +--$", " # --", fitted[0]) + line[fitted.end() :]
    line = re.sub(r" +([0-9.]+x the time|as fast) +", " # ", line)
    return re.sub(r"[0-9.]+$", "#", line) if re.match(r"(dp|fsdp|tp|pp) +\d", line) else line


def fill(page, notebook, quoted):
    """Writes outputs into the places of a chapter that are still empty or no longer true, and every picture."""
    text = page.read_text(encoding="utf-8")
    for number, expected in quoted.items():
        cell = notebook.cells[number]
        if expected.picture:
            (page.parent / expected.picture).write_text(picture(cell), encoding="utf-8")
        elif not expected.text.strip() or differs(expected, cell, same=str.rstrip):
            source = cell.source.replace(chapters.SHELL + "\n", "")
            start = text.index(source) + len(source)
            place = re.compile(r"(\n```\n+```text[^\n]*\n)(.*?)\n?^```", re.S | re.M).search(text, start)
            output = renewed(expected.text, printed(cell))
            text = text[: place.end(1)] + output + "\n```" + text[place.end() :]
    page.write_text(text, encoding="utf-8")


def renewed(quoted, printed_now):
    """What came out now, of the lines that were quoted: the same but for their numbers."""
    now = printed_now.strip("\n").splitlines()
    if "…" not in quoted:
        return "\n".join(now)
    shape = [re.sub(r"[0-9.]+", "#", " ".join(line.split())) for line in now]
    lines, at = [], 0
    for line in quoted.strip("\n").splitlines():
        wanted = re.sub(r"[0-9.]+", "#", " ".join(line.split()))
        if line.strip() != "…":
            at = shape.index(wanted, at) if wanted in shape[at:] else at
            line, at = (now[at] if at < len(now) else line), at + 1
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
