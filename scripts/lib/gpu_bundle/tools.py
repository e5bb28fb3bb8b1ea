# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's tools over the bundle's programs. A tool brings libraries of its own, so it starts with the environment
that this runs in; what the bundle's program needs is set by `env` below it, which turns into that program and so
stays the process that the tool watches. Some machines do not let a tool work (under gVisor none does): that is no
fault of what it was to look at, and its part is skipped with the tool's words."""

import dataclasses
import re
import shutil

from .runner import Skipped

# What each says where the machine is in its way, and not the program.
REFUSALS = {
    "compute-sanitizer": re.compile(
        r"^=+ (?:Error: )?(.*(?:Device not supported|No attachable process|Internal Sanitizer Error"
        r"|terminated before first instrumented API call|[Ii]nsufficient ?[Pp]rivileges).*)$", re.M),
    "ncu": re.compile(
        r"^(?:==ERROR== )?(.*(?:Failed to initialize the profiler|ERR_NVGPUCTRPERM|LibraryNotLoaded|DriverNotLoaded"
        r"|No attachable process|[Ii]nsufficient ?[Pp]rivileges|Profiling is not supported"
        r"|driver is not compatible).*)$", re.M),
}


@dataclasses.dataclass(frozen=True)
class Tool:
    name: str
    place: object
    options: tuple = ()
    settings: dict = dataclasses.field(default_factory=dict)  # environment variables of the program below it

    def over(self, words):
        """The words that start a program of the bundle under it, in the environment that this runs in."""
        path = self.place.tool(self.name)
        settings = [f"{name}={value}" for name, value in self.place.settings(**self.settings).items()]
        return [path, *self.options, shutil.which("env"), *settings, *words]

    def check_works(self, output):
        """Skips the part, and those to come, where its output says that it cannot work on this machine."""
        refusal = REFUSALS[self.name].search(output)
        if refusal:
            reason = f"not possible on this machine: {self.name} says: {refusal.group(1).strip()[:300]}"
            self.place.shared[f"no {self.name}"] = reason
            raise Skipped(reason)


def find(job, name, *options, **settings):
    """Skips the part where there is no such tool, or an earlier part found that it cannot work."""
    if not job.place.on_gpu:
        raise Skipped("there is no GPU")
    if job.place.tool(name) is None:
        raise Skipped(f"this machine has no {name}")
    refused = job.place.shared.get(f"no {name}")
    if refused:
        raise Skipped(refused)
    return Tool(name, job.place, options, settings)
