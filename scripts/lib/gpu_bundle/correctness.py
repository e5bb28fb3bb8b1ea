# SPDX-License-Identifier: Apache-2.0
"""Is what the GPU computes right? The machine and its libraries, five training steps beside the CPU's, the
test programs with their tensors on the device, and NVIDIA's checkers over our kernels."""

import dataclasses
import json
import math
import os
import platform
import re
import shutil

from . import tests, tools
from .place import has_driver, nvidia_folders, torch_version
from .runner import Failed, OutOfTime, Part
from .training import Shape, largest_difference, train

PROGRAMS = ["snug", "ops_test", "optim_test", "memory_test", "parity_test", "property_test", "device_bench"]

# A property may be hundreds of small runs, ten seconds on a CPU; on a GPU each waits for the start of its kernels.
PROPERTY_HUNG_SECONDS = 60

# Under NVIDIA's checkers; the shorter program first, whose time left goes to the other. Of our kernels alone:
# libtorch's are NVIDIA's and PyTorch's business, and make a checker take minutes.
OUR_KERNELS = "--kernel-name=kernel_substring=snug"
CHECKED_TESTS = {
    "optim_test": "*OptimizerPairTest*",
    "ops_test": "*DevicePairTest*:*CrossEntropy*:*Quantized*",
}
# initcheck takes what a kernel wrote for written only where it watched that kernel, so it has to watch all. Hence
# these few: their kernels read what was uploaded, and what our own and simple ones of libtorch wrote, never results
# of cuBLAS or CUB, whose scratch it complains about.
INITIALIZED_TESTS = {
    "optim_test": ":".join(f"*OptimizerPairTest.StepsLikeTheCpu/{name}"
                           for name in ("AdamW", "AdamW8bit", "Adafactor", "Lion", "Sgd")),
    "ops_test": ":".join(["Quantized.RowsAreThoseOfTheWhole",
                          *(f"*DevicePairTest.*/{name}" for name in ("*Norm", "ImagePatches", "OddDropout",
                                                                     "SumOfSquares"))]),
}
CHECKED_HUNG_SECONDS = 40

# A random model's loss is the mean over some hundred tokens of numbers near ln(vocabulary).
LOSS_SHAPE = {"cuda": Shape("recipes/models/smollm2-135m.json", 2, 128, "32-true"),
              "cpu": Shape("tests/data/parity/llama/config.json", 2, 32, "32-true")}
STEPS = 5


def machine(job):
    smi = shutil.which("nvidia-smi")
    gpu = None
    if smi:
        query = "name,driver_version,compute_cap,memory.total,memory.used,power.limit,clocks.max.sm,clocks.max.memory"
        gpu = job.command([smi, f"--query-gpu={query}", "--format=csv"]).output.splitlines()
        job.command([smi], ok=None)
    place = job.place
    job.figure(gpu=gpu, driver=has_driver(), torch=str(place.torch), torch_version=torch_version(place.torch),
               nvidia=[str(folder) for folder in nvidia_folders(place.torch)], system=platform.platform(),
               libc=" ".join(platform.libc_ver()), python=platform.python_version(), processors=os.cpu_count(),
               memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
               tools={name: place.tool(name) for name in ("compute-sanitizer", "ncu", "nsys")})
    job.check(not place.on_gpu or has_driver(), "there is no NVIDIA driver here")


def libraries(job):
    """Files that no program finds, which is quick; then every symbol of the one program that takes them all, also
    those that are looked for only when they are called: that reads gigabytes."""
    for name in PROGRAMS:
        if job.place.program(name) is None:
            job.check(name != "snug", f"the bundle has no {name}")
            job.figure(program=name, missing_from_bundle=True)
        else:
            check_libraries(job, name)
    check_libraries(job, "snug", "-r")


def check_libraries(job, name, *options):
    """The driver's own library is loaded by hand, so ldd does not ask for it."""
    try:
        job.command(["ldd", *options, job.place.program(name)], env=job.place.environment(), ok=None)
    finally:  # what it got to counts
        missing = [line.strip() for line in job.output().splitlines()
                   if "not found" in line or "undefined symbol" in line]
        job.figure(program=name, ldd=options, missing=missing)
        job.check(not missing, f"{name}: {', '.join(missing[:3])}")


def doctor(job):
    finished = job.command([job.place.program("snug"), "doctor", "--json"], env=job.place.environment(), ok=(0, 2))
    start = finished.output.find("{")
    facts = json.loads(finished.output[start:])
    job.figure(doctor=facts)
    lacking = [f"{f['subject']}: {f['found']}" for f in facts["findings"] if f["level"] != "ok"]
    job.figure(notes=lacking)
    cuda = [f for f in facts["findings"] if f["subject"] in ("driver", "CUDA")]
    if job.place.on_gpu:
        for finding in cuda:
            job.check(finding["level"] != "missing", f"{finding['subject']}: {finding['found']}")


def float32_tolerance(config, shape, step):
    """Each sum of K products differs by about sqrt(K) 2^-24 from device to device, L layers add up as the root of
    their number, and every step builds on the weights of the one before. K is the longest sum there is."""
    longest = max(config["hidden_size"], config["intermediate_size"], config["vocab_size"],
                  shape.batch * shape.tokens)
    return (step + 1) * math.sqrt(longest * config["num_hidden_layers"]) * 2.0**-24


