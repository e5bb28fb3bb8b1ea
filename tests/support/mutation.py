# SPDX-License-Identifier: Apache-2.0
"""What programs that test tests by mutants have in common: how a build compiles a source and links a test program, and
how a test is run that may never end. Their users: tests/unit/core/kernels/simulated/mutants.py (a compilation a mutant)
and tests/unit/core/simulated/mutants.py (all mutants in one program)."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def is_comment(text, at):
    """Whether that place of a source stands in a comment to the end of the line."""
    return "//" in text[text.rfind("\n", 0, at) + 1 : at]


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def words_of(command, drop):
    """A compiler's words, without the options named (and their values) and warnings as errors."""
    words, result = iter(shlex.split(command)), []
    for word in words:
        if word in drop:
            next(words)
        elif word not in ("-MD", "-c", "-Werror"):
            result.append(word)
    return result


class Build:
    """A build folder made with ninja."""

    def __init__(self, folder):
        self.folder = folder
        self.entries = json.loads((folder / "compile_commands.json").read_text())

    def compile(self, entry, source, target):
        """The words that compile `source` as the entry of compile_commands.json compiles its own."""
        words = words_of(entry["command"], {"-o", "-MT", "-MF"})[:-1]
        return [*words, "-w", "-c", str(source), "-o", str(target)]

    @staticmethod
    def output(entry):
        """The object that an entry of compile_commands.json makes, in the build folder."""
        words = shlex.split(entry["command"])
        return pathlib.Path(words[words.index("-o") + 1])

    def link(self, program, objects, target, libraries=None):
        """The words that link the program, or shared library, with those objects before its own, whose place they so take in libraries, and
        with other libraries for some of its own."""
        said = subprocess.run(
            ["ninja", "-C", self.folder, "-t", "commands", program], capture_output=True, text=True, check=True
        )
        line = next(line for line in reversed(said.stdout.splitlines()) if re.search(rf" -o (\S*/)?{re.escape(program)} ", line))
        words = words_of(line.split("&&")[1], {"-o"})
        words = [str((libraries or {}).get(os.path.relpath(self.folder / word, self.folder), word)) for word in words]
        at = next(i for i, word in enumerate(words) if word.endswith(".o"))
        return [*words[:at], *map(str, objects), *words[at:], "-o", str(target)]


def run(words, timeout, cwd=None, **environment):
    """(exit status, what it said); the status is None where it did not end in time and was killed, with its children."""
    process = subprocess.Popen(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        cwd=cwd, env=dict(os.environ, **environment), start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=timeout)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
