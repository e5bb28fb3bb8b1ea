#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""simulated_deaths.py BUILD_FOLDER SOURCE_FOLDER: a rank of build/simulated/snug is killed (SIGKILL) when its simulated GPU
comes to a launch, copy or collective that a seed draws, as are the techniques and the rank. The others must end soon, with
one message that names it, and leave nothing that is not whole; the same command, which resumes, must come to the losses
and the weights of an undisturbed run, to the bit. SNUG_DEATHS=FIRST:COUNT says which seeds; of the first 14 the entry's share runs otherwise."""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from simulated_program import FOUR, TWO, Test, drawn

SAVING = "--resume auto --train.max_steps 6 --train.epochs 9 --train.save_interval 2 --collective_timeout 10"
# The limit for a whole run, from its start; machines may be busy.
SECONDS = 60


class Deaths(Test):
    def options_of(self, technique):
        return f"{technique} {SAVING}", ["--accelerator", "cuda", "--devices", "4" if technique in FOUR else "2"]

    # An undisturbed run, and how often its ranks come to each kind of work, on average.
    def undisturbed(self, technique):
        file = self.folder / "works"
        file.unlink(missing_ok=True)
        options, words = self.options_of(technique)
        record = self.run(self.gpu, options, words, SNUG_SIMULATED_COUNTS=str(file))
        works = re.findall(r"^works/(\w+) (\d+) ", file.read_text(), re.M)
        size = int(words[-1])
        return record, {kind: sum(int(n) for k, n in works if k == kind) // size for kind in ("launch", "copy", "collective")}

    def expect_clean_end(self, what, victim, seconds):
        wanted = f"rank {victim} of "
        if len(re.findall("^snug: ", self.said, re.M)) != 1 or not re.search(f"^snug: {wanted}.* was killed by SIGKILL", self.said, re.M):
            self.fault(f"{what}: not said to be {wanted}…, once:\n{self.said[-3000:]}")
        if seconds > SECONDS:
            self.fault(f"{what}: it took {seconds:.0f} s to end")
        if left := self.processes():
            self.fault(f"{what}: left behind are {left}")
        if (self.out / "final").exists():
            self.fault(f"{what}: there is a model of a run that did not end")
        if not list(self.out.glob("step-*")):
            return
        verified = subprocess.run([self.cpu, "verify", self.out], capture_output=True, text=True, check=False)
        if verified.returncode != 0:
            self.fault(f"{what}: {verified.stdout[-1000:]}{verified.stderr[-1000:]}")

    # Those whose words name the run's folder, a moment after its end.
    def processes(self):
        for _ in range(50):
            found = []
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if str(self.out).encode() in path.read_bytes():
                        found.append(path.parent.name)
                except OSError:  # it has just ended
                    pass
            if not found:
                break
            time.sleep(0.1)
        return found

    def die(self, seed):
        draw = random.Random(seed)
        technique = draw.choice(TWO + FOUR)
        whole, works = self.undisturbed(technique)
        options, words = self.options_of(technique)
        victim, kind = draw.randrange(int(words[-1])), draw.choice(list(works))
        number = draw.randint(1, works[kind])
        # Ranks of a pipeline come to more and to fewer.
        while True:
            what = f"seed {seed}: rank {victim} at {kind} {number} of some {works[kind]} with [{technique}]"
            begun = time.monotonic()
            faults = len(self.faults)
            record = self.run(self.gpu, options, words, wanted=1, SNUG_SIMULATED_DEATH=f"{victim}:{kind}:{number}")
            seconds = time.monotonic() - begun
            if record.get("outcome") != "ok":
                break
            del self.faults[faults:]
            number = (number + 1) // 2
        self.expect_clean_end(what, victim, seconds)
        if record and record["outcome"] not in ("error", "unfinished"):
            self.fault(f"{what}: run.json says {record['outcome']}")
        saved = len(list(self.out.glob("step-*")))
        again = self.run(self.gpu, options, words, out=self.out.name)
        self.expect_alike(what, again, whole)
        print(f"{what}: ended {seconds:.1f} s after its start, with {saved} checkpoints", flush=True)

    def expect_alike(self, what, record, whole):
        if self.losses(record) != self.losses(whole) or record.get("outcome") != "ok":
            self.fault(f"{what}: losses {self.losses(record)} instead of {self.losses(whole)}")
        if record["weights"] != whole["weights"] or not whole["weights"]:
            self.fault(f"{what}: other weights")
        if left := [path.name for path in self.out.rglob("*") if path.name.startswith(".tmp")]:
            self.fault(f"{what}: left behind are {left}")

    def all(self):
        asked = os.environ.get("SNUG_DEATHS")
        first, count = map(int, (asked or "0:14").split(":"))
        seeds = range(first, first + count)
        with tempfile.TemporaryDirectory() as folder:
            self.folder = pathlib.Path(folder)
            for seed in seeds if asked else drawn(seeds, "deaths"):
                self.die(seed)
        return self.faults


def main():
    faults = Deaths(*(pathlib.Path(word).resolve() for word in sys.argv[1:])).all()
    print("\n".join(faults) if faults else "each run went on as if nothing had happened")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