def bfloat16_tolerance(config):
    """Each layer rounds its result to 8 bits, independently of the others."""
    return math.sqrt(config["num_hidden_layers"]) * 2.0**-9


# SGD: AdamW's first update is the sign of a gradient, which rounding turns over where it is near 0.
LOSS_CASES = [("32-true", "sgd", "0.01"), ("bf16-true", "sgd", "0.01"), ("bf16-mixed", "sgd", "0.01"),
              ("32-true", "adamw", "1e-5")]


def losses_part(precision, optimizer, lr):
    def run(job):
        shape = dataclasses.replace(LOSS_SHAPE[job.place.device], precision=precision)
        config = json.loads(job.place.source(shape.config).read_text())
        options = ["--optimizer", optimizer, "--optimizer.lr", lr]
        if has_option(job, "--matmul_precision"):
            options += ["--matmul_precision", "highest"]
        # Without a GPU the CPU is compared with itself.
        cpu = train(job, "cpu", shape, STEPS, *options, device="cpu")
        device = train(job, "device", shape, STEPS, *options)
        job.figure(precision=precision, optimizer=optimizer, cpu=cpu.losses, device=device.losses)
        job.check(largest_difference(cpu.losses, device.losses) < math.inf, "a loss is no number")
        for step, (one, other) in enumerate(zip(cpu.losses, device.losses)):
            apart = abs(one - other) / abs(one)
            allowed = float32_tolerance(config, shape, step) if precision == "32-true" else bfloat16_tolerance(config)
            job.figure(step=step + 1, apart=apart, allowed=allowed)
            job.check(apart <= allowed, f"step {step + 1}: {other} on {job.place.device}, {one} on the CPU: "
                                        f"{apart:.2g} apart, {allowed:.2g} allowed")

    return Part(f"losses-{precision}-{optimizer}", 60, run)


def has_option(job, option):
    """Of the program in this bundle, which may be older than this file's wishes."""
    if "help" not in job.place.shared:
        job.place.shared["help"] = job.command([job.place.program("snug"), "finetune_full", "--help",
                                                "all"],
                                               env=job.place.environment(), ok=None).output
    return option in job.place.shared["help"]


def test_program(name, hung_seconds=tests.HUNG_SECONDS):
    def run(job):
        tests.run(job, name, hung_seconds=hung_seconds)

    return run


def sanitizer(kind, checked, *options, **settings):
    """NVIDIA's checker over tests that run our kernels. Each program has its share of the time."""

    def run(job):
        # libtorch asks the driver for functions that it may not have, so errors of calls are no findings; those of
        # our launches are errors of the tests.
        tool = tools.find(job, "compute-sanitizer", f"--tool={kind}", "--report-api-errors=no", "--print-limit=20",
                          "--error-exitcode=9", "--launch-timeout=60", "--target-processes=all", *options, **settings)
        late = None
        for done, (program, filters) in enumerate(checked.items()):
            try:
                check_program(job, tool, kind, program, filters, job.left() / (len(checked) - done))
            except Failed as reason:
                job.check(False, f"{kind}: {reason}")
            except OutOfTime as reason:
                late = reason
        if late:
            raise late

    return run


# Where a finding is: "at void snug::kernels::…" below it, or in its own line.
PLACE = re.compile(r"^=+ +((?:at|Uninitialized access at) .*|(?:Error|Warning): Race reported .*)$", re.M)


def check_program(job, tool, kind, program, filters, seconds):
    try:
        _, output = tests.run(job, program, filters, seconds, CHECKED_HUNG_SECONDS, tool)
    except (Failed, OutOfTime):
        note_findings(job, kind, program, job.output())
        raise
    job.check(note_findings(job, kind, program, output), f"{kind} over {program} gave no summary")


def note_findings(job, kind, program, output):
    """-> the checker's summaries, of which one that was killed gives none."""
    summaries = [line.strip("= ") for line in output.splitlines() if "SUMMARY:" in line]
    places = list(dict.fromkeys(place[:300] for place in PLACE.findall(output)))
    job.figure(tool=kind, program=program, summary=summaries, places=places[:10])
    clean = all(" 0 errors" in line or " 0 hazards" in line for line in summaries) and (summaries or not places)
    job.check(clean, f"{kind} over {program}: {'; '.join(summaries + places[:1])}")
    return summaries


# A tensor is a block of its own, so that one that is written past its end is noticed.
OWN_BLOCKS = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}

PARTS = [
    Part("machine", 20, machine),
    Part("libraries", 60, libraries),
    Part("doctor", 30, doctor),
    *(losses_part(*case) for case in LOSS_CASES[:2]),
    Part("operators", 90, test_program("ops_test")),
    Part("optimizers", 60, test_program("optim_test")),
    Part("memory", 30, test_program("memory_test")),
    Part("parity", 90, test_program("parity_test")),
    Part("memcheck", 90, sanitizer("memcheck", CHECKED_TESTS, OUR_KERNELS, "--padding=512", **OWN_BLOCKS)),
    Part("racecheck", 70, sanitizer("racecheck", CHECKED_TESTS, OUR_KERNELS)),
    *(losses_part(*case) for case in LOSS_CASES[2:]),
    Part("properties", 150, test_program("property_test", PROPERTY_HUNG_SECONDS)),
    Part("initcheck", 60, sanitizer("initcheck", INITIALIZED_TESTS, **OWN_BLOCKS)),
]
