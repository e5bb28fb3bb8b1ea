# SPDX-License-Identifier: Apache-2.0
"""Runs a GoogleTest program to its last test although some of them crash, hang, or leave the GPU in a state in
which all that follows in that process fails too: what a broken process had not come to is run in a new one."""

import re
import time

from .runner import Failed, OutOfTime

RESULT = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] ([\w./]+)(?:, where .*)?(?: \(\d+ ms\))?$", re.M)
# Errors of CUDA that stay with the process.
STICKY = re.compile(r"an illegal memory access|misaligned address|unspecified launch failure|device-side assert"
                    r"|an illegal instruction|uncorrectable ECC|cudaErrorLaunchFailure")
NOTHING_LEFT = "Running 0 tests"  # GoogleTest's words where its filter leaves none
PROCESSES = 6  # a program that breaks more often is broken
HUNG_SECONDS = 25  # a test that takes longer hangs
LEAST_SECONDS = 2  # no process is begun with less


class Watch:
    """Reads along with what a test program says and is true once the same test has been running for too long. Before
    the first one it has twice the time: libraries are read from the disk."""

    def __init__(self, path, seconds):
        self._path, self._seconds = path, seconds
        self._output = None
        self._line = ""  # its last one, which may not be whole yet
        self._since, self._allowed = time.monotonic(), 2 * seconds
        self.hung = False

    def __call__(self):
        self._output = self._output or open(self._path, encoding="utf-8", errors="replace")
        text = self._output.read()
        if text:
            before, _, last = (self._line + text).rpartition("\n")
            self._line = last
            if RESULT.search(before):
                self._since, self._allowed = time.monotonic(), self._seconds
        self.hung = time.monotonic() - self._since > self._allowed
        return self.hung

    def close(self):
        if self._output:
            self._output.close()


def read(output):
    """-> {test: OK, FAILED or SKIPPED}, the test that was running at the end, and where each test's words begin."""
    results, running, starts = {}, None, {}
    for match in RESULT.finditer(output):
        state, name = match.groups()
        if name.isdigit():  # of the summary
            continue
        if state == "RUN":
            running = name
            starts[name] = match.end()
        elif running == name:
            results[name] = state
            running = None
    return results, running, starts


def words_of(output, start):
    """What a failed test said first, without warnings before it."""
    text = output[start:start + 20_000].split("\n[ ", 1)[0].strip()
    text = text[max(0, text.find(": Failure") - 120):]
    return " | ".join(line.strip() for line in text.splitlines())[:500]


def run(job, program, filters="*", seconds=None, hung_seconds=HUNG_SECONDS, tool=None):
    """Figures: how many passed, failed and were skipped; each failure by name with its first words. `tool`: of
    NVIDIA's, that the program runs under. -> (results, whole output)"""
    path = job.place.program(program)
    if path is None:
        raise Failed(f"the bundle has no {program}")
    until = time.monotonic() + min(job.left(), seconds or job.left())
    results, outputs = {}, []
    for _ in range(PROCESSES):
        words = [path, f"--gtest_flagfile={flag_file(job, filters, results)}"]
        code, output, ending = run_process(job, words, until, hung_seconds, tool)
        outputs.append(output)
        if tool and NOTHING_LEFT not in output:
            tool.check_works(output)
        found, broken = note_results(job, results, output)
        if broken and broken not in found:  # it was running when the process ended
            results[broken] = ending
            job.check(False, f"{broken}: {explain(ending, code, hung_seconds)}")
        if ending == "LATE":
            count(job, program, results)
            raise OutOfTime(f"{program} was not done when its time was over")
        if not broken and ending == "HUNG":
            job.check(False, f"{program}: HUNG outside of tests, killed")
            broken = bool(found)  # without any there is no hope for the next process
        if not broken:
            if not found and code != 0 and NOTHING_LEFT not in output:
                count(job, program, results)
                raise Failed(f"{program} ended with {code} and ran no test")
            break
    else:
        job.check(False, f"{program}: {PROCESSES} processes broke; tests that none of them came to are left out")
    count(job, program, results)
    job.check("OK" in results.values(), f"{program}: no test passed")
    return results, "\n".join(outputs)


def flag_file(job, filters, left_out):
    """Tests' names may be longer than a command line."""
    positive, _, negative = filters.partition("-")
    negatives = ":".join([*([negative] if negative else []), *left_out])
    path = job.folder / "flags"
    path.write_text(f"--gtest_filter={positive}{'-' + negatives if negatives else ''}\n")
    return path


def run_process(job, words, until, hung_seconds, tool):
    """-> exit code, output, and DIED (or ended), HUNG (killed by the watch) or LATE (killed since it is `until`)."""
    left = until - time.monotonic()
    if left < LEAST_SECONDS:
        return None, "", "LATE"
    watch = Watch(job.output_file, hung_seconds)
    words, env = (tool.over(words), None) if tool else (words, job.place.environment())
    try:
        finished = job.command(words, seconds=left, env=env, ok=None, stop=watch)
        return finished.code, finished.output, "HUNG" if watch.hung else "DIED"
    except OutOfTime:
        return None, job.output(), "LATE"
    finally:
        watch.close()


def note_results(job, results, output):
    """Adds what the output tells to `results`, failures as faults. -> what it told, and the test after which the
    process could not be gone on with: the one that was running at its end, or that broke the device for the others."""
    found, running, starts = read(output)
    for name, state in found.items():
        results[name] = state
        if state == "FAILED":
            words = words_of(output, starts[name])
            job.check(False, f"{name}: {words}")
            if STICKY.search(words):
                return found, name
    return found, running


def explain(ending, code, hung_seconds):
    if ending == "DIED":
        return f"ended the process ({code})"
    return f"HUNG, killed after {hung_seconds:.0f} s" if ending == "HUNG" else "did not end"


def count(job, program, results):
    states = list(results.values())
    job.figure(program=program, passed=states.count("OK"), skipped=states.count("SKIPPED"),
               failed=len(states) - states.count("OK") - states.count("SKIPPED"))
