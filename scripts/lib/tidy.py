#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy.py BUILD REVISION: clang-tidy on the lines of src/ that changed since REVISION, with the commands in
BUILD/compile_commands.json. Exit status 1 if it has found something.

Left out is what clang cannot read: CUDA sources, and the simulated GPU, which bears CUDA's names and types.
The commands are g++'s, whose warnings and OpenMP clang does not have."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

LEFT_OUT = ("src/core/simulated/", "src/core/kernels/simulated/")


def changed_lines(revision):
    """{file: [[first, last], ...]}, of files that are still there."""
    base = subprocess.check_output(["git", "merge-base", revision, "HEAD"], text=True).strip()
    diff = subprocess.check_output(
        ["git", "diff", "--unified=0", "--no-color", "--diff-filter=d", base, "--", "src"], text=True)
    lines, file = {}, ""
    for line in diff.splitlines():
        if line.startswith("+++ b/"):
            file = line[len("+++ b/"):]
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(found[1]), int(found[2] or 1)
            if count:
                lines.setdefault(file, []).append([first, first + count - 1])
    return {file: ranges for file, ranges in lines.items()
            if not file.startswith(LEFT_OUT) and not file.endswith(".cu")}


def main(build, revision):
    lines = changed_lines(revision)
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    compiled = {os.path.relpath(os.path.join(each["directory"], each["file"])) for each in commands}
    files = sorted(compiled & lines.keys())
    print(f"==> clang-tidy on what changed in {len(files)} files", file=sys.stderr)
    line_filter = json.dumps([{"name": file, "lines": ranges} for file, ranges in lines.items()])

    def finds_nothing(file):
        run = subprocess.run(
            ["clang-tidy-14", "-p", build, "--quiet", "--warnings-as-errors=*", f"--line-filter={line_filter}",
             "--extra-arg-before=-Wno-unknown-warning-option", "--extra-arg=-fno-openmp", file],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if run.returncode != 0:
            print(run.stdout, end="", flush=True)
        return run.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return 0 if all(list(pool.map(finds_nothing, files))) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
