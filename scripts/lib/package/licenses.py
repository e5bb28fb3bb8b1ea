# SPDX-License-Identifier: Apache-2.0
"""The terms of whatever a package carries, and what it was copied from."""

import glob
import os
import shutil
import subprocess

# Compiled in, so that no file shows them.
HEADERS = ["nlohmann-json3-dev"]

ABOUT = """What this package carries beside snug itself, and where it is from. Libraries are unchanged but for
symbols that were stripped and the paths on which they look for each other. The terms are in the folder of
each origin, which may name others in common-licenses. Debian's packages are named with their sources,
which https://snapshot.debian.org/package/SOURCE/VERSION/ has.

"""


def ask(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def debian_package(file):
    """Where /lib is a link to /usr/lib, dpkg may know a file by either name."""
    for name in (file, file.removeprefix("/usr")):
        if owner := ask("dpkg", "-S", name):
            return owner.split(":")[0]
    raise SystemExit(f"error: {file} is of no Debian package, so that its licence is not known")


class Licenses:
    def __init__(self, repository, cache):
        self.repository = repository + os.sep
        self.cache = cache + os.sep
        self.files = {}  # what it is from -> places in the package
        self.terms = {}  # what it is from -> files with the terms

    def add(self, source, places):
        if source.startswith(self.repository):
            return
        if source.startswith(self.cache):
            # CACHE/torch-2.11.0/torch/lib/libc10.so, with its terms in CACHE/torch-2.11.0-licenses
            wheel, package = source[len(self.cache) :].split("/")[:2]
            name = wheel if wheel.startswith(package) else f"{package} of {wheel}"
            found = f"{self.cache}{wheel}-licenses/{package}[-_]*.dist-info/licenses/*"
            terms = sorted(glob.glob(found))
        else:
            package = debian_package(source)
            name = ask("dpkg-query", "-W", "-f=${Package} ${Version} (${source:Package} ${source:Version})", package)
            name = f"Debian {name}"
            terms = [f"/usr/share/doc/{package}/copyright"]
        if not terms or not os.path.exists(terms[0]):
            raise SystemExit(f"error: there are no terms of {source} ({name})")
        self.files.setdefault(name, []).extend(places)
        self.terms[name] = terms

    def write(self, folder):
        os.makedirs(folder)
        with open(f"{folder}/README", "w") as index:
            index.write(ABOUT)
            for name in sorted(self.files):
                origin = name.split(" ")[1] if name.startswith("Debian ") else name.split(" ")[0]
                os.makedirs(f"{folder}/{origin}", exist_ok=True)
                for file in self.terms[name]:
                    shutil.copy(file, f"{folder}/{origin}/")
                index.write(f"{name}\n" + "".join(f"    {place}\n" for place in summary(self.files[name])))
        shutil.copytree("/usr/share/common-licenses", f"{folder}/common-licenses", symlinks=False)


def summary(places):
    """Folders of many files in one line."""
    folders = {}
    for place in places:
        folders.setdefault(os.path.dirname(place), []).append(place)
    for folder, files in sorted(folders.items()):
        yield from sorted(files) if len(files) < 5 else [f"{folder}/ ({len(files)} files)"]


def write(folder, sources, repository, cache):
    licenses = Licenses(repository, cache)
    by_source = {}
    for place, source in sources.items():
        by_source.setdefault(source, []).append(place)
    for header in HEADERS:
        by_source.setdefault(f"/usr/share/doc/{header}/copyright", []).append("bin/snug (compiled in)")
    for source, places in by_source.items():
        licenses.add(source, places)
    licenses.write(f"{folder}/licenses")
    shutil.copy(f"{repository}/LICENSE", folder)
