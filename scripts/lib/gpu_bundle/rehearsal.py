# SPDX-License-Identifier: Apache-2.0
"""Parts that go wrong on purpose: the others must not notice."""

from .runner import Part


def fails(job):
    job.figure(before="this is kept")
    job.command(["sh", "-c", "echo it says why; exit 3"])


def hangs(job):
    # A child that does not end when it is asked to, and holds the output open.
    job.command(["sh", "-c", "trap '' TERM HUP; sleep 1000 & sleep 1000"])


PARTS = [Part("rehearsal-fails", 5, fails), Part("rehearsal-hangs", 5, hangs)]
