# SPDX-License-Identifier: Apache-2.0
"""Which cases of a long list run: drawn_cases.h, for tests in Python. `drawn_cases.py WHAT CASE...` prints those."""
import os
import random
import re
import sys


def one_of():
    """One of how many cases runs; see scripts/test."""
    share = re.search(rf"\b{os.environ.get('SNUG_TEST_SET') or '-'}:(\d+)", os.environ.get("SNUG_TEST_SHARES", ""))
    return max(1, int(share[1])) if share else 1


def drawn(cases, what, count=None):
    """`count` of the cases in their order, or the entry's share of them; drawn by the commit."""
    cases = list(cases)
    count = -(-len(cases) // one_of()) if count is None else count
    if count >= len(cases):
        return cases
    print(f"[  DRAWN   ] {count} of {len(cases)} {what} (all without SNUG_TEST_SET)", file=sys.stderr, flush=True)
    chosen = random.Random(f"{os.environ.get('SNUG_TEST_SEED', '')} {what}").sample(range(len(cases)), count)
    return [cases[i] for i in sorted(chosen)]


if __name__ == "__main__":
    print("\n".join(drawn(sys.argv[2:], sys.argv[1])))
