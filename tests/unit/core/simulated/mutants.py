#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutants.py BUILD_FOLDER [--list | --check] [--conditions] [--only TEXT] [--again FILE] [--share K/N] [--tests TEXT]
           [--seconds S] [--jobs N] [--json FILE] [--keep FOLDER]

How much the simulated GPU, and the tests that run on it, see: takes out or weakens one wait, event, stream's guard,
pinned buffer or reference that keeps memory alive at a time, wherever the program orders a GPU's work, and runs tests until
one fails. Prints what none has seen, and a table; fails where fewer than 95 of 100 are caught. With --conditions it does so
with conditions, early exits and checks of the files that decide such orders as well: a good part of those only spare work.

All mutants are in one build: copies of the sources in which `on(17) ? ... : ...` stands around each place, and the
environment (SNUG_MUTANT=17) says which one is on. So a dozen files are compiled and a library and a program linked once, from the objects
of BUILD_FOLDER. A first run of all tests without a mutant says how long each takes and which places it comes to; a
mutant is then shown only to tests that come to it, the quickest first. All of them took an hour and a
half on two cores, beside other work."""
import argparse
import collections
import concurrent.futures
import dataclasses
import filecmp
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "build")]
import simulated_program  # noqa: E402
from mutation import ROOT, Build, is_comment, line_of, run  # noqa: E402

# ---- What is mutated

# Where each order of works on a GPU is decided: waits are looked for in all of them, other places in the second list.
ORDERED = [
    "src/core/ops", "src/core/memory", "src/core/dist/nccl_group.cpp", "src/engine/exec", "src/engine/parallel",
    "src/engine/engine.cpp", "src/engine/run.cpp", "src/engine/updaters.cpp", "src/engine/techniques", "src/engine/batch.cpp", "src/core/nn/parameter.cpp",
]  # fmt: skip
DECIDING = [
    "src/core/ops/device/copy_stream.cpp", "src/core/ops/device/upload.cpp", "src/core/ops/device/device.cpp",
    "src/core/memory/block_cache.cpp", "src/core/memory/cpu_allocator.cpp", "src/core/memory/cuda_allocator.cpp",
    "src/core/memory/placement.cpp", "src/core/dist/nccl_group.cpp", "src/engine/exec/policies",
    "src/engine/exec/flat_unit.cpp", "src/engine/exec/stage_links.cpp", "src/engine/updaters.cpp",
]  # fmt: skip
# Plain code beside the GPU's: kernels' work, stubs, and quantizing, which the CPU does.
LEFT_OUT = ["_stub.cpp", "kernel_work.cpp", "device/work.cpp", "linear/stored_weight.cpp"]

# Our functions that complete what was started, by waiting or by calling what waits.
COMPLETING = "settle|settle_replicas|finish|wait_for|publish|weights_changed|end_sweep|arrive|send_units"

SWITCH = "::snug::mutants::on({n})"


@dataclasses.dataclass
class Place:
    """One mutant: text[begin:end] becomes `changed`, in which {n} is its number."""

    kind: str
    file: str
    begin: int
    end: int
    changed: str
    line: int = 0
    last_line: int = 0
    was: str = ""
    number: int = 0

    def named(self):
        return f"{self.file}:{self.line}: {self.kind}: {self.was}"

    def is_of(self, name):
        """Whether named() was that, on whatever line."""
        return re.sub(r":\d+:", ":", name, count=1) == re.sub(r":\d+:", ":", self.named(), count=1)


def closing(text, at):
    """Where the bracket at `at` closes."""
    depth = 0
    for i in range(at, len(text)):
        depth += text[i] in "([{"
        depth -= text[i] in ")]}"
        if depth == 0:
            return i
    raise ValueError(text[at : at + 80])


def expression_start(text, at):
    """Where the expression begins whose last `.` or `->` is at `at`."""
    while True:
        if text[at - 1] in ")]":
            depth, at = 1, at - 1
            while depth > 0:
                at -= 1
                depth += text[at] in ")]"
                depth -= text[at] in "(["
        elif re.match(r"\w", text[at - 1]):
            while re.match(r"\w", text[at - 1]):
                at -= 1
        elif text[at - 1] in ".:":
            at -= 1
        elif text[at - 2 : at] == "->":
            at -= 2
        else:
            return at


def escaped(code):
    return code.replace("{", "{{").replace("}", "}}")


def calls(text, names):
    """(begin, the call's name, its argument's begin, its end) of object.name(...), and of a plain name(...) that is called."""
    for found in re.finditer(rf"(->|\.|(?<=[\s(!]))({names})\(", text):
        end = closing(text, found.end() - 1) + 1
        begin = expression_start(text, found.start()) if found[1] else found.start()
        is_definition = not found[1] and re.match(r"[^;{}]*\{", text[end:]) and not re.match(r"\s*[;,)]", text[end:])
        if not is_definition and not re.search(r"(void|virtual)\s+$", text[:begin]):
            yield begin, found[2], found.end(), end


# The argument of a wait is still worked out: it may start what is waited for, or give it up.
def waits(text):
    for begin, name, argument, end in calls(text, "wait|wait_on_host|wait_for_all|wait_for_all_on_host"):
        call, given = escaped(text[begin:end]), escaped(text[argument : end - 1])
        plain = f"static_cast<void>({given or 0})"
        yield "wait", begin, end, f"({SWITCH} ? {plain} : static_cast<void>({call}))"
        if name.endswith("on_host"):
            weaker = call.replace(f"{name}(", f"{name.removesuffix('_on_host')}(")
            yield "host wait", begin, end, f"({SWITCH} ? static_cast<void>({weaker}) : static_cast<void>({call}))"


def without(kind, names, where=lambda before: True):
    """Calls whose results nobody takes, where `where` is true of the text before them."""

    def find(text):
        for begin, _, _, end in calls(text, names):
            if text[end] != ";" or not where(text[:begin]):
                continue
            yield kind, begin, end, f"({SWITCH} ? void() : static_cast<void>({escaped(text[begin:end])}))"

    return find


def guards(text):
    types = r"(?:c10::|at::|cuda::|memory::)*(?:StreamGuard|CUDAGuard|HostGuard|PinnedGuard|DiskGuard|Unnoticed)"
    for found in re.finditer(rf"const ({types}) (\w+)(?:\((.*)\))?;", text):
        arguments = f", {escaped(found[3])}" if found[3] else ""
        yield "guard", found.start(), found.end(), f"const ::snug::mutants::Unless<{found[1]}> {found[2]}({{n}}{arguments});"


def conditions(text):
    for found in re.finditer(r"\bif \(", text):
        end = closing(text, found.end() - 1)
        begin = found.end()
        if ";" in text[begin:end]:
            begin += text[begin:end].rindex(";") + 2
        condition = escaped(text[begin:end])
        if re.match(r"(const )?[\w:<>]+[*&]* [*&]?\w+ = ", condition):
            continue
        leaves = re.match(r"\)\s*\{?\s*(return|continue|break)\b", text[end:])
        is_left = f"!{SWITCH} && ({condition})" if leaves else f"{SWITCH} || ({condition})"
        yield ("early exit" if leaves else "condition"), begin, end, is_left


def checks(text):
    for found in re.finditer(r"\bSNUG_CHECK\(", text):
        end = closing(text, found.end() - 1) + 2
        yield "check", found.start(), end, f"if (!{SWITCH}) {escaped(text[found.start():end])}"


def replaced(kind, pattern, by):
    """`by` stands for what the pattern finds while the mutant is on."""

    def find(text):
        for found in re.finditer(pattern, text):
            weaker = found.expand(by)
            yield kind, found.start(), found.end(), f"({SWITCH} ? {escaped(weaker)} : {escaped(found[0])})"

    return find


def statements(kind, pattern):
    def find(text):
        for found in re.finditer(pattern, text):
            yield kind, found.start(), found.end(), f"if (!{SWITCH}) {escaped(found[0])}"

    return find


# In all files; the first rule that finds something at a place has it, but for what one rule finds there.
RULES = [
    waits,
    without("event", "record|block|synchronize", lambda before: not before.endswith("DataPtr ")),
    without("order", COMPLETING, lambda before: re.search(r"([;{})]|else|return)\s*$", before)),
    guards,
    statements("wait", r"C10_CUDA_CHECK\(cudaDeviceSynchronize\(\)\);"),
    without("count of waits", "note_host_wait"),
    replaced("blocking copy", r"(?<=/\*non_blocking=\*/)[^;]*?(?=\);)", "true"),
    replaced("stream", r"c10::cuda::getCurrentCUDAStream\(\)", r"c10::cuda::CUDAStream(::snug::mutants::another(\g<0>))"),
    replaced("stream", r"c10::impl::VirtualGuardImpl\([^;]*\)\.getStream\(\w+\)", r"::snug::mutants::another(\g<0>)"),
    replaced("pinned", r"(?<= )memory::HostUse::Landing(?=\))", "memory::HostUse::Written"),
    replaced("pinned", r"(?<= )memory::HostUse::Written(?=\))", "memory::HostUse::Landing"),
    replaced("keep-alive", r"std::exchange\(gradient, \{\}\)", "::snug::mutants::freed(gradient)"),
    replaced("keep-alive", r"(?<=\.upload = )upload", "nullptr"),
    statements("keep-alive", r"(staged_\.push_back|inner_->recordStream)\([^;]*\);"),
    statements("keep-alive", r"pending->held = [^;]*;"),
]
# In those that decide, and only if asked for.
MORE_RULES = []

SUPPORT = {
    "mutants.h": """#pragma once
