# SPDX-License-Identifier: Apache-2.0
"""check_course.py ROOT PROGRAM: what can be said of docs/lab without running it.

Links lead to a file, and its heading where they name one. Cells name recipes that exist. Commands that no test runs
(```console, `$ ` before each, and on the pages of gpu/ the cells too) are ones that PROGRAM understands: their options,
a lab's suites and rows; scripts/… among them exist. The contents list every chapter, the tables of gpu/ every row of
every suite. coverage.md and the pages of teaching/ are read too; what slides quote of the program is a line of a chapter,
which a test runs. Faults are printed, and the exit status is 1.
"""
import fnmatch
import functools
import itertools
import pathlib
import re
import shlex
import subprocess
import sys

import answer_tables

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)


def main():
    root, program = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    lab, gpu = root / "docs" / "lab", root / "docs" / "lab" / "gpu"
    faults = answer_tables.faults(root, program)
    for folder in (lab, gpu):
        chapters = sorted(folder.glob("[0-9][0-9]-*.md"))
        faults += [f"{folder} has no chapters"] if not chapters else []
        contents = (folder / "README.md").read_text(encoding="utf-8")
        unlisted = [page.name for page in chapters if f"({page.name})" not in contents]
        faults += [f"{folder.name}/README.md: no link to {name}" for name in unlisted]
        others = [page for page in [folder / "README.md", folder / "coverage.md"] if page.exists()]
        for page in others + chapters:
            text = page.read_text(encoding="utf-8")
            found = links(page, text, root) + recipes(text, root)
            found += commands(text, root, program, ("console", "sh") if folder == gpu else ("console",))
            found += form_of_gpu(text) if folder == gpu else form(text) if page in chapters else []
            faults += [f"{folder.name}/{page.name}: {fault}" for fault in found]
    faults += teaching_faults(lab / "teaching", lab, root, program)
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


def teaching_faults(folder, lab, root, program):
    run = {line for page in lab.glob("[0-9]*.md") for line in page.read_text(encoding="utf-8").splitlines()}
    faults = []
    for page in sorted(folder.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        found = links(page, text, root) + recipes(text, root) + commands(text, root, program, ("console", "sh"))
        if page.parent.name == "slides":
            quoted = [line for kind, body in FENCE.findall(text) if kind == "text" for line in body.splitlines()]
            found += [f"no chapter has the line: {line}" for line in quoted if line not in run]
            contents = (folder / "README.md").read_text(encoding="utf-8")
            found += [] if f"(slides/{page.name})" in contents else ["README.md does not link to it"]
        faults += [f"teaching/{page.name}: {fault}" for fault in found]
    return faults


def links(page, text, root):
    faults = []
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            faults.append(f"link to {target}: no such file")
        elif anchor and anchor not in headings(file.read_text(encoding="utf-8")):
            faults.append(f"link to {target}: no such heading")
        if not any(file.is_relative_to(root / name) for name in ("docs", "recipes")):
            faults.append(f"link to {target}: notebooks have docs/ and recipes/ beside them, nothing else")
    return faults


def headings(text):
    """Headings as GitHub names them in links."""
    names = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    return [re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names]


def recipes(text, root):
    named = set(re.findall(r"recipes/[\w./-]+\.(?:yaml|json)", text))
    return [f"{name}: no such file" for name in sorted(named) if not (root / name).exists()]


def commands(text, root, program, kinds):
    faults = []
    for kind, body in FENCE.findall(text):
        if kind not in kinds:
            continue
        for line in body.replace("\\\n", " ").splitlines():
            if kind == "console" and not line.startswith("$ "):
                faults.append(f"in ```console, without `$ `: {line}")
                continue
            words = shlex.split(line.removeprefix("$ ").removeprefix("sudo "), comments=True)
            if not words:
                continue
            if words[0].startswith("scripts/"):
                faults += script(words, root)
            if words[0] == "docker" and "snug" in words:  # docker exec … snug …
                words = words[words.index("snug"):]
            if words[0] == "snug" and (fault := not_understood(words[1:], root, program)):
                faults.append(f"{line}\n    {fault}")
    return faults


def script(words, root):
    """A script's options stand in the comment at its top, which is its help."""
    if not (root / words[0]).exists():
        return [f"{words[0]}: no such script"]
    text = (root / words[0]).read_text(encoding="utf-8")
    options = [word for word in words if word.startswith("--")]
    return [f"{words[0]} has no {word}" for word in options if not re.search(rf"^# .*{word}\b", text, re.M)]


def not_understood(words, root, program):
    """What the program says against a command, or its help does not have; nothing is run."""
    if words[0] in ("finetune", "finetune_full"):
        recipe, fault = says(root, program, *words, "--print_config")
        return fault or tokenizer_fault(recipe)
    help_text, fault = says(root, program, words[0], "--help", "all")
    known = set(re.findall(r"^  (--[\w.]+)", help_text, re.M))
    options = [word.split("=")[0] for word in words if word.startswith("--")]
    unknown = [f"no option {option}" for option in options if option not in known]
    return fault or ", ".join(unknown + (rows(words[2:], root, program) if words[:2] == ["lab", "run"] else []))


def tokenizer_fault(recipe):
    """A run from a config asks a recipe's checkpoint_dir for its tokenizer, which random samples need not have."""
    if all(re.search(said, recipe, re.M) for said in
           (r"^checkpoint_dir: (?!null)", r"^  config: (?!null)", r"^  class_path: Synthetic$")):
        return "with --data Synthetic and model.config the recipe's checkpoint_dir is in the way: --checkpoint_dir none"
    return ""


def rows(words, root, program):
    """Suites, rows and rows' options of a `lab run` that do not exist."""
    suites = list(itertools.takewhile(lambda word: not word.startswith("--"), words))
    listed = {suite["suite"] for suite in answer_tables.listed(root, program)}
    if unknown := [f"no suite {name}" for name in suites if name not in listed]:
        return unknown
    details = [answer_tables.listed(root, program, name) for name in suites]
    names = [one["id"] for suite in details for one in suite["rows"] + suite["groups"]]
    given = [value for option, value in zip(words, words[1:]) if option == "--rows"]
    patterns = [pattern for value in given for pattern in value.split(",")]
    faults = [f"no row {pattern}" for pattern in patterns if not fnmatch.filter(names, pattern)]
    of_rows = says(root, program, "finetune_full", "--help", "all")[0]
    keys = [value.split("=")[0] for option, value in zip(words, words[1:]) if option == "--set"]
    return faults + [f"no option {key} to set" for key in keys if f"\n  --{key} " not in of_rows]


@functools.lru_cache
def says(root, program, *words):
    """(what the program prints, what it says against the command)"""
    done = subprocess.run([program, *words], cwd=root, capture_output=True, text=True, timeout=60)
    return done.stdout, "" if done.returncode == 0 else (done.stderr or done.stdout).strip()


def form(text):
    faults = [f"has no {wanted}" for wanted in ("## Exercises", "<details>", "## Papers", "```sh") if wanted not in text]
    if re.search(r"^```text[^\n]*\n\s*^```", text, re.M):
        faults.append("an output is empty (scripts/make-notebooks --fill)")
    return faults


def form_of_gpu(text):
    said = "run on a GPU" in " ".join(text[: text.find("\n## ")].split())
    return [] if said else ["does not say at its top what has been run on a GPU"]


if __name__ == "__main__":
    main()
