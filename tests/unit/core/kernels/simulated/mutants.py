#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutants.py BUILD_FOLDER [--only FILE]

How much the test kernels_simulated sees: takes one barrier, bounds check, guard or lane of a mask at a time out of a
CUDA kernel, compiles that file as the simulation does and runs the test. Prints each mutant that passes, and how many
were caught. Not a test itself: it takes a quarter of an hour. BUILD_FOLDER has the test built."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "support"))
from mutation import ROOT, Build, is_comment, line_of, run  # noqa: E402

KERNELS = pathlib.Path("src/core/kernels/cuda")
SOURCES = sorted((ROOT / KERNELS).rglob("*.cu*"))
TEST = "kernels_simulated_test"
# What is taken out, and what is put in its place.
MUTATIONS = [
    (r"__sync(threads|warp)\(\);", ";"),
    (r"if \([^;{]*>= [^;{]*\) return;", ";"),
    (r"if \(threadIdx\.x != 0\) return;", ";"),
    (r"if \(threadIdx\.x == 0( &&|\))", r"if (true\1"),
    (r"if \(lane == 0\)", "if (true)"),
    (r"if \(i \+ 4 <= end\)", "if (true)"),
    (r"(?<=\bfor )\(int64_t i = ([^;]*); i < ", r"(int64_t i = \1; i <= "),
    (r"(?<=\bfor )\(int64_t c = ([^;]*); c < ", r"(int64_t c = \1; c <= "),
    (r"(?<=\bfor )\(int64_t (row|k|slab|part|begin) = ([^;]*); \1 < ", r"(int64_t \1 = \2; \1 <= "),
    (r" && i \+ k < end", ""),
    (r"if \(i \+ k < end\)", "if (true)"),
    (r"0xffffffffu", "0xffffu"),
    (r"if \(row < 0\) return;", ";"),
    (r"if \(!isfinite\(scale\)\) return;", ";"),
    (r"if \(threadIdx\.x < 16\)", "if (threadIdx.x < 15)"),
]


def mutants(text):
    """(line, what it was, the whole text with it changed)"""
    for pattern, replacement in MUTATIONS:
        for found in re.finditer(pattern, text):
            if not is_comment(text, found.start()):
                yield line_of(text, found.start()), found[0], text[: found.start()] + found.expand(replacement) + text[found.end() :]


class Mutants:
    def __init__(self, build, work):
        self.build, self.work = build, work
        self.copy = work / KERNELS
        self.copy.mkdir(parents=True)
        for path in SOURCES:
            self.copy_of(path).parent.mkdir(exist_ok=True)
            self.copy_of(path).write_text(path.read_text())
        self.entries = {
            pathlib.Path(entry["file"]).resolve().relative_to(ROOT / KERNELS): entry
            for entry in build.entries
            if "snug_kernels_simulated.dir" in entry["command"] and entry["file"].endswith(".cu")
        }

    def copy_of(self, path):
        return self.copy / path.relative_to(ROOT / KERNELS)

    def object_of(self, name):
        return self.work / f"{name.name}.o"

    def compiles(self, name):
        """The copy's file of that name; its headers come before the tree's."""
        words = self.build.compile(self.entries[name], self.copy / name, self.object_of(name))
        at = next(i for i, word in enumerate(words) if word.startswith("-I"))
        words.insert(at, f"-I{self.work}/src")
        return subprocess.run(words, cwd=self.build.folder, capture_output=True, check=False).returncode == 0

    def is_caught(self, path, changed):
        """None where it does not compile."""
        self.copy_of(path).write_text(changed)
        names = [path.relative_to(ROOT / KERNELS)] if path.suffix == ".cu" else list(self.entries)
        compiled = all([self.compiles(name) for name in names])
        self.copy_of(path).write_text(path.read_text())
        if not compiled:
            return None
        words = self.build.link(TEST, [self.object_of(name) for name in names], self.work / "test")
        subprocess.run(words, cwd=self.build.folder, capture_output=True, check=True)
        return run([self.work / "test", "--gtest_fail_fast"], timeout=120)[0] != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="", help="files whose names have this")
    options = parser.parse_args()
    caught = passed = 0
    with tempfile.TemporaryDirectory() as work:
        tried = Mutants(Build(options.build.resolve()), pathlib.Path(work))
        for path in SOURCES:
            if path.name == "launch.cuh" or options.only not in str(path):
                continue
            for line, what, changed in mutants(path.read_text()):
                result = tried.is_caught(path, changed)
                caught += result is True
                passed += result is False
                if not result:
                    print(f"{'passes' if result is False else 'does not compile'}: {path.name}:{line}: {what}", flush=True)
    print(f"{caught} of {caught + passed} mutants caught", flush=True)


if __name__ == "__main__":
    main()
