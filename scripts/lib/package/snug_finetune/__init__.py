# SPDX-License-Identifier: Apache-2.0
"""snug as a Python package: starts the program beside this file on the libraries of the installed torch."""

import glob
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def torch_folder():
    """Found as Python finds it, but not imported: that takes seconds."""
    spec = importlib.util.find_spec("torch")
    folder = spec and spec.submodule_search_locations and spec.submodule_search_locations[0]
    if not folder or not os.path.exists(f"{folder}/lib/libtorch_cpu.so"):
        sys.exit("snug: this Python has no torch, whose libraries snug runs on: pip install 'torch==2.11.*'")
    return folder


def program_for(torch):
    """The program with CUDA where its libraries are, otherwise the one for the processor."""
    cudart = f"{os.path.dirname(torch)}/nvidia/cu13/lib/libcudart.so.13"
    if os.path.exists(f"{torch}/lib/libtorch_cuda.so") and os.path.exists(cudart):
        return f"{HERE}/bin/snug"
    if os.path.exists("/dev/nvidiactl"):
        print(f"warning: the torch in {torch} is not made for CUDA 13, so the GPU is not used; PyPI's is: "
              "pip install --force-reinstall 'torch==2.11.*'", file=sys.stderr)
    return f"{HERE}/bin/snug-cpu"


def main():
    torch = torch_folder()
    if os.path.realpath(torch) != os.path.realpath(f"{HERE}/../torch"):
        # The program looks beside its own folder; a torch elsewhere (--user, a layered environment) is shown to it.
        folders = [f"{torch}/lib", *glob.glob(f"{os.path.dirname(torch)}/nvidia/*/lib")]
        others = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = ":".join(folders + ([others] if others else []))
    program = program_for(torch)
    os.execv(program, [program, *sys.argv[1:]])