#include <c10/core/impl/VirtualGuardImpl.h>
#include <optional>
#include <utility>
namespace snug::mutants {
bool on(int number);
// The guard, but while the mutant is on.
template <class Guard>
struct Unless {
  template <class... Arguments>
  explicit Unless(int number, Arguments&&... arguments) {
    if (!on(number)) guard.emplace(std::forward<Arguments>(arguments)...);
  }
  std::optional<Guard> guard;
};
// Another stream of the same device.
inline c10::Stream another(const c10::Stream& stream) {
  static const c10::Stream other =
      c10::impl::VirtualGuardImpl(stream.device_type()).getStreamFromGlobalPool(stream.device());
  return other;
}
// What is left of a tensor that nobody keeps.
template <class Tensor>
Tensor freed(Tensor& tensor) {
  tensor.reset();
  return {};
}
}
""",
    "mutants.cpp": """#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
namespace snug::mutants {
bool on(int number) {
  static const int chosen = [] {
    const char* given = std::getenv("SNUG_MUTANT");
    return given == nullptr ? 0 : std::atoi(given);
  }();
  static const char* reached = std::getenv("SNUG_MUTANTS_REACHED");
  static auto* seen = new std::array<std::atomic<bool>, 4096>{};
  if (reached != nullptr && !(*seen)[number].exchange(true)) {
    const std::string line = std::to_string(number) + " ";
    const int file = ::open(reached, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (::write(file, line.data(), line.size()) < 0) std::abort();
    ::close(file);
  }
  return number == chosen;
}
}
""",
}


def sources(roots):
    for root in roots:
        path = ROOT / root
        for file in sorted(path.rglob("*.cpp")) if path.is_dir() else [path]:
            if not any(str(file).endswith(end) for end in LEFT_OUT):
                yield str(file.relative_to(ROOT))


def places():
    """All mutants, numbered, by file."""
    by_file, deciding, number = {}, set(sources(DECIDING)), 0
    for file in dict.fromkeys(sources(ORDERED + DECIDING)):
        text = (ROOT / file).read_text()
        found = []
        for rule in RULES + (MORE_RULES if file in deciding else []):
            mine = [
                Place(kind, file, begin, end, changed, line_of(text, begin), line_of(text, end), " ".join(text[begin:end].split()))
                for kind, begin, end, changed in rule(text)
                if not is_comment(text, begin)
            ]
            # One inside another's place is the other's.
            found += [p for p in mine if not any(p.begin < q.end and q.begin < p.end for q in found)]
        for place in sorted(found, key=lambda p: (p.begin, p.kind)):
            number += 1
            place.number = number
        if found:
            by_file[file] = found
    return by_file


def faults_of_rules():
    """Rules that find nothing any more, and mutated sources that are no longer sources."""
    faults = []
    texts = {file: (ROOT / file).read_text() for file in dict.fromkeys(sources(ORDERED + DECIDING))}
    for i, rule in enumerate(RULES + MORE_RULES):
        if not any(any(True for _ in rule(text)) for text in texts.values()):
            faults.append(f"rule {i} ({rule.__qualname__}) finds nothing")
    by_file = places()
    if sum(map(len, by_file.values())) < 100:
        faults.append("fewer than 100 mutants")
    for file, found in by_file.items():
        changed = mutated(file, found, set())
        for place in found:
            if not re.search(rf"\bon\({place.number}\)|\({place.number}[,)]", changed):
                faults.append(f"not in its source: {place.named()}")
        for bracket, end in ("()", "{}"):
            if changed.count(bracket) - changed.count(end) != texts[file].count(bracket) - texts[file].count(end):
                faults.append(f"{file}: {bracket} without {end}")
    return faults


def mutated(file, found, dropped):
    """The source with all its mutants but the dropped ones; two of one place, one in the other."""
    text = (ROOT / file).read_text()
    for begin, end in sorted({(p.begin, p.end) for p in found}, reverse=True):
        code = text[begin:end]
        for place in (p for p in found if p.begin == begin and p.number not in dropped):
            changed = place.changed.format(n=place.number)
            code = changed if code == text[begin:end] else changed[: changed.rindex(" : ")] + f" : {code})"
        text = text[:begin] + code + text[end:]
    return f'#include "mutants.h"\n#line 1 "{file}"\n' + text


# ---- What is built

# The library that test programs load, and the program.
LIBRARY = "simulated/lib/libsnug.so.0.1.0"
LINKED = {"libsnug.so.0": LIBRARY, "snug": "simulated/snug"}
TESTS_OF = {
    "memory": "unit/core/memory", "ops": "unit/core/ops", "property": "property", "soak": "property", "simulated": "unit/core/simulated",
}  # fmt: skip


def write(path, text):
    """Leaves a file alone that has the text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


class Mutants:
    def __init__(self, build, work):
        self.build, self.work = build, work
        self.places = places()
        self.dropped = set()

