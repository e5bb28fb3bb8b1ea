#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens a finished package (.whl, .tar.xz) and refuses it unless its files are those that a list names, every library
that one of them needs is in it, glibc's or, with --provided, somebody else's, nothing is looked for by an absolute
path, and no newer glibc is needed than allowed.

A line of the list is a file, or a folder (with / at its end) that has files; VERSION is a version's place in it."""

import argparse
import os
import re
import sys
import tarfile
import tempfile
import zipfile

from elftools.elf.elffile import ELFFile

from bundle import GLIBC


MOST_FAULTS = 40


def unpack(package, folder):
    if package.endswith(".whl"):
        with zipfile.ZipFile(package) as archive:
            archive.extractall(folder)
    else:
        with tarfile.open(package) as archive:
            archive.extractall(folder)


def files_in(folder):
    """Path from the folder -> name as in the list."""
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.relpath(os.path.join(path, name), folder)
            first, _, rest = file.partition("/")
            yield file, re.sub(r"-\d+(\.\d+)+", "-VERSION", first, count=1) + "/" + rest


def check_names(names, lines):
    """Faults: what is there without being listed, and what is listed without being there."""
    folders = [line for line in lines if line.endswith("/")]
    found = {next((folder for folder in folders if name.startswith(folder)), name) for name in names}
    yield from (f"{name} is in the package, but not in the list" for name in sorted(found - set(lines)))
    yield from (f"{name} is in the list, but not in the package" for name in sorted(set(lines) - found))


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def glibc_versions(elf):
    section = elf.get_section_by_name(".gnu.version_r")
    for _, versions in section.iter_versions() if section else ():
        for version in versions:
            if match := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version.name):
                yield int(match[1]), int(match[2])


def check_elf(path, name, present, provided, newest):
    with open(path, "rb") as file:
        elf = ELFFile(file)
        tags = list(elf.get_section_by_name(".dynamic").iter_tags())
        needed = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
        paths = [tag.rpath for tag in tags if tag.entry.d_tag == "DT_RPATH"]
        if not paths or any(tag.entry.d_tag == "DT_RUNPATH" for tag in tags):
            yield f"{name} has no RPATH, or a RUNPATH"
        for entry in ":".join(paths).split(":"):
            if not re.match(r"\$ORIGIN(/|$)", entry):
                yield f"{name} looks for libraries in '{entry}'"
        for library in needed:
            if library not in present and library not in provided and not GLIBC.match(library):
                yield f"{name} needs {library}, which is not in the package"
        for version in glibc_versions(elf):
            if version > newest:
                yield f"{name} needs glibc {version[0]}.{version[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--glibc", required=True, help="2.36")
    parser.add_argument("--provided", nargs="*", default=[], help="libraries that are elsewhere")
    parser.add_argument("package")
    parser.add_argument("list")
    args = parser.parse_args()
    newest = tuple(map(int, args.glibc.split(".")))
    with open(args.list) as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    with tempfile.TemporaryDirectory() as folder:
        unpack(args.package, folder)
        files = dict(files_in(folder))
        elves = [file for file in files if is_elf(os.path.join(folder, file))]
        present = {os.path.basename(file) for file in elves}
        faults = list(check_names(files.values(), lines))
        for file in elves:
            faults += check_elf(os.path.join(folder, file), file, present, args.provided, newest)
    for fault in faults[:MOST_FAULTS]:
        print(f"error: {fault}", file=sys.stderr)
    if len(faults) > MOST_FAULTS:
        print(f"error: and {len(faults) - MOST_FAULTS} more", file=sys.stderr)
    sys.exit(2 if faults else 0)


if __name__ == "__main__":
    main()
