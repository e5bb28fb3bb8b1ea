# SPDX-License-Identifier: Apache-2.0
"""First contact with a GPU, in three commands of nine minutes at most:

  ./correctness   is what the GPU computes right?
  ./system        do plans, budgets, offloads and resumed runs hold?
  ./speed         how fast is it, beside what the GPU can do and beside others?

Figures go to NAME.jsonl and what programs said to NAME.log in the folder of --out (else $OUT, else out), line
by line as they are found. Exit code 1 where a part failed or did not end."""

import argparse
import importlib
import json
import os
import shutil
import sys
import time

from . import place, rehearsal, runner

TOTAL_SECONDS = 525  # with what is unpacked and written beside it, under nine minutes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["correctness", "system", "speed"])
    parser.add_argument("--out", default=os.environ.get("OUT", "out"), help="folder of the results")
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto",
                        help="cpu: a rehearsal with tiny models; auto: cuda where there is a driver")
    parser.add_argument("--seconds", type=float, default=TOTAL_SECONDS, help="for all parts together")
    parser.add_argument("--only", help="these parts, with commas between")
    parser.add_argument("--list", action="store_true", help="show the parts and their limits")
    parser.add_argument("--rehearse", action="store_true",
                        help="with a part that fails and one that hangs before the others")
    args = parser.parse_args()

    parts = importlib.import_module(f"{__package__}.{args.command}").PARTS
    if args.rehearse:
        parts = rehearsal.PARTS + parts
    if args.only:
        wanted = args.only.split(",")
        unknown = set(wanted) - {part.name for part in parts}
        if unknown:
            parser.error(f"no part is called {', '.join(sorted(unknown))}; --list shows them")
        parts = [part for part in parts if part.name in wanted]
    if args.list:
        for part in parts:
            print(f"{part.name:32} at most {part.seconds:3.0f} s")
        return 0

    begun = time.monotonic()
    results = runner.Results(args.out, args.command)
    here = place.find_place(args.device)
    results.line(command=args.command, begun=time.strftime("%Y-%m-%d %H:%M:%S %z"), device=here.device,
                 gpus=place.gpus(), bundle=json.loads(here.source("bundle.json").read_text()),
                 torch=place.torch_version(here.torch))
    try:
        statuses = runner.run_parts(parts, results, here, args.seconds - (time.monotonic() - begun))
    finally:
        shutil.rmtree(here.scratch, ignore_errors=True)
    results.line(command=args.command, ended=time.strftime("%Y-%m-%d %H:%M:%S %z"),
                 seconds=round(time.monotonic() - begun, 1), parts=statuses)
    return runner.exit_code(statuses)


sys.exit(main())
