#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lays out a wheel around a bundle (bundle.py): snug_finetune/ with the bundle in it, and the metadata."""

import argparse
import os
import shutil

HERE = os.path.dirname(os.path.abspath(__file__))

METADATA = """Metadata-Version: 2.1
Name: snug-finetune
Version: {version}
Summary: Fine-tunes language and vision-language models so that they fit the memory you have
License: Apache-2.0
Requires-Python: >=3.10
Requires-Dist: torch==2.11.*
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

snug is one C++ program; this package brings it for NVIDIA GPUs and for processors, and runs it on the
libraries of the installed torch. `snug --help` lists its commands, `snug demo` shows them at work.

What is bundled beside it, and under which terms, is in `snug_finetune/share/doc/snug/licenses`.
"""

WHEEL = """Wheel-Version: 1.0
Generator: scripts/package
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
"""

ENTRY_POINTS = """[console_scripts]
snug = snug_finetune:main
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--licence", required=True)
    parser.add_argument("folder", help="has snug_finetune/ with the bundle; gets the rest")
    args = parser.parse_args()
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(f"{HERE}/snug_finetune/{name}", f"{args.folder}/snug_finetune/")
    info = f"{args.folder}/snug_finetune-{args.version}.dist-info"
    os.makedirs(f"{info}/licenses")
    shutil.copy(args.licence, f"{info}/licenses/LICENSE")
    for name, text in (("METADATA", METADATA), ("WHEEL", WHEEL), ("entry_points.txt", ENTRY_POINTS)):
        with open(f"{info}/{name}", "w") as file:
            file.write(text.format(version=args.version))


if __name__ == "__main__":
    main()