    def all(self):
        return [p for found in self.places.values() for p in found if p.number not in self.dropped]

    def entries(self):
        """(entry of compile_commands.json, the sources of ours in it): joined ones and single ones, without CUDA's."""
        for entry in self.build.entries:
            if "_cuda.dir/" in entry["command"]:
                continue
            path = pathlib.Path(entry["file"])
            joined = re.findall(r'#include "(.*)"', path.read_text()) if "/Unity/" in entry["file"] else [entry["file"]]
            ours = [name for name in joined if name.removeprefix(f"{ROOT}/") in self.places]
            if ours:
                yield entry, joined

    def write(self):
        for name, text in SUPPORT.items():
            write(self.work / name, text)
        for file, found in self.places.items():
            write(self.work / file, mutated(file, found, self.dropped))

    def compile(self, number, entry, joined):
        source = self.work / f"joined_{number}.cpp"
        ours = [n.removeprefix(f"{ROOT}/") for n in joined if n.removeprefix(f"{ROOT}/") in self.places]
        mine = {f"{ROOT}/{name}": str(self.work / name) for name in ours}
        write(source, "".join(f'#include "{mine.get(name, name)}"\n' for name in joined))
        target = self.work / f"object_{number}" / self.build.output(entry).name
        target.parent.mkdir(exist_ok=True)
        words = [*self.build.compile(entry, source, target), f"-I{self.work}"]
        while True:
            newest = max(f.stat().st_mtime for f in [source, *(self.work / name for name in ours)])
            if target.exists() and target.stat().st_mtime > newest:
                return target
            done = subprocess.run(words, cwd=self.build.folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.drop(done.stderr)

    def drop(self, errors):
        """What does not compile is no mutant."""
        found = {
            p.number
            for file, line in re.findall(r"^(src/[^:]*):(\d+):\d+: (?:error|  required)", errors, re.MULTILINE)
            for p in self.places.get(file, [])
            if p.line <= int(line) <= p.last_line
        } - self.dropped
        if not found:
            sys.exit(f"mutants.py: sources with mutants do not compile:\n{errors[:4000]}")
        self.dropped |= found
        for place in (p for p in sum(self.places.values(), []) if p.number in found):
            print(f"does not compile: {place.named()}", flush=True)
        self.write()

    def make(self):
        self.write()
        started = time.monotonic()
        libraries, entries = {}, list(self.entries())
        for number, (entry, joined) in enumerate(entries):
            made = self.compile(number, entry, joined)
            # The library with this object instead of the one of its name.
            folder = next(p for p in self.build.output(entry).parents if p.name.endswith(".dir"))
            library = str(folder.parent.parent / f"lib{folder.stem}.a")
            if library not in libraries:
                libraries[library] = self.work / pathlib.Path(library).name
                shutil.copy(self.build.folder / library, libraries[library])
            subprocess.run(["ar", "rs", libraries[library], made], check=True, capture_output=True)
        switch = self.work / "mutants.o"
        subprocess.run(["c++", "-std=c++20", "-O1", "-c", self.work / "mutants.cpp", "-o", switch], check=True)
        for name, program in LINKED.items():
            target = self.linked(name)
            target.parent.mkdir(exist_ok=True)
            linked = target.with_name(f"{name}.new")
            subprocess.run(self.build.link(program, [switch], linked, libraries), cwd=self.build.folder, check=True)
            # One that is the same keeps its time, and what was measured of it.
            if target.exists() and filecmp.cmp(linked, target, shallow=False):
                linked.unlink()
            else:
                linked.rename(target)
        print(f"{len(entries)} files with {len(self.all())} mutants built in {time.monotonic() - started:.0f} s", flush=True)

    def linked(self, name):
        return self.work / "simulated" / name


# ---- What is run


@dataclasses.dataclass
class Item:
    """A test of the battery. It returns what has failed, or None."""

    name: str
    run: callable
    seconds: float = 0
    reached: set = dataclasses.field(default_factory=set)


def test_program(mutants, name, filter_, **settings):
    """Cases of a test program on the simulated GPU; with `seed` at other times of its streams."""

    def run_it(timeout, **environment):
        words = [mutants.build.folder / "tests" / TESTS_OF[name] / f"{name}_test", f"--gtest_filter={filter_}", "--gtest_fail_fast"]
        with tempfile.TemporaryDirectory() as folder:
            everything = {
                "SNUG_TEST_DEVICE": "cuda", "SNUG_TEST_SAMPLE": "1", "OMP_NUM_THREADS": "1",
                "LD_LIBRARY_PATH": str(mutants.work / "simulated"),
            } | settings | environment  # fmt: skip
            status, said = run(words, timeout, cwd=folder, **everything)
        if status == 0:
            return None
        return "no end" if status is None else f"{said}\nexit status {status}"

    return Item(f"{name} {filter_}" + "".join(f" {k}={v}" for k, v in settings.items()), run_it)


class Program(simulated_program.Test):
    """The program with mutants; what the CPU's computes is asked for once."""

    cpu_records = {}
    lock = threading.Lock()

    def __init__(self, mutants, folder, timeout, environment):
        super().__init__(mutants.build.folder, ROOT)
        self.gpu, self.folder = mutants.linked("snug"), folder
        self.timeout, self.environment = timeout, environment

    def run(self, program, technique, words, wanted=0, **environment):
        if program != self.cpu:
            return super().run(program, technique, words, wanted, **environment)
        key = (technique, *words)
        with self.lock:
            if key not in self.cpu_records:
                self.cpu_records[key] = super().run(program, technique, words, wanted, **environment)
        return self.cpu_records[key]


def program_run(mutants, name, body):
    def run_it(timeout, **environment):
        with tempfile.TemporaryDirectory() as folder:
            program = Program(mutants, pathlib.Path(folder), timeout, environment)
            try:
                body(program)
            except subprocess.TimeoutExpired:
                return "no end"
            except (AttributeError, KeyError, ValueError) as error:  # of a record that a broken run left
                return f"error: {error}"
            return "\n".join(program.faults) or None

    return Item(f"snug {name}", run_it)


# Beside what the test simulated_program trains: more of the places, by the number of GPUs.
MORE = {
    1: [
        "olmoe: --optimizer_offload cpu --weight_streaming true --expert_streaming true",
        "--optimizer_offload cpu --optimizer_in_backward true --optimizer adafactor",
        "--optimizer_offload disk:.",
    ],
    2: [
        "--mesh tp=2 --lora_r 4 --lora_use_dora true --lora_projection true --lora_mlp true",
        "--mesh tp=2 --sequence_parallel false",
        "olmo2: --mesh tp=2",
        "gpt2: --mesh tp=2 --optimizer sgd",
        "t5: --mesh tp=2",
        "--mesh pp=2 --eval.interval 1 --eval.num_samples 1",
        "olmoe: --mesh ep=2 --eval.interval 2 --eval.num_samples 1",
        "--strategy zero2 --lora_r 4",
        "--strategy fsdp --precision bf16-mixed",
        "--strategy fsdp --optimizer_in_backward true",
        "--strategy zero2 --optimizer_in_backward true --optimizer_offload cpu",
    ],
    4: ["--mesh dp=2,fsdp=2 --strategy fsdp"],
}


def battery(mutants):
    items = [
        test_program(mutants, "simulated", "*"),
        test_program(mutants, "memory", "*"),
        test_program(mutants, "ops", "Changes*:CopyStream*:CutRows*:HostWaits*:Layers*:Projection*"),
        *(test_program(mutants, "property", f) for f in (
            "HostWaits*", "Training.RepeatsToTheBit", "Memory.Plan*:Memory.Refusal*:Memory.Prefetch*:Memory.Updates*",
            "Training.TechniquesAccumulateLikePlain", "Offload*",
        )),
        *(test_program(mutants, "soak", "*", SNUG_SOAK=f"{first}:5") for first in (0, 1000)),
    ]  # fmt: skip
    for devices, techniques in (1, simulated_program.ONE), (2, simulated_program.TWO), (4, simulated_program.FOUR):
        words = ["--devices", str(devices)]
        for technique in techniques + MORE[devices]:
            items.append(program_run(mutants, technique or "plain", lambda p, t=technique, w=words: p.techniques([t], w)))
    for technique in simulated_program.ONE:
        items.append(program_run(mutants, f"{technique or 'plain'}, counted", lambda p, t=technique: p.operations([t])))
    return items


def measure(items, mutants):
    """How long each takes without a mutant, and the places that it comes to; once for the same programs."""
    file, reached = mutants.work / "measured.json", mutants.work / "reached"
    is_old = not file.exists() or file.stat().st_mtime < max(mutants.linked(name).stat().st_mtime for name in LINKED)
    measured = {} if is_old else json.loads(file.read_text())
    for item in items:
        if item.name not in measured:
            reached.write_text("")
            begin = time.monotonic()
            failed = item.run(1200, SNUG_MUTANTS_REACHED=str(reached))
            if failed:
                sys.exit(f"mutants.py: {item.name} fails without a mutant:\n{failed}")
            measured[item.name] = [time.monotonic() - begin, sorted(set(map(int, reached.read_text().split())))]
            file.write_text(json.dumps(measured))
        item.seconds, item.reached = measured[item.name][0], set(measured[item.name][1])
        print(f"{item.seconds:5.1f} s, {len(item.reached):3} places: {item.name}", flush=True)


def caught_by(place, items, seconds):
    """(the item that failed, what it said), or None where none did, of those that take so many seconds together."""
    for item in sorted(items, key=lambda i: i.seconds):
        if place.number not in item.reached:
            continue
        seconds -= item.seconds
        if seconds < 0:
            return None
        failed = item.run(20 + 5 * item.seconds, SNUG_MUTANT=str(place.number))
        if failed:
            return item.name, failed
    return None


def why(said):
    """The line that says most."""
    for sign in ("simulated GPU:", "Failure", "error:", "planned", "losses", "exit status"):
        for line in said.splitlines():
            if sign in line:
                return line.strip()[:160]
    return said.strip()[:160]


def table(results):
    rows = collections.Counter()
    for place, caught, is_reached in results:
        key = (str(pathlib.Path(place.file).parent), place.kind)
        for k in (key, (key[0], "all"), ("all", place.kind), ("all", "all")):
            rows[k, "mutants"] += 1
            rows[k, "caught"] += caught is not None
            rows[k, "not reached"] += not is_reached
    for key in sorted({k for k, _ in rows}):
        print(f"{key[0]:32} {key[1]:16} {rows[key, 'caught']:4} of {rows[key, 'mutants']:4}, {rows[key, 'not reached']} not reached")


def chosen(mutants, options):
    k, n = (int(x) for x in options.share.split("/"))
    named = [p for p in mutants.all() if options.only in p.named()]
    if options.again:
        uncaught = [row["place"] for row in json.loads(options.again.read_text()) if row["caught"] is None]
        named = [p for p in named if any(p.is_of(name) for name in uncaught)]
    return [p for i, p in enumerate(named) if i % n == k % n]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print the mutants and do nothing else")
    parser.add_argument("--check", action="store_true", help="only see whether each rule still finds something")
    parser.add_argument("--conditions", action="store_true", help="mutate conditions and early exits too")
    parser.add_argument("--only", default="", help="mutants whose line (file:line: kind: code) has this")
    parser.add_argument("--again", type=pathlib.Path, help="only those that were not caught in the run of that --json")
    parser.add_argument("--share", default="0/1", metavar="K/N", help="every Nth of them, from the Kth")
    parser.add_argument("--tests", default="", help="show them only tests whose name has this")
    parser.add_argument("--seconds", type=float, default=1000, help="of tests that a mutant is shown to at most, as they take without")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once")
    parser.add_argument("--json", type=pathlib.Path, help="file for the results")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for what is built, of which another run makes only what other sources give")
    options = parser.parse_args()
    if options.check or options.conditions:
        MORE_RULES.extend([conditions, checks])
    if options.check:
        faults = faults_of_rules()
        sys.exit("\n".join(faults) if faults else 0)
    with tempfile.TemporaryDirectory() as folder:
        work = (options.keep or pathlib.Path(folder)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        mutants = Mutants(Build(options.build.resolve()), work)
        if options.list:
            print("\n".join(p.named() for p in chosen(mutants, options)))
            return
        mutants.make()
        items = [item for item in battery(mutants) if options.tests in item.name]
        measure(items, mutants)
        results = []

        def tried(place):
            begin = time.monotonic()
            caught = caught_by(place, items, options.seconds)
            is_reached = any(place.number in item.reached for item in items)
            results.append((place, caught, is_reached))
            said = f"caught by {caught[0]}: {why(caught[1])}" if caught else "passes" if is_reached else "not reached"
            print(f"{place.named()}: {said} ({time.monotonic() - begin:.0f} s)", flush=True)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(tried, chosen(mutants, options)))
        table(results)
        if options.json:
            options.json.write_text(json.dumps([
                {"place": p.named(), "kind": p.kind, "file": p.file, "caught": c[0] if c else None, "reached": r, "why": why(c[1]) if c else ""}
                for p, c, r in results
            ], indent=1))  # fmt: skip
        caught = sum(c is not None for _, c, _ in results)
        sys.exit(0 if caught >= 0.95 * len(results) else 1)


if __name__ == "__main__":
    main()
