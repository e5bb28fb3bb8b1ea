#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unpacks chosen files of wheels. Keeps the archive's dates: a folder made anew must not look newer
than what was compiled against it."""

import argparse
import fnmatch
import os
import time
import zipfile


def wanted(name, keep, drop):
    return any(fnmatch.fnmatch(name, p) for p in keep) and not any(
        fnmatch.fnmatch(name, p) for p in drop
    )


def target_path(name, root):
    path = os.path.normpath(os.path.join(root, name))
    if os.path.commonpath([path, os.path.abspath(root)]) != os.path.abspath(root):
        raise SystemExit(f"error: the wheel holds {name!r}, which points outside of its folder")
    return path


def unpack(wheel, args):
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if info.is_dir() or not wanted(info.filename, args.keep, args.drop):
                continue
            path = target_path(info.filename, os.path.abspath(args.to))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(info) as source, open(path, "wb") as out:
                while chunk := source.read(1 << 20):
                    out.write(chunk)
            os.chmod(path, (info.external_attr >> 16 & 0o777) or 0o644)
            seconds = time.mktime(info.date_time + (0, 0, -1))
            os.utime(path, (seconds, seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", required=True)
    parser.add_argument("--keep", action="append", help="pattern of names to unpack (default: all)")
    parser.add_argument("--drop", action="append", default=[], help="pattern to leave out after all")
    parser.add_argument("wheels", nargs="+")
    args = parser.parse_args()
    args.keep = args.keep or ["*"]
    for wheel in args.wheels:
        unpack(wheel, args)


if __name__ == "__main__":
    main()
