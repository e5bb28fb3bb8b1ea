# SPDX-License-Identifier: Apache-2.0
"""Runs a GoogleTest program to its last test although some of them crash, or leave the GPU in a state in
which all that follows in that process fails too: what a broken process had not come to is run in a new one."""

import re

from .runner import Failed, OutOfTime

RESULT = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] ([\w./]+)(?:, where .*)?(?: \(\d+ ms\))?$", re.M)
# Errors of CUDA that stay with the process.
STICKY = re.compile(r"an illegal memory access|misaligned address|unspecified launch failure|device-side assert"
                    r"|an illegal instruction|uncorrectable ECC|cudaErrorLaunchFailure")
PROCESSES = 6  # a program that breaks more often is broken


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


def run(job, program, filters="*", seconds=None, before=(), env=None):
    """Figures: how many passed, failed and were skipped; each failure by name with its first words. `before`: the
    words of a tool that the program runs under. -> (results, whole output)"""
    path = job.place.program(program)
    if path is None:
        raise Failed(f"the bundle has no {program}")
    results, left_out, outputs = {}, [], []
    for _ in range(PROCESSES):
        flags = job.folder / "flags"
        negative = "" if "-" not in filters else filters.split("-", 1)[1]
        positive = filters.split("-", 1)[0]
        negatives = ":".join([*([negative] if negative else []), *left_out])
        flags.write_text(f"--gtest_filter={positive}{'-' + negatives if negatives else ''}\n")
        late = None
        try:
            finished = job.command([*before, path, f"--gtest_flagfile={flags}"], seconds=seconds,
                                   env=env or job.place.environment(), ok=None)
            output = finished.output
        except OutOfTime as reason:
            late, output = reason, job.output()
        outputs.append(output)
        found, running, starts = read(output)
        broken = running
        for name, state in found.items():
            results[name] = state
            left_out.append(name)
            if state != "FAILED":
                continue
            words = words_of(output, starts[name])
            job.check(False, f"{name}: {words}")
            if STICKY.search(words):
                broken = name
                break
        if running and broken == running:
            results[running] = "HUNG" if late else "DIED"
            left_out.append(running)
            job.check(False, f"{running}: {'did not end' if late else f'ended the process ({finished.code})'}")
        if late:
            count(job, program, results)
            raise late
        if not broken:
            if not found and finished.code != 0:
                raise Failed(f"{program} ended with {finished.code} and ran no test")
            break
    count(job, program, results)
    return results, "\n".join(outputs)


def count(job, program, results):
    states = list(results.values())
    job.check("OK" in states, f"{program}: no test passed")
    job.figure(program=program, passed=states.count("OK"), skipped=states.count("SKIPPED"),
               failed=len(states) - states.count("OK") - states.count("SKIPPED"))
