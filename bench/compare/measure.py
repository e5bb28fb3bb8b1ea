# SPDX-License-Identifier: Apache-2.0
"""Runs a program and tells how long it took and how much memory it held at its height, the same way
for every program that is compared: the kernel's own count of the resident set."""

import os
import signal
import subprocess
import sys
import threading
import time


class Failed(Exception):
    pass


def run(command, limit_seconds, env=None):
    """Returns {seconds, processor_seconds, peak_rss_bytes, output}; output is stdout and stderr together."""
    start = time.monotonic()
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    timer = threading.Timer(limit_seconds, os.killpg, (child.pid, signal.SIGKILL))
    timer.start()
    with child.stdout as stream:
        output = stream.read().decode("utf-8", errors="replace")
    # wait4 and not RUSAGE_CHILDREN: that one remembers the largest of all children so far.
    _, status, usage = os.wait4(child.pid, 0)
    timer.cancel()
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        sys.stderr.write(output[-4000:])
        reason = f"took over {limit_seconds} s" if code == -signal.SIGKILL else f"exit code {code}"
        raise Failed(f"{' '.join(command)}: {reason}")
    return {
        "seconds": time.monotonic() - start,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "output": output,
    }
