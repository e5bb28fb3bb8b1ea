# SPDX-License-Identifier: Apache-2.0
"""Collects what scripts/gpu-bundle carries to a machine that has Python with torch and nothing else: programs,
every library of theirs that is not glibc's, torch's or NVIDIA's, and the part of the source tree that they
read, packed into one file; beside it the commands that unpack and run them."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "package"))
from bundle import RUNTIME, libraries_of, run  # noqa: E402

SOURCE = HERE.parent.parent
LIMIT = 60 << 20  # bytes of the whole bundle

PROGRAMS = ["snug", "ops_test", "optim_test", "memory_test", "parity_test", "property_test", "device_bench"]
COMMANDS = ["correctness", "system", "speed"]
# What the programs read of the source tree.
DATA = ["recipes/models", "tests/data/kernels", "tests/data/optim", "tests/data/parity", "tests/data/adapters",
        "tests/data/system", "docs/guide/optimizers.md"]

# Nothing of ours asks for a locale but the root, for converters or collation: 27 MB of ICU's 31.
ICU_KEPT = re.compile(r"(brkitr/(root\.res|.*\.brk|.*\.dict)|[^/]*\.(nrm|icu)|(root|pool|supplementalData)\.res)$")


def find_programs(build, device, names):
    """name: path. Programs with CUDA lie in one folder, the others, and tests, where CMake puts them."""
    tests = [*build.glob("tests/**/")]
    found = {}
    for name in names:
        folders = tests if name.endswith("_test") else [build / "cuda"] if device == "cuda" else [build, build / "bench"]
        path = next((folder / name for folder in folders if os.access(folder / name, os.X_OK)), None)
        if path:
            found[name] = path
    if "snug" not in found:
        sys.exit(f"error: there is no snug for {device} in {build}; scripts/gpu-bundle builds it")
    return found


def carried_libraries(program, torch_root, first):
    """name: path of what it loads that is not of the system, of torch or of NVIDIA."""
    folders = [torch_root / "torch/lib", *torch_root.glob("nvidia/*/lib")]
    theirs = {path.name for folder in folders for path in folder.iterdir()}
    return {name: path for name, path in libraries_of(program, first).items()
            if not RUNTIME.match(name) and name not in theirs}


def copy_binary(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)
    run("strip", "--strip-unneeded", str(target))


def shrink_icu_data(library):
    """Makes ICU's data library anew with what we use of it."""
    packer = shutil.which("icupkg") or shutil.which("/usr/sbin/icupkg")
    if not packer:
        print("warning: no icupkg (Debian: icu-devtools); ICU's data stays whole, 30 MB", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as work:
        version = re.search(r"\.so\.(\d+)", library.name).group(1)
        data = pathlib.Path(work) / f"icudt{version}l.dat"
        run("objcopy", "-O", "binary", "--only-section=.rodata", str(library), str(data))
        unwanted = pathlib.Path(work) / "unwanted.txt"
        names = run(packer, "-l", str(data)).split()
        unwanted.write_text("\n".join(name for name in names if not ICU_KEPT.match(name)))
        small = pathlib.Path(work) / "small" / data.name
        small.parent.mkdir()
        run(packer, "-r", str(unwanted), str(data), str(small))
        source = pathlib.Path(work) / "data.s"
        source.write_text(f".section .rodata\n.balign 16\n.globl icudt{version}_dat\n"
                          f'icudt{version}_dat: .incbin "{small}"\n.section .note.GNU-stack,"",@progbits\n')
        run("cc", "-shared", "-nostdlib", f"-Wl,-soname,{library.name}", str(source), "-o", str(library))


def collect(root, args):
    programs = find_programs(args.build, args.device, args.programs.split(","))
    missing = [name for name in PROGRAMS if name not in programs]
    if missing:
        print(f"warning: not in the bundle: {', '.join(missing)}", file=sys.stderr)
    libraries = {}
    for name, path in programs.items():
        copy_binary(path, root / "bin" / name)
        libraries |= carried_libraries(path, args.torch, args.build / "cuda" if args.device == "cuda" else None)
    for name, path in libraries.items():
        copy_binary(path, root / "lib" / name)
        if name.startswith("libicudata.so"):
            shrink_icu_data(root / "lib" / name)
    for name in DATA:
        target = root / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (SOURCE / name).is_dir():
            shutil.copytree(SOURCE / name, target)
        else:
            shutil.copyfile(SOURCE / name, target)
    about = {"commit": commit(), "made_for": args.device, "programs": sorted(programs)}
    (root / "source/bundle.json").write_text(json.dumps(about))


def commit():
    """Empty outside of a clone."""
    words = ["git", "-C", str(SOURCE), "describe", "--always", "--abbrev=12", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def pack(root, payload, level):
    """In a fixed order with fixed dates, so that the same files make the same bundle."""

    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = 0
        return entry

    # Level 9 has a window over several programs, and so finds that all of them hold the same kernels.
    with tarfile.open(payload, "w:xz", format=tarfile.GNU_FORMAT, preset=level) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, path.relative_to(root), recursive=False, filter=plain)


def largest_files(root, count=8):
    files = sorted((path for path in root.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    return ", ".join(f"{path.name} {path.stat().st_size / 2**20:.1f}" for path in files[:count])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--torch", type=pathlib.Path, required=True, help="the folder that holds torch/ and nvidia/")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--to", type=pathlib.Path, required=True)
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="of those that there are")
    parser.add_argument("--level", type=int, default=9, help="of compression")
    args = parser.parse_args()

    part = args.to.with_name(args.to.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        root = pathlib.Path(work)
        collect(root, args)
        print(f"unpacked, MiB: {sum(p.stat().st_size for p in root.rglob('*') if p.is_file()) / 2**20:.1f}; "
              f"largest: {largest_files(root)}")
        pack(root, part / "payload.tar.xz", args.level)
    shutil.copytree(HERE / "gpu_bundle", part / "gpu_bundle", ignore=shutil.ignore_patterns("__pycache__", "command"))
    for name in COMMANDS:
        shutil.copyfile(HERE / "gpu_bundle/command", part / name)
        (part / name).chmod(0o755)
    size = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
    if size > LIMIT:
        sys.exit(f"error: the bundle takes {size / 2**20:.1f} MiB, {LIMIT / 2**20:.0f} MiB at most are wanted")
    shutil.rmtree(args.to, ignore_errors=True)
    part.rename(args.to)
    print(f"{args.to}: {size / 2**20:.1f} MiB for {args.device}")


if __name__ == "__main__":
    main()
