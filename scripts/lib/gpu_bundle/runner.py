# SPDX-License-Identifier: Apache-2.0
"""Runs a list of parts against the clock. A part that fails, hangs or dies costs its own time and no
more: each has a limit, every program it starts runs in a process group of its own that is killed at that
limit, and what a part found out is in the results the moment it is known. Parts come in the order of their
worth; those that the total leaves no time for are skipped and said to be."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback
from typing import Callable

KEPT_OF_OUTPUT = 150_000  # characters of a program's output that go to the log, from its start and its end
LEAST_SECONDS = 5  # a part is not begun with less


class Skipped(Exception):
    """This part has nothing to do here; the reason is its text."""


class Failed(Exception):
    """This part cannot go on; the reason is its text."""


class OutOfTime(Exception):
    """The part's limit has passed."""


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    seconds: float  # its own limit
    run: Callable[["Job"], None]


@dataclasses.dataclass(frozen=True)
class Finished:
    code: int  # negative: the signal that ended it
    output: str
    seconds: float


class Results:
    """NAME.jsonl, a line a figure, and NAME.log, what the programs said. Lines are out when they are written."""

    def __init__(self, folder, name):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._start = time.monotonic()
        self._lines = open(folder / f"{name}.jsonl", "a", encoding="utf-8")
        self._log = open(folder / f"{name}.log", "a", encoding="utf-8", errors="replace")

    def line(self, **fields):
        at = round(time.monotonic() - self._start, 2)
        self._lines.write(json.dumps({"at": at, **fields}, default=str) + "\n")
        self._lines.flush()

    def log(self, text):
        self._log.write(text if text.endswith("\n") else text + "\n")
        self._log.flush()


class Job:
    """What a part works with: programs under its clock, a folder of its own, and where figures go."""

    def __init__(self, name, results, place, until):
        self.name, self.place = name, place
        self.folder = place.scratch / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.faults = []
        self.output_file = self.folder / "output.txt"  # of the last program, also while it runs
        self._results, self._until = results, until

    def left(self):
        return self._until - time.monotonic()

    def figure(self, **fields):
        self._results.line(part=self.name, **fields)

    def note(self, text):
        self._results.log(text)

    def check(self, holds, text):
        """A fault is recorded and the part goes on."""
        if not holds:
            self.faults.append(text)
            self.figure(fault=text)

    def output(self):
        """Of the last program, also of one that was killed."""
        return self.output_file.read_text(encoding="utf-8", errors="replace")

    def command(self, words, seconds=None, env=None, ok=(0,), stop=None):
        """Runs a program to its end. `ok`: exit codes that are no failure; None: any. `stop` is asked all the
        while and, once it is true, the program is killed as if the machine had taken it away."""
        words = [str(word) for word in words]
        limit = min(self.left(), seconds or self.left())
        self.note(f"$ {' '.join(words)}")
        begun = time.monotonic()
        with open(self.output_file, "wb") as output:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       env=env, cwd=self.folder, start_new_session=True)
            try:
                ended = wait(process, begun + limit, stop)
            finally:
                kill_group(process)
                text = self.output()
                self.note(shortened(text))
        spent = time.monotonic() - begun
        if not ended:
            raise OutOfTime(f"{pathlib.Path(words[0]).name} was killed after {spent:.0f} s: {last_line(text)}")
        if ok is not None and process.returncode not in ok:
            raise Failed(f"{pathlib.Path(words[0]).name} ended with {process.returncode}: {last_line(text)}")
        return Finished(process.returncode, text, spent)


def wait(process, until, stop):
    """Whether it ended before `until`, by itself or because `stop` said so."""
    while True:
        pause = 0.02 if stop else 0.5
        try:
            process.wait(max(0.0, min(pause, until - time.monotonic())))
            return True
        except subprocess.TimeoutExpired:
            if time.monotonic() >= until:
                return False
            if stop and stop():
                kill_group(process)
                return True


def kill_group(process):
    """Ends the program and all that it started. One that hangs in the kernel is left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        pass


def shortened(text):
    if len(text) <= KEPT_OF_OUTPUT:
        return text
    half = KEPT_OF_OUTPUT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def run_part(part, results, place, until):
    """-> ok, failed, timeout or skipped, and why."""
    results.log(f"\n==== {part.name}, at most {until - time.monotonic():.0f} s")
    try:
        job = Job(part.name, results, place, until)
        # For Python code that hangs; programs are killed earlier.
        signal.setitimer(signal.ITIMER_REAL, max(1.0, job.left() + 3))
        try:
            part.run(job)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if job.faults:
            return "failed", "; ".join(job.faults)
        return "ok", ""
    except Skipped as reason:
        if job.faults:  # found before there was a reason to leave the rest out
            return "failed", "; ".join([*job.faults, str(reason)])
        return "skipped", str(reason)
    except OutOfTime as reason:
        return "timeout", str(reason)
    except Failed as reason:
        return "failed", "; ".join([*job.faults, str(reason)])
    except Exception as error:  # a fault of the bundle's own must not cost the other parts
        results.log(traceback.format_exc())
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(place.scratch / part.name, ignore_errors=True)


def run_parts(parts, results, place, seconds):
    """Runs what there is time for. -> name: status of every part."""

    def alarm(_number, _frame):
        raise OutOfTime("this part's own code did not come back")

    def ended_from_outside(number, _frame):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGTERM, ended_from_outside)
    end = time.monotonic() + seconds
    statuses = {}
    for part in parts:
        begun = time.monotonic()
        if end - begun < LEAST_SECONDS:
            status, reason = "skipped", "no time is left"
        else:
            status, reason = run_part(part, results, place, min(end, begun + part.seconds))
        spent = time.monotonic() - begun
        statuses[part.name] = status
        results.line(part=part.name, status=status, seconds=round(spent, 2), **({"reason": reason} if reason else {}))
        results.log(f"---- {part.name}: {status} after {spent:.1f} s {reason}")
        print(f"{status:8} {spent:6.1f} s  {part.name:24} {reason[:400]}", flush=True)
    return statuses


def exit_code(statuses):
    bad = [name for name, status in statuses.items() if status in ("failed", "timeout")]
    counts = {status: list(statuses.values()).count(status) for status in ("ok", "failed", "timeout", "skipped")}
    print(", ".join(f"{count} {status}" for status, count in counts.items() if count), file=sys.stderr, flush=True)
    return 1 if bad else 0
