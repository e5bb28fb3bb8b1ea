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
    ["config", "memory", "tokenizer", "report", "hub", "machine"],
    ["kernels", "formats", "scores"],
    ["dist"],
    ["ops", "data", "launch"],
    ["nn", "optim"],
    ["models", "exec", "checkpoint"],
    ["setup"],
    ["plan"],
    ["train"],
    ["experiment", "monitor", "doctor", "demo"],
    ["cli"],
]
LEVEL = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def fault(folder, included):
    """Why a file of `folder` may not include this path, or None."""
    target = included.split("/")[0]
    if "/" not in included or target.startswith("."):
        return f'write the path from src/, as in "{folder}/{included.split("/")[-1]}"'
    if target not in LEVEL:
        return f"{target} is no folder of src/ with a level; third-party headers go in <>"
    if target != folder and LEVEL[target] >= LEVEL[folder]:
        return (
            f"{folder} (level {LEVEL[folder]}) may not know {target} (level {LEVEL[target]}); "
            f"move what is shared to a lower folder"
        )
    return None


def faults_of(path, source_root):
    folder = path.relative_to(source_root).parts[0]
    if folder not in LEVEL:
        yield f"{path}: {folder} has no level in scripts/lib/check_layers.py"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        reason = match and fault(folder, match.group(1))
        if reason:
            yield f"{path}:{number}: {reason}"


def main():
    root = pathlib.Path(sys.argv[1])
    files = sorted(p for p in root.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"})
    faults = [fault for path in files for fault in faults_of(path, root)]
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
