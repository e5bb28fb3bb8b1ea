# SPDX-License-Identifier: Apache-2.0
"""check_course.py ROOT PROGRAM: what can be said of docs/lab without running it.

Links lead to a file, and its heading where they name one. Cells name recipes that exist. Commands that the notebooks do
not run (```console, `$ ` before each) are ones that PROGRAM understands; scripts/… among them exist. The contents
list every chapter. Faults are printed, and the exit status is 1.
"""
import pathlib
import re
import shlex
import subprocess
import sys

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)


def main():
    root, program = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    lab = root / "docs" / "lab"
    chapters = sorted(lab.glob("[0-9][0-9]-*.md"))
    faults = [f"{lab} has no chapters"] if not chapters else []
    contents = (lab / "README.md").read_text(encoding="utf-8")
    faults += [f"README.md: no link to {page.name}" for page in chapters if f"({page.name})" not in contents]
    for page in [lab / "README.md"] + chapters:
        text = page.read_text(encoding="utf-8")
        for fault in links(page, text, root) + recipes(text, root) + commands(text, root, program) + form(page, text):
            faults.append(f"{page.name}: {fault}")
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


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


def commands(text, root, program):
    faults = []
    for kind, body in FENCE.findall(text):
        if kind != "console":
            continue
        for line in body.replace("\\\n", " ").splitlines():
            if not line.startswith("$ "):
                faults.append(f"in ```console, without `$ `: {line}")
                continue
            words = shlex.split(line[2:], comments=True)
            if words[0].startswith("scripts/") and not (root / words[0]).exists():
                faults.append(f"{words[0]}: no such script")
            if words[0] == "snug" and (fault := not_understood(words[1:], root, program)):
                faults.append(f"{line}\n    {fault}")
    return faults


def not_understood(words, root, program):
    """What the program says against a command; nothing is run."""
    if words[0] in ("finetune", "finetune_full"):
        words = words + ["--print_config"]
    else:
        words = words + ["--help"]
    done = subprocess.run([program] + words, cwd=root, capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip()


def form(page, text):
    faults = []
    for wanted in () if page.name == "README.md" else ("## Exercises", "<details>", "## Papers", "```sh"):
        if wanted not in text:
            faults.append(f"has no {wanted}")
    if re.search(r"^```text[^\n]*\n\s*^```", text, re.M):
        faults.append("an output is empty (scripts/make-notebooks --fill)")
    return faults


if __name__ == "__main__":
    main()
