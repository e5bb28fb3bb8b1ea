#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda_resources.py BUILD_FOLDER [--compiler VERSION] [--write]

What each CUDA kernel takes of a multiprocessor, from what ptxas said when it was compiled (OBJECT.ptxas, written by
cmake/keep_ptxas_report): no kernel spills registers, every one can be launched with as many threads as its
__launch_bounds__ say, and shares no more memory than it may. Says what is wrong and ends with 1; otherwise compares
the table in docs/benchmarks.md with what it finds, or writes it with --write. Bytes an element are what the kernel's
own file says."""
import argparse
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "core" / "kernels" / "cuda"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- cuda kernels: begin -->", "<!-- cuda kernels: end -->"


@dataclasses.dataclass(frozen=True)
class Device:  # CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
    threads: int  # of a multiprocessor
    blocks: int
    shared: int
    registers: int = 65536


DEVICES = {
    "sm_80": Device(threads=2048, blocks=32, shared=164 << 10),
    "sm_90": Device(threads=2048, blocks=32, shared=228 << 10),
    "sm_120": Device(threads=1536, blocks=24, shared=100 << 10),
}
MOST_REGISTERS = 65536  # of a block
MOST_STATIC_SHARED = 48 << 10  # what is known when compiling; kMostSharedBytes bounds what is asked for at a launch
SHARED_OF_SYSTEM = 1 << 10  # beside each block's own


@dataclasses.dataclass
class Compiled:
    file: str
    kernel: str  # its name, without types
    architecture: str
    spilled: int = 0
    registers: int = 0
    shared: int = 0


@dataclasses.dataclass(frozen=True)
class Source:
    threads: int
    bytes: str
    dynamic_shared: bool
    shares: int  # bytes that it asks for at a launch, at most, where that is no row


def demangled(names):
    said = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return dict(zip(names, said.stdout.split("\n")))


def kernel_name(signature):
    """'add_shares' of 'snug::kernels::cuda::(anonymous namespace)::add_shares(float const*, …)'; CUB's stay long."""
    own = re.match(r"(?:void )?snug::kernels::cuda::(?:(?:\w+|\(anonymous namespace\))::)*(\w+)", signature)
    return own[1] if own else re.match(r"(?:void )?((?:[\w:]|\(anonymous namespace\))+)", signature)[1]


def read_report(file, path):
    """Compiled of each kernel that ptxas reported of the file of that name."""
    found, current, function = [], None, None
    for line in path.read_text().splitlines():
        if entry := re.search(r"Compiling entry function '(\S+)' for '(\w+)'", line):
            current = Compiled(file, entry[1], entry[2])
            found.append(current)
        elif spills := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            current.spilled += int(spills[1]) + int(spills[2])
        elif used := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            current.registers, current.shared = int(used[1]), int(shared[1]) if shared else 0
    names = demangled([one.kernel for one in found])
    for one in found:
        one.kernel = kernel_name(names[one.kernel])
    return found


def read_source(path):
    """{kernel: Source} of a file and the headers beside it that it includes."""
    text = path.read_text()
    all_headers = "".join(header.read_text() for header in SOURCES.rglob("*.*h"))
    constants = dict(re.findall(r"constexpr (?:int|int64_t|unsigned) (k\w+) = (\d+);", all_headers + text))
    moved = dict(re.findall(r"^//   (\w+): (.+)$", text, re.M))
    text += "".join((SOURCES / name).read_text() for name in re.findall(r'"core/kernels/cuda/([\w/]+\.cuh)"', text))
    kernels = {}
    for bounds, name in re.findall(r"__global__ void(?: __launch_bounds__\((\w+)(?:, \d+)?\))?\s+(\w+)\(", text):
        body = text.split(f" {name}(", 1)[1].split("\n}", 1)[0]
        shares = re.search(r"; shares (\d+)$", moved.get(name, ""))
        kernels[name] = Source(
            threads=int(constants.get(bounds, bounds or 0)),
            bytes=moved.get(name, "").split("; shares ")[0],
            dynamic_shared="dynamic_shared_floats()" in body and not shares,
            shares=int(shares[1]) if shares else 0,
        )
    return kernels


