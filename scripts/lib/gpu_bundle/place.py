# SPDX-License-Identifier: Apache-2.0
"""Where things are on this machine: the bundle's programs, libraries and data, unpacked once into a
temporary folder, and libtorch with NVIDIA's libraries in the packages of the Python that runs this."""

import ctypes
import glob
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
PAYLOAD = "payload.tar.xz"
TORCH = "2.11.0"  # what the programs are linked against


class Place:
    def __init__(self, device, root, torch, scratch):
        self.device = device  # cuda or cpu: where tests and training run
        self.root = root  # bin/, lib/ and source/
        self.torch = torch  # the folder torch/ of Python's packages
        self.scratch = scratch  # emptied at the end
        self.shared = {}  # what later parts compare with

    @property
    def on_gpu(self):
        return self.device == "cuda"

    def program(self, name):
        """None where the bundle has no such program."""
        path = self.root / "bin" / name
        return path if path.exists() else None

    def source(self, path):
        return self.root / "source" / path

    def settings(self, **more):
        """Environment variables of the bundle's programs; others would find libraries that are not theirs."""
        folders = [self.root / "lib", self.torch / "lib", *nvidia_folders(self.torch)]
        before = os.environ.get("LD_LIBRARY_PATH")
        return {"LD_LIBRARY_PATH": ":".join([*map(str, folders), *([before] if before else [])]),
                "SNUG_SOURCE_DIR": str(self.root / "source"),
                "SNUG_TEST_DEVICE": self.device,
                **more}

    def environment(self):
        """A whole environment with them, in which files that nobody asked for go to the scratch folder."""
        return {**os.environ, **self.settings(), "HOME": str(self.scratch), "TMPDIR": str(self.scratch)}

    def tool(self, name):
        """A tool of NVIDIA's that this machine has. None is carried: of compute-sanitizer's wheel a part is missing,
        and a profiler is larger than all of the bundle."""
        folders = glob.glob(f"/usr/local/cuda*/bin/{name}") + glob.glob(f"/opt/nvidia/*/*/{name}")
        return shutil.which(name) or (sorted(folders)[-1] if folders else None)


def nvidia_folders(torch):
    return sorted(glob.glob(str(torch.parent / "nvidia" / "*" / "lib")))


def find_torch():
    """The folder torch/ that SNUG_TORCH names or that Python has, without importing it; or why there is none."""
    named = os.environ.get("SNUG_TORCH")
    if named:
        return pathlib.Path(named)
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"error: {sys.executable} has no torch\n"
                 f"       run this with a Python that has torch {TORCH}, or set SNUG_TORCH to its folder torch/")
    return pathlib.Path(list(spec.submodule_search_locations)[0])


def torch_version(torch):
    """As its version.py says; None where only the libraries lie there."""
    try:
        return re.search(r"__version__ = '([^']+)'", (torch / "version.py").read_text()).group(1)
    except (OSError, AttributeError):
        return None


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


def shows_gpu():
    """Also where something is wrong with it, which is then found out."""
    return has_driver() or shutil.which("nvidia-smi") is not None or bool(glob.glob("/dev/nvidia[0-9]*"))


def gpus():
    """Name, driver and memory of each, as nvidia-smi has them; empty without one that answers."""
    words = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=15, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def unpacked(payload):
    """The folder that this payload lies unpacked in. The second command finds what the first one unpacked."""
    digest = hashlib.sha256(payload.read_bytes()).hexdigest()[:12]
    folder = pathlib.Path(tempfile.gettempdir()) / f"snug-gpu-bundle-{digest}"
    if folder.exists():
        return folder
    part = pathlib.Path(tempfile.mkdtemp(prefix="snug-gpu-bundle-part-"))
    with tarfile.open(payload) as archive:
        archive.extractall(part, filter="fully_trusted") if hasattr(tarfile, "data_filter") else archive.extractall(part)
    try:
        part.rename(folder)
    except OSError:  # another command was faster
        shutil.rmtree(part)
    return folder


def find_place(device):
    torch = find_torch()
    root = unpacked(HERE / PAYLOAD)
    if device == "auto":
        device = "cuda" if shows_gpu() else "cpu"
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="snug-gpu-bundle-run-"))
    return Place(device, root, torch, scratch)
