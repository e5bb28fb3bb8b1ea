#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a folder that runs wherever it lies out of programs and every library they load:

bin/ with the programs; lib/ with the libraries but glibc's; lib/openmpi, an Open MPI with what its own
plugins need; share/snug with recipes and certificates; share/doc/snug/licenses. Paths to libraries are
relative to the file that loads them (RPATH, which unlike RUNPATH goes before LD_LIBRARY_PATH: a cluster's
modules must not mix other libraries in). What is bundled beside snug, libtorch and Arrow is Debian's.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

import licenses

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# What is part of glibc, and must be that of the machine.
GLIBC = re.compile(r"(ld-linux-x86-64|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|anl|mvec))\.so\b")
# With libtorch these are left to the machine: libtorch and the program share them.
RUNTIME = re.compile(r"lib(stdc\+\+|gcc_s)\.so\b")
# Networks whose libraries have to be those of the machine's drivers; without them Open MPI speaks TCP.
FABRICS = re.compile(r"lib(ucp|ucs|ucm|fabric|ibverbs|rdmacm|psm2|psm_infinipath|nl-\S*)\.so\b")
# Open MPI's OpenSHMEM, and what only a debugger loads.
UNUSED_PLUGINS = re.compile(r"mca_(atomic|memheap|scoll|spml|sshmem)_|libompi_dbg")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def libraries_of(file, first=None):
    """Name -> path of what the loader takes for `file`, glibc's own left out, from the folder `first` if it is there."""
    found = {}
    words = ["env", f"LD_LIBRARY_PATH={first}"] if first else []
    for line in run(*words, "ldd", file).splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if not arrow or GLIBC.match(name):
            continue
        if path.startswith("not found"):
            sys.exit(f"error: {file} needs {name}, which is not on this machine")
        found[name] = path.split(" (")[0]
    return found


class Bundle:
    def __init__(self, root, patchelf, left_out):
        self.root = root
        self.patchelf = patchelf
        self.left_out = [os.path.realpath(folder) + os.sep for folder in left_out]
        self.sources = {}  # place in the bundle -> file that it was copied from

    def leaves_out(self, name, path):
        if not self.left_out:
            return False
        return bool(RUNTIME.match(name)) or os.path.realpath(path).startswith(tuple(self.left_out))

    def copy(self, source, place):
        target = os.path.join(self.root, place)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
        self.sources[place] = os.path.realpath(source)
        return target

    def add_elf(self, source, place, rpath):
        target = self.copy(source, place)
        os.chmod(target, 0o755)
        run("strip", "--strip-unneeded", target)
        run(self.patchelf, "--force-rpath", "--set-rpath", rpath, target)

    def add(self, source, place, rpath):
        """With the libraries that it needs."""
        self.add_elf(source, place, rpath)
        for name, path in libraries_of(source).items():
            if f"lib/{name}" not in self.sources and not self.leaves_out(name, path):
                self.add_elf(path, f"lib/{name}", "$ORIGIN")

    def add_folder(self, source, place):
        for folder, _, names in os.walk(source):
            for name in names:
                file = os.path.join(folder, name)
                self.copy(file, os.path.join(place, os.path.relpath(file, source)))

    def add_openmpi(self):
        """Laid out as src/core/dist/mpi/bundled_mpi.cpp says."""
        here, rpath = "lib/openmpi", "$ORIGIN/../.."
        self.add("/usr/bin/orterun", f"{here}/bin/mpirun", rpath)
        self.add("/usr/bin/orted", f"{here}/bin/orted-program", rpath)
        self.copy(os.path.join(os.path.dirname(__file__), "orted"), f"{here}/bin/orted")
        for folder, place in (("openmpi/lib/openmpi3", "plugins"), ("pmix2/lib/pmix", "pmix")):
            for name in sorted(os.listdir(f"{LIBRARIES}/{folder}")):
                plugin = f"{LIBRARIES}/{folder}/{name}"
                if not UNUSED_PLUGINS.match(name) and not any(map(FABRICS.match, libraries_of(plugin))):
                    self.add(plugin, f"{here}/{place}/{name}", rpath)
        self.add_folder("/usr/share/openmpi", f"{here}/share/openmpi")
        self.add_folder(f"{LIBRARIES}/pmix2/share/pmix", f"{here}/share/pmix")
        self.copy("/etc/openmpi/openmpi-mca-params.conf", f"{here}/etc/openmpi-mca-params.conf")

    def add_certificates(self):
        """Mozilla's, not those that this machine trusts beside them."""
        place = "share/snug/ca-certificates.crt"
        files = sorted(glob.glob("/usr/share/ca-certificates/mozilla/*.crt"))
        with open(os.path.join(self.root, place), "w") as out:
            for file in files:
                out.write(open(file).read())
        self.sources[place] = files[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", required=True)
    parser.add_argument("--patchelf", required=True)
    parser.add_argument("--repository", required=True)
    parser.add_argument("--cache", required=True, help="folder of the unpacked wheels and their licences")
    parser.add_argument("--rpath", default="$ORIGIN/../lib")
    parser.add_argument("--leave_out", action="append", default=[], help="folder whose libraries are not copied")
    parser.add_argument("programs", nargs="+", help="FILE:NAME")
    args = parser.parse_args()
    bundle = Bundle(args.to, args.patchelf, args.leave_out)
    for program in args.programs:
        file, _, name = program.partition(":")
        bundle.add(file, f"bin/{name}", args.rpath)
    bundle.add_openmpi()
    bundle.add_folder(f"{args.repository}/recipes", "share/snug/recipes")
    bundle.add_certificates()
    licenses.write(f"{args.to}/share/doc/snug", bundle.sources, args.repository, args.cache)


if __name__ == "__main__":
    main()
