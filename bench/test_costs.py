#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_costs.py BUILD_FOLDER [--set quick|all] [--only REGEX] [--leave-out REGEX] [--json FILE]
What each entry of ctest costs: seconds of processors (user and system, children included) and of the clock, one entry
after another. For a machine with nothing else to do. Without --set all cases run."""
import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time


def entries(build):
    said = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    for test in json.loads(said.stdout)["tests"]:
        if "command" in test:
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            yield test["name"], test["command"], properties


def environment(properties, chosen):
    variables = dict(os.environ, OMP_NUM_THREADS="2", **chosen)
    for line in properties.get("ENVIRONMENT", []):
        name, _, value = line.partition("=")
        variables[name] = value
    for line in properties.get("ENVIRONMENT_MODIFICATION", []):
        name, value = re.match(r"(\w+)=path_list_prepend:(.*)", line).groups()
        variables[name] = value + (":" + variables[name] if name in variables else "")
    return variables


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--set", choices=["quick", "all"])
    parser.add_argument("--only", default="")
    parser.add_argument("--leave-out", default="^$")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    chosen = {"SNUG_TEST_SET": args.set, "SNUG_TEST_SEED": "costs"} if args.set else {}
    costs = []
    for name, command, properties in entries(args.build):
        labels = properties.get("LABELS", [])
        if not re.search(args.only, name) or re.search(args.leave_out, name) or (args.set == "quick" and "long" in labels):
            continue
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            command, cwd=properties.get("WORKING_DIRECTORY"), env=environment(properties, chosen),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        costs.append({"name": name, "labels": labels, "cpu": round(cpu, 2), "wall": round(wall, 2), "code": done.returncode})
        print(f"{cpu:8.2f} s {wall:8.2f} s  {name}{'' if done.returncode in (0, 77) else f'  exit status {done.returncode}'}", flush=True)
        if args.json:
            args.json.write_text(json.dumps(costs))
        if done.returncode not in (0, 77):
            sys.stderr.write(done.stdout[-3000:])
    print(f"{sum(c['cpu'] for c in costs):8.2f} s {sum(c['wall'] for c in costs):8.2f} s  all")


if __name__ == "__main__":
    main()
