#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutants.py BUILD_FOLDER [--only FILE]

How much the test kernels_simulated sees: takes one barrier, bounds check, guard or lane of a mask at a time out of a
CUDA kernel, compiles that file as the simulation does and runs the test. Prints each mutant that passes, and how many
were caught. Not a test itself: it takes a quarter of an hour. BUILD_FOLDER has the test built."""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[5]
KERNELS = pathlib.Path("src/core/kernels/cuda")
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
            line = text.count("\n", 0, found.start()) + 1
            if "//" in text.split("\n")[line - 1][: found.start() - text.rfind("\n", 0, found.start())]:
                continue
            yield line, found[0], text[: found.start()] + found.expand(replacement) + text[found.end() :]


def words_of(command, drop):
    """A compiler's words, without the options named (and their values) and warnings as errors."""
    words, result = iter(shlex.split(command)), []
    for word in words:
        if word in drop:
            next(words)
        elif word not in ("-MD", "-c", "-Werror"):
            result.append(word)
    return result


class Mutants:
    def __init__(self, build, work):
        self.build, self.work = build, work
        self.copy = work / KERNELS
        self.copy.mkdir(parents=True)
        for path in (ROOT / KERNELS).glob("*.cu*"):
            (self.copy / path.name).write_text(path.read_text())
        entries = json.loads((build / "compile_commands.json").read_text())
        self.commands = {
            pathlib.Path(entry["file"]).name: words_of(entry["command"], {"-o", "-MT", "-MF"})[:-1]
            for entry in entries
            if "snug_kernels_simulated.dir" in entry["command"] and entry["file"].endswith(".cu")
        }
        said = subprocess.run(["ninja", "-C", build, "-t", "commands", TEST], capture_output=True, text=True, check=True)
        link = said.stdout.splitlines()[-1].split("&&")[1]
        self.link = words_of(link, {"-o"})

    def compiles(self, name):
        """The copy's file of that name; its headers come before the tree's."""
        words = self.commands[name]
        at = next(i for i, word in enumerate(words) if word.startswith("-I"))
        words = [*words[:at], f"-I{self.work}/src", *words[at:], "-w", "-c", self.copy / name, "-o", self.work / f"{name}.o"]
        return subprocess.run(words, cwd=self.build, capture_output=True, check=False).returncode == 0

    def is_caught(self, path, changed):
        """None where it does not compile."""
        (self.copy / path.name).write_text(changed)
        names = [path.name] if path.suffix == ".cu" else list(self.commands)
        compiled = all([self.compiles(name) for name in names])
        (self.copy / path.name).write_text(path.read_text())
        if not compiled:
            return None
        objects = [self.work / f"{name}.o" for name in names]
        at = next(i for i, word in enumerate(self.link) if word.endswith(".o"))
        words = [*self.link[:at], *objects, *self.link[at:], "-o", self.work / "test"]
        subprocess.run(words, cwd=self.build, capture_output=True, check=True)
        try:
            test = [self.work / "test", "--gtest_fail_fast"]
            return subprocess.run(test, capture_output=True, check=False, timeout=120).returncode != 0
        except subprocess.TimeoutExpired:
            return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="", help="files whose names have this")
    options = parser.parse_args()
    caught = passed = 0
    with tempfile.TemporaryDirectory() as work:
        tried = Mutants(options.build.resolve(), pathlib.Path(work))
        for path in sorted((ROOT / KERNELS).glob("*.cu*")):
            if path.name == "launch.cuh" or options.only not in path.name:
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
