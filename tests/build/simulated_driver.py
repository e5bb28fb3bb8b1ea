#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""simulated_driver.py BUILD_FOLDER SOURCE_FOLDER: build/simulated/snug finds the driver's library of its GPUs beside it.
`snug doctor` shows the GPU that SNUG_SIMULATED_GPU names, with that profile's memory, the versions of CUDA and NCCL, and
which GPUs CUDA_VISIBLE_DEVICES hides; `snug monitor` of a run shows, on the GPU that it has, as much memory as the run has
reserved at most, and none after its end. A name that is no profile is refused. Faults are printed, and the exit status is
1."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

GIB = 2**30
# GiB of each GPU, as in recipe/gpus.cpp.
MEMORY = {"h100-80": 79.1, "a100-40": 39.4}


class Test:
    def __init__(self, build, source):
        self.snug, self.source, self.faults = build / "simulated" / "snug", source, []

    def fault(self, text):
        self.faults.append(text)

    def environment(self, **given):
        plain = {k: v for k, v in os.environ.items() if not k.startswith("SNUG_SIMULATED") and k != "CUDA_VISIBLE_DEVICES"}
        return dict(plain, **given)

    def say(self, words, **given):
        done = subprocess.run(
            [self.snug, *words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=self.environment(**given)
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    # What the doctor found, by subject.
    def doctor(self, **given):
        _, out, errors = self.say(["doctor", "--json"], **given)
        try:
            return {finding["subject"]: finding for finding in json.loads(out)["findings"]}
        except ValueError:
            self.fault(f"doctor says no JSON: {out}{errors}")
            return {}

    def expect(self, what, finding, *words):
        found = (finding or {}).get("found", "nothing")
        if any(word not in found for word in words):
            self.fault(f"{what}: {found!r} has not all of {words}")

    def doctors(self):
        for profile, name in ("h100-80", "simulated H100"), ("a100-40", "simulated A100"):
            found = self.doctor(SNUG_SIMULATED_GPU=profile, SNUG_SIMULATED_GPUS="2", CUDA_VISIBLE_DEVICES="1")
            self.expect(f"driver of {profile}", found.get("driver"), "simulated", "CUDA up to 13.0")
            self.expect(f"CUDA of {profile}", found.get("CUDA"), "13.0", "1 GPU visible", "CUDA_VISIBLE_DEVICES=1")
            self.expect(f"NCCL of {profile}", found.get("NCCL"), "2.28.9")
            self.expect(f"first {profile}", found.get("GPU 0"), name, f"of {MEMORY[profile]:.2f} GiB", "hidden")
            self.expect(f"second {profile}", found.get("GPU 1"), name, f"of {MEMORY[profile]:.2f} GiB")
            if "hidden" in found.get("GPU 1", {}).get("found", "hidden") or "GPU 2" in found:
                self.fault(f"two GPUs, of which the first is hidden, are {found}")
        self.expect("GPU without a name", self.doctor(SNUG_SIMULATED_MEMORY=str(GIB)).get("GPU 7"), "simulated GPU", "1.00 GiB")
        status, _, said = self.say(["doctor"], SNUG_SIMULATED_GPU="h1000")
        if status != 2 or "use one of" not in said or "h100-80" not in said:
            self.fault(f"SNUG_SIMULATED_GPU=h1000 ends with {status}: {said}")

    def monitor(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"instruction": f"say {i}", "output": "abc" * 8}) + "\n" for i in range(64)))
        out = self.folder / "out"
        given = {"SNUG_SIMULATED_GPU": "h100-80", "CUDA_VISIBLE_DEVICES": "3"}
        words = f"finetune_full {self.source / 'tests/data/system/tiny'} --data JSON --data.json_path {rows} --out_dir {out}"
        words += f" --model.config {self.source / 'tests/data/system/tiny/config.json'} --data.prompt_style plain"
        words += " --accelerator cuda --precision 32-true --train.global_batch_size 2"
        words += " --train.micro_batch_size 2 --train.max_steps 2000 --train.epochs 99 --eval.num_samples 0"
        log = open(self.folder / "log", "w+")
        run = subprocess.Popen(
            [self.snug, *words.split()], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment(**given)
        )  # fmt: skip
        try:
            seen = self.look_until(lambda gpus: str(run.pid) in gpus[3]["process_bytes"], out, given, run)
        finally:
            run.terminate()
            run.wait(60)
        if seen is None:
            self.fault("monitor shows no memory of a run: " + (self.folder / "log").read_text()[-2000:])
            return
        if seen[3]["name"] != "simulated H100" or seen[3]["memory_used"] < seen[3]["process_bytes"][str(run.pid)]:
            self.fault(f"process {run.pid} on GPU 3 is shown as {seen[3]}")
        if any(gpu["process_bytes"] for gpu in seen[:3] + seen[4:] if str(run.pid) in gpu["process_bytes"]):
            self.fault(f"a run on GPU 3 is on others too: {seen}")
        reserved = json.loads((out / "run.json").read_text())["memory"]["measured"].get("peak_reserved", 0)
        if not 0 < seen[3]["process_bytes"].get(str(run.pid), 0) <= reserved:
            self.fault(f"{seen[3]['processes']} bytes are used where {reserved} are reserved at most")
        after = self.look_until(lambda gpus: str(run.pid) not in gpus[3]["process_bytes"], out, given, None)
        if after is None:
            self.fault("a run that has ended still has memory")

    # The monitor's GPUs, once they are as wanted; None where the run ends, or a minute passes, before.
    def look_until(self, is_wanted, out, given, run):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (run is None or run.poll() is None):
            _, text, _ = self.say(["monitor", str(out), "--json", "--once"], **given)
            gpus = json.loads(text)["gpus"] if text else []
            if gpus and is_wanted(gpus):
                return gpus
            time.sleep(0.2)
        return None

    def all(self):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = pathlib.Path(folder)
            self.doctors()
            self.monitor()
        return self.faults


def main():
    faults = Test(*(pathlib.Path(word).resolve() for word in sys.argv[1:])).all()
    print("\n".join(faults) if faults else "doctor and monitor show the simulated GPUs")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
