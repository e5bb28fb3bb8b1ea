#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A power cut at any moment of a short run, simulated: the run that follows comes to the same end.

What a run does to its folder is recorded by the preloaded library (faulty_disk.cpp). Before each flush,
and at the end, the states are built that a disk may have if power goes there: what was flushed is there;
of writes since then none, a half (the last one cut in two) or all; of new names, renames and removals in a
folder since that folder was flushed none, the first half or all. From each state the same command is
started. It must succeed with the losses and the model of an undisturbed run, from no earlier step than
that of the last checkpoint whose name was flushed, and leave nothing temporary.

    power_cut.py SNUG LIBRARY            the entry's share of the states
    SNUG_POWER_CUTS=all  power_cut.py …  all of them;  "7" the seventh alone
"""

import collections
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(TESTS / "support"))
from drawn_cases import drawn  # noqa: E402

TINY = TESTS / "data/system/tiny"
PARTS = {"none": 0.0, "half": 0.5, "all": 1.0}


def first_part(items, share):
    """The first of them, and where a half is wanted how much of the last one."""
    count = len(items) * share
    whole = int(count)
    return items[:whole], (items[whole] if whole < count else None)


def apply(data, write):
    kind, at, new = write
    if kind == "resize":
        return data[:at] + b"\0" * (at - len(data))
    if kind == "extend":
        return data + b"\0" * (at - len(data))
    if kind == "whole":
        return new
    data += b"\0" * (at - len(data))
    return data[:at] + new + data[at + len(new) :]


class File:
    def __init__(self):
        self.flushed, self.writes = b"", []

    def content(self, share=1.0):
        writes, cut = first_part(self.writes, share)
        if cut is not None:
            writes = writes + [(cut[0], cut[1], cut[2][: len(cut[2]) // 2])]
        data = self.flushed
        for write in writes:
            data = apply(data, write)
        return data

    def flush(self):
        self.flushed, self.writes = self.content(), []


class Folder:
    """Changes of its names are shared with the other folder where something is moved between the two."""

    def __init__(self):
        self.now, self.flushed, self.changes = {}, {}, []

    def flush(self):
        for change in self.changes:
            change.flush()
        self.changes = []


class Change:
    numbers = itertools.count()

    def __init__(self, *steps):  # (folder, name, node or None)
        self.steps, self.is_flushed, self.number = steps, False, next(Change.numbers)
        for folder, name, node in steps:
            put(folder.now, name, node)
            folder.changes.append(self)

    def flush(self):
        if not self.is_flushed:
            self.is_flushed = True
            for folder, name, node in self.steps:
                put(folder.flushed, name, node)


def put(names, name, node):
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class Disk:
    def __init__(self, root):
        self.root_path, self.root = str(root), Folder()

    def find(self, path):
        node = self.root
        for part in pathlib.PurePath(path).relative_to(self.root_path).parts:
            node = node.now.get(part) if isinstance(node, Folder) else None
        return node

    def place(self, path):
        path = pathlib.PurePath(path)
        return self.find(path.parent), path.name

    def do(self, kind, path, to, offset, data):
        if path.endswith(" (deleted)") or kind == "reserve":
            return
        node = self.find(path)
        if kind in ("create", "truncate"):
            if node is None:
                Change((*self.place(path), File()))
            elif kind == "truncate":
                node.writes.append(("resize", 0, b""))
        elif kind == "mkdir":
            Change((*self.place(path), Folder()))
        elif kind == "remove":
            Change((*self.place(path), None))
        elif kind == "rename":
            Change((*self.place(path), None), (*self.place(to), node))
        elif kind == "sync":
            node.flush()
        else:
            node.writes.append((kind, offset, data))
        # The folder itself was there before the run, as were all names in it for this purpose.
        self.root.flush()

    def tree(self, names, data):
        """The paths and contents after a power cut, of which these shares got there."""
        changes = []

        def choose(folder):
            waiting = [c for c in folder.changes if not c.is_flushed]
            changes.extend(c for c in first_part(waiting, names)[0] if c not in changes)

        folders = self.folders()
        for folder in folders:
            choose(folder)
        held = {id(f): dict(f.flushed) for f in folders}
        for change in sorted(changes, key=lambda c: c.number):
            for folder, name, node in change.steps:
                put(held.setdefault(id(folder), dict(folder.flushed)), name, node)
        found = {}

        def walk(folder, path):
            for name, node in held.get(id(folder), {}).items():
                if isinstance(node, Folder):
                    found[path + name + "/"] = None
                    walk(node, path + name + "/")
                else:
                    found[path + name] = node.content(data)

        walk(self.root, "")
        return found

    def folders(self):
        seen, wanted = [], [self.root]
        while wanted:
            folder = wanted.pop()
            if folder in seen:
                continue
            seen.append(folder)
            nodes = list(folder.now.values()) + list(folder.flushed.values())
            for change in folder.changes:
                nodes += [node for step in change.steps for node in (step[0], step[2])]
            wanted += [node for node in nodes if isinstance(node, Folder)]
        return seen

    def last_checkpoint(self):
        """The step of the last checkpoint that a power cut cannot take away."""
        out = self.root.flushed.get("out")
        names = list(out.flushed) if out else []
        return max((int(n[5:]) for n in names if n.startswith("step-")), default=0)


def read_log(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        end = data.index(b"\n", at)
        kind, name, to, offset, length = data[at:end].decode().split("\t")
        at = end + 1 + int(length)
        yield kind, name, to, int(offset), data[end + 1 : at]


class Test:
    def __init__(self, snug, library, folder):
        self.snug, self.library, self.folder = snug, library, folder
        self.work, self.out = folder / "work", folder / "work/out"
        self.work.mkdir()
        rows = folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"instruction": "say %d" % (i % 7), "input": "", "output": "ab"[i % 2] * (1 + i % 7)}) + "\n" for i in range(40)))
        shutil.copytree(TINY, folder / "model", copy_function=shutil.copyfile)
        (folder / "model").chmod(0o755)  # the sources may be read-only
        config = json.loads((folder / "model/config.json").read_text())
        config["num_hidden_layers"] = 1
        (folder / "model/config.json").write_text(json.dumps(config))
        self.words = [snug, "finetune_full", folder / "model", "--model.config", folder / "model/config.json",
                      "--data", "JSON", "--data.json_path", rows, "--data.prompt_style", "plain", "--out_dir", self.out,
                      "--precision", "32-true", "--train.global_batch_size", 8, "--train.micro_batch_size", 4,
                      "--train.max_steps", 4, "--train.save_interval", 2, "--train.keep_checkpoints", 1,
                      "--train.lr_warmup_steps", 1, "--resume", "auto", "--eval.interval", 3,
                      "--data.val_split_fraction", 0.1, "--num_threads", 1]

    def run(self, **environment):
        done = subprocess.run([str(w) for w in self.words], env={**os.environ, **environment}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=300)
        return done.returncode, done.stdout

    def found(self):
        """Every path below `work` and what is in it, as Disk.tree has them."""
        return {str(p.relative_to(self.work)) + ("/" if p.is_dir() else ""): None if p.is_dir() else p.read_bytes()
                for p in self.work.rglob("*")}

    def essence(self):
        record = json.loads((self.out / "run.json").read_text())
        return ([(s["step"], s["loss"]) for s in record["steps"]], record["outcome"],
                hashlib.sha256((self.out / "final/model.safetensors").read_bytes()).hexdigest())

    def record(self):
        log, state = self.folder / "log", self.folder / "state"
        log.touch()
        state.write_bytes(bytes(1024))
        code, text = self.run(LD_PRELOAD=self.library, SNUG_FAULT_FOLDER=str(self.work), SNUG_FAULT_STATE=str(state),
                              SNUG_FAULT_KIND="EIO", SNUG_FAULT_AT="0", SNUG_FAULT_LOG=str(log))
        assert code == 0, text
        self.expected = self.essence()
        return list(read_log(log))

    def states(self, calls):
        """(what is there, from which step it must go on, how it came about), each different tree once."""
        disk, seen = Disk(self.work), set()
        for number, call in enumerate(calls + [("sync", "", "", 0, b"")]):
            if call[0] == "sync":
                for names, data in itertools.product(PARTS, PARTS):
                    tree = disk.tree(PARTS[names], PARTS[data])
                    key = hashlib.sha256(repr(sorted(tree.items())).encode()).digest()
                    if key not in seen:
                        seen.add(key)
                        yield tree, disk.last_checkpoint(), "before call %d (%s %s), names %s, data %s" % (
                            number, call[0], call[1], names, data)
            if number < len(calls):
                disk.do(*call)
        self.replayed = disk.tree(1.0, 1.0)

    def check(self, tree, step):
        shutil.rmtree(self.work)
        self.work.mkdir()
        for path, content in sorted(tree.items()):
            if content is None:
                (self.work / path).mkdir(parents=True, exist_ok=True)
            else:
                (self.work / path).write_bytes(content)
        code, text = self.run()
        wrong = "exit code %d" % code if code else ""
        resumed = 0
        if not code:
            record = json.loads((self.out / "run.json").read_text())
            resumed = record["resumptions"][-1]["step"] if record["resumptions"] else 0
            done = step == 4 and not record["resumptions"]
            if self.essence() != self.expected:
                wrong = "%s instead of %s" % (self.essence(), self.expected)
            elif resumed < step and not done:
                wrong = "it went on from step %d, not %d" % (resumed, step)
            left = [p for p in self.found() if ".tmp-" in p or ".new" in p]
            if left:
                wrong = "%s left behind" % left
        return wrong, resumed, text


def main():
    snug, library = sys.argv[1:]
    wish = os.environ.get("SNUG_POWER_CUTS", "")
    with tempfile.TemporaryDirectory() as folder:
        test = Test(snug, library, pathlib.Path(folder))
        calls = test.record()
        after = test.found()
        states = list(test.states(calls))
        different = [p for p in {*after, *test.replayed} if after.get(p, "-") != test.replayed.get(p, "-")]
        assert not different, "the record is not whole: %s" % sorted(different)
        numbers = range(len(states))
        chosen = [int(wish)] if wish.isdigit() else numbers if wish == "all" else drawn(numbers, "states of the disk")
        steps, failed = collections.Counter(), 0
        for number in chosen:
            tree, step, how = states[number]
            wrong, resumed, text = test.check(tree, step)
            steps[resumed] += 1
            if wrong:
                failed += 1
                print("SNUG_POWER_CUTS=%d, %s: %s\n%s" % (number, how, wrong, text))
        print("%d calls, %d flushes, %d states; %d tried, %d failed; went on from step: %s" % (
            len(calls), sum(c[0] == "sync" for c in calls), len(states), len(list(chosen)), failed, dict(steps)))
        sys.exit(failed > 0)


if __name__ == "__main__":
    main()