def warps_per_multiprocessor(device, threads, registers, shared):
    """What the CUDA occupancy calculator says: registers are given out by 256 a warp, four warps at a time."""
    warps = (threads + 31) // 32
    of_warp = -(-registers * 32 // 256) * 256
    by_registers = device.registers // of_warp // 4 * 4 // warps if registers else device.blocks
    by_shared = device.shared // (-(-(shared + SHARED_OF_SYSTEM) // 128) * 128)
    return min(device.blocks, device.threads // 32 // warps, by_registers, by_shared) * warps


def check(compiled, sources):
    faults = []
    for one in compiled:
        where = f"{one.file}.cu: {one.kernel} for {one.architecture}"
        if one.spilled:
            faults.append(f"{where} spills registers: {one.spilled} bytes")
        if one.shared > MOST_STATIC_SHARED:
            faults.append(f"{where} shares {one.shared} bytes of memory; at most {MOST_STATIC_SHARED} without asking")
        if one.kernel.startswith("cub::"):
            continue
        source = sources[one.file].get(one.kernel)
        if source is None or not source.threads:
            faults.append(f"{where} says by no __launch_bounds__ how many threads a block has")
        elif -(-one.registers // 8) * 8 * source.threads > MOST_REGISTERS:
            faults.append(f"{where} takes {one.registers} registers a thread: {source.threads} threads have {MOST_REGISTERS}")
    seen = collections.defaultdict(set)
    for one in compiled:
        seen[one.file, one.kernel].add(one.architecture)
    for file, kernels in sources.items():
        for name, source in kernels.items():
            if not seen[file, name]:
                faults.append(f"{file}.cu: {name} was not compiled")
            if seen[file, name] and not source.bytes:
                faults.append(f"{file}.cu: its header does not say the bytes that {name} moves: //   {name}: reads …")
    faults += [
        f"{file}.cu: {kernel} was not compiled for {', '.join(sorted(set(DEVICES) - found))}"
        for (file, kernel), found in seen.items()
        if found and not set(DEVICES) <= found and not kernel.startswith("cub::")
    ]
    return sorted(set(faults))


def table(compiled, sources, compiler):
    """Of the instantiations of a kernel for types, the one with most registers."""
    by_kernel = collections.defaultdict(lambda: collections.defaultdict(list))
    for one in compiled:
        if not one.kernel.startswith("cub::"):
            by_kernel[one.file, one.kernel][one.architecture].append(one)
    lines = [
        f"nvcc {compiler}; registers and occupancy for {', '.join(DEVICES)}, of the instantiation that takes most.",
        "",
        "| file | kernel | bytes an element | threads | registers | shared bytes | occupancy % |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for (file, kernel), of in sorted(by_kernel.items()):
        source = sources[file][kernel]
        registers = {name: max(one.registers for one in of[name]) for name in DEVICES}
        shared = {name: max(one.shared for one in of[name]) + source.shares for name in DEVICES}
        share = {
            name: 100 * warps_per_multiprocessor(device, source.threads, registers[name], shared[name]) * 32 // device.threads
            for name, device in DEVICES.items()
        }
        most = max(shared.values())
        lines.append(
            f"| {file} | `{kernel}` | {source.bytes} | {source.threads} | {slashed(registers)} |"
            f" {most}{' + a row' if source.dynamic_shared else ''} | {slashed(share)} |"
        )
    return "\n".join(lines)


def slashed(of):
    """One number where all architectures have the same."""
    values = [str(of[name]) for name in DEVICES]
    return values[0] if len(set(values)) == 1 else " / ".join(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--compiler", default="13.0.88", help="nvcc's version; another gives other numbers")
    parser.add_argument("--write", action="store_true", help="write the table into docs/benchmarks.md")
    args = parser.parse_args()
    folder = args.build / "src" / "core" / "kernels" / "CMakeFiles" / "snug_kernels_cuda.dir" / "cuda"
    names = [str(path.relative_to(SOURCES).with_suffix("")) for path in sorted(SOURCES.rglob("*.cu"))]
    paths = {name: folder / f"{name}.cu.o.ptxas" for name in names}
    if not paths:
        sys.exit(f"no kernels in {SOURCES}")
    missing = [str(path) for path in paths.values() if not path.exists()]
    if missing:
        sys.exit(f"not there: {', '.join(missing)}; build the target snug_kernels_cuda")
    sources = {name: read_source(SOURCES / f"{name}.cu") for name in paths}
    compiled = [one for name, path in paths.items() for one in read_report(name, path)]
    if faults := check(compiled, sources):
        sys.exit("\n".join(faults))
    print(f"{len(compiled)} kernels of {len(paths)} files: nothing spills, every launch bound and shared memory fits")
    page = PAGE.read_text()
    before, written, after = re.split(f"{BEGIN}|{END}", page)
    found = f"\n{table(compiled, sources, args.compiler)}\n"
    if args.write:
        PAGE.write_text(before + BEGIN + found + END + after)
    elif f"nvcc {args.compiler};" in written and written != found:
        sys.exit(f"docs/benchmarks.md has another table; write it: {sys.argv[0]} {args.build} --write")


if __name__ == "__main__":
    main()
