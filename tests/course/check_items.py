#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_items.py ROOT PROGRAM: what the course asks of a student, item by item, and where this repository answers it.

tests/data/course/items.jsonl has a line for each of the 160 steps of the course's pages: what it asks, whether that is
there, weaker or not needed, and its answers. A page must have the heading and below it the words; a file must be there; a
suite must have the rows; a command must be one that PROGRAM understands; a run must end well and print the words. What is
weaker or not needed has its reason on a page (why). Faults are printed, and the exit status is 1.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "lib"))
import answer_tables  # noqa: E402
import check_course  # noqa: E402

ITEMS, MOST_WEAKER = 160, 8
STATES = ("there", "weaker", "not needed")


def main():
    root, program = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
    lines = (root / "tests/data/course/items.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    faults = form(items)
    checks = [(f"item {item['item']} ({item['asks']})", functools.partial(answer_faults, answer, root, program))
              for item in items for answer in item["answers"] + [item[key] for key in ("why",) if key in item]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (name, _), found in zip(checks, pool.map(lambda check: check[1](), checks)):
            faults += [f"{name}: {fault}" for fault in found]
    print("\n".join(faults) if faults else f"{len(items)} items, {len(checks)} checks: all as the pages say")
    sys.exit(1 if faults else 0)


def form(items):
    faults = []
    if [item["item"] for item in items] != list(range(1, ITEMS + 1)):
        faults.append(f"the items are not 1 to {ITEMS}, in order")
    faults += [f"item {item['item']}: {item['state']}" for item in items if item["state"] not in STATES]
    faults += [f"item {item['item']}: {item['state']} without a reason" for item in items
               if (item["state"] != "there") != ("why" in item)]
    faults += [f"item {item['item']}: no answer" for item in items if not item["answers"]]
    weaker = [str(item["item"]) for item in items if item["state"] == "weaker"]
    if len(weaker) > MOST_WEAKER:
        faults.append(f"{len(weaker)} items are weaker, {MOST_WEAKER} at most: {', '.join(weaker)}")
    return faults


def answer_faults(answer, root, program):
    if "page" in answer:
        return page_faults(root / answer["page"], answer["heading"], answer.get("says", ""))
    if "file" in answer:
        return [] if (root / answer["file"]).is_file() else [f"{answer['file']}: no such file"]
    if "rows" in answer:
        return [fault for row in answer["rows"] for fault in row_faults(answer["suite"], row, root, program)]
    if "command" in answer:
        return command_faults(answer["command"], root, program)
    return run_faults(answer["run"], answer["prints"], root, program)


def page_faults(page, heading, says):
    if not page.is_file():
        return [f"{page.name}: no such page"]
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(heading)}$", check_course.FENCE.sub(blank, text), re.M)
    if not found:
        return [f"{page.name}: no heading “{heading}”"]
    # A part ends at the next heading of its level; what stands below a page's title ends at the first other one.
    level = f"#{{1,{max(len(found[1]), 2)}}}"
    ends = re.search(rf"^{level} ", check_course.FENCE.sub(blank, text)[found.end():], re.M)
    part = text[found.end(): found.end() + ends.start() if ends else None]
    if " ".join(says.split()) not in " ".join(part.split()):
        return [f"{page.name}, “{heading}”: does not say “{says}”"]
    return []


def blank(match):
    """A cell's lines, some of which may look like headings, as blanks of the same length."""
    return re.sub(r"[^\n]", " ", match[0])


def row_faults(suite, row, root, program):
    if suite not in {one["suite"] for one in answer_tables.listed(root, program)}:
        return [f"no suite {suite}"]
    known = {one["id"] for one in answer_tables.listed(root, program, suite)["rows"]}
    return [] if row in known else [f"{suite} has no row {row}"]


def command_faults(command, root, program):
    words = command.split()
    if words[0].startswith("scripts/"):
        return check_course.script(words, root)
    fault = check_course.not_understood(words, root, program)
    return [f"snug {command}: {fault}"] if fault else []


def run_faults(command, prints, root, program):
    with tempfile.TemporaryDirectory() as folder:
        words = command.split() + (["--out_dir", folder] if command.startswith("lab run") else [])
        done = subprocess.run([program, *words], cwd=root, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        return [f"snug {command}: exit status {done.returncode}: {done.stderr.strip()}"]
    return [] if prints in done.stdout + done.stderr else [f"snug {command}: does not print “{prints}”"]


if __name__ == "__main__":
    main()
