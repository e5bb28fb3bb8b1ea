#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the #include lines under src/ and reports those that go up or sideways: a folder may
include itself and folders of a smaller level, nothing else. This is what keeps a new model from
costing policy code and a new policy from costing model code."""

import pathlib
import re
import sys

LEVELS = [
    ["base"],
    ["recipe", "core/memory", "text", "report", "files/hub", "watch/machine"],
    ["core/kernels", "files", "use/scores"],
    ["core/dist", "core/simulated"],
    ["core/ops", "data", "train/launch"],
    ["core/nn", "core/optim"],
    ["models", "engine/exec", "files/checkpoint"],
    ["engine"],
    ["plan"],
    ["use"],
    ["train"],
    ["snug", "lab", "watch/monitor", "watch/doctor", "use/demo"],
    ["cli"],
]
LEVEL = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
# What a folder must not reach at all, not even through the headers it may include: units ask for
# a split, and know no ranks (docs/decisions/0013-walls.md).
WALLS = [("core/nn", "core/dist"), ("models", "core/dist")]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
MOST_FILES = 30


def folder_of(path):
    """The longest folder with a level that a path below src/ lies in, or None."""
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        folder = "/".join(parts[:length])
        if folder in LEVEL:
            return folder
    return None


def fault(folder, included):
    """Why a file of `folder` may not include this path, or None."""
    target = folder_of(included)
    if "/" not in included or included.startswith("."):
        return f'write the path from src/, as in "{folder}/{included.split("/")[-1]}"'
    if target is None:
        return f"{included} lies in no folder of src/ with a level; third-party headers go in <>"
    if target != folder and LEVEL[target] >= LEVEL[folder]:
        return (
            f"{folder} (level {LEVEL[folder]}) may not know {target} (level {LEVEL[target]}); "
            f"move what is shared to a lower folder"
        )
    return None


def faults_of(path, source_root):
    folder = folder_of(path.relative_to(source_root).as_posix())
    if folder is None:
        yield f"{path}: its folder has no level in scripts/lib/check_layers.py"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        reason = match and fault(folder, match.group(1))
        if reason:
            yield f"{path}:{number}: {reason}"


def includes_of(path):
    found = (INCLUDE.match(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [match.group(1) for match in found if match]


def broken_walls(root):
    """Includes, at any depth, of what lies behind a folder's wall."""
    for folder, behind in WALLS:
        start = [p.relative_to(root).as_posix() for p in (root / folder).rglob("*.*")]
        ways = {file: file for file in start if file.endswith((".h", ".cpp"))}
        for file in (queue := list(ways)):
            for included in includes_of(root / file):
                if included not in ways and (root / included).is_file():
                    ways[included] = f"{ways[file]} > {included}"
                    queue.append(included)
        yield from (f"{way}: {folder} may not reach {behind}"
                    for file, way in ways.items() if folder_of(file) == behind)


def crowded(source_root):
    for folder in sorted({path.parent for path in source_root.rglob("*") if path.is_file()}):
        count = sum(path.is_file() for path in folder.iterdir())
        if count > MOST_FILES:
            yield f"{folder}: {count} files; what belongs together goes into a folder ({MOST_FILES} at most)"


def main():
    root = pathlib.Path(sys.argv[1])
    files = sorted(p for p in root.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"})
    faults = [fault for path in files for fault in faults_of(path, root)] + list(broken_walls(root)) + list(crowded(root))
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
