#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""draws.py PROGRAM: what `scripts/test` leaves out of a test program, the commit draws (tests/support/drawn_cases.h). One commit
takes its share of each test's parameters and of each suite's tests, at least one, the same whenever it is asked; a few
dozen commits take all; without SNUG_TEST_SET, or for a set that the entry says nothing of, nothing is left out. The draws of
tests in Python (drawn_cases.py) likewise."""
import collections
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from drawn_cases import drawn  # noqa: E402
from mutation import run  # noqa: E402

SHARE, COMMITS = 3, 40


def listed(program, **environment):
    """(suite, test) of all that would run."""
    plain = {"SNUG_TEST_SET": "", "SNUG_TEST_SEED": "", "SNUG_TEST_SHARES": "", "SNUG_TEST_SUITES": ""}
    status, said = run([program, "--gtest_list_tests"], 60, **plain | environment)
    assert status == 0, said
    suite, found = "", set()
    for line in said.splitlines():
        if line.startswith("  "):
            found.add((suite, line.split("#")[0].strip()))
        elif line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
    return found


def groups(tests):
    """What is drawn from: the parameters of a test, the plain tests of a suite."""
    found = collections.defaultdict(set)
    for suite, test in tests:
        found[suite, test.split("/")[0] if "/" in test else ""].add(test)
    return found


def main():
    program = sys.argv[1]
    draw = {"SNUG_TEST_SHARES": f"quick:{SHARE},all:1", "SNUG_TEST_SUITES": f"quick:{SHARE}"}
    whole = listed(program)
    assert len(whole) > 20 and any("/" in test for _, test in whole), whole
    assert listed(program, **draw) == whole, "without a set tests are left out"
    assert listed(program, **draw, SNUG_TEST_SET="all", SNUG_TEST_SEED="a") == whole, "all is not all"
    first = listed(program, **draw, SNUG_TEST_SET="quick", SNUG_TEST_SEED="0")
    assert first == listed(program, **draw, SNUG_TEST_SET="quick", SNUG_TEST_SEED="0"), "another draw for the same commit"
    for group, tests in groups(whole).items():
        taken = len(groups(first)[group])
        assert taken == -(-len(tests) // SHARE), f"{taken} of {len(tests)} of {group}"
    left, commits = whole - first, 1
    while left and commits < COMMITS:
        left -= listed(program, **draw, SNUG_TEST_SET="quick", SNUG_TEST_SEED=str(commits))
        commits += 1
    assert not left, f"{COMMITS} commits never came to {left}"

    cases = list(range(20))
    os.environ.pop("SNUG_TEST_SET", None)
    os.environ["SNUG_TEST_SHARES"] = "quick:16,all:4"
    assert drawn(cases, "cases") == cases
    for name, count in ("quick", 2), ("all", 5):
        os.environ.update(SNUG_TEST_SET=name, SNUG_TEST_SEED="0")
        assert len(drawn(cases, "cases")) == count and drawn(cases, "cases") == drawn(cases, "cases")
    taken = set()
    for commit in range(COMMITS):
        os.environ["SNUG_TEST_SEED"] = str(commit)
        taken |= set(drawn(cases, "cases"))
    assert taken == set(cases), f"never came to {set(cases) - taken}"
    print(f"{len(first)} of {len(whole)} tests for one commit, all of them after {commits}")


if __name__ == "__main__":
    main()
