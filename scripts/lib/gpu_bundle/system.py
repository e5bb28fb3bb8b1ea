# SPDX-License-Identifier: Apache-2.0
"""Does the whole do what it says? Plans beside what the device gives, technique by technique; budgets that
refuse; offloads with and without overlap; a run that is killed and goes on; two runs beside each other."""

import dataclasses

from .runner import Part
from .training import Shape, largest_difference, options_of, read_record, train

ALLOCATED_WITHIN, RESERVED_WITHIN = 0.01, 0.03  # of the plan

SMALL = {"cuda": Shape("recipes/models/smollm2-135m.json", 4, 512),
         "cpu": Shape("tests/data/parity/llama/config.json", 2, 32)}
# Large enough that copies take time, small enough that its weights are there in seconds.
LARGE = {"cuda": Shape("recipes/models/tiny-llama.json", 4, 1024),
         "cpu": Shape("tests/data/parity/llama/config.json", 2, 32)}
STEPS = 4


@dataclasses.dataclass(frozen=True)
class Technique:
    name: str
    options: str = ""
    precision: str = "bf16-true"
    command: str = "finetune_full"
    same_losses: bool = True  # as plain training of that precision; the others train something else


TECHNIQUES = [
    Technique("plain"),
    Technique("checkpointing-all", "--activation_checkpointing all"),
    Technique("checkpointing-selective", "--activation_checkpointing selective"),
    Technique("activation-offload", "--activation_offload"),
    Technique("optimizer-in-backward", "--optimizer_in_backward true"),
    Technique("optimizer-offload", "--optimizer_offload cpu"),
    Technique("weight-streaming", "--optimizer_offload cpu --weight_streaming"),
    Technique("lora", "--lora_r 16 --lora_dropout 0", command="finetune_lora", same_losses=False),
    Technique("qlora-nf4", "--lora_r 16 --lora_dropout 0 --quantize bnb.nf4", command="finetune_lora",
              same_losses=False),
    Technique("adamw-8bit", "--optimizer adamw_8bit --optimizer.lr 2e-5", same_losses=False),
    Technique("bf16-mixed", precision="bf16-mixed", same_losses=False),
    Technique("16-mixed", precision="16-mixed", same_losses=False),
    Technique("32-true", precision="32-true", same_losses=False),
    Technique("accumulation", "--train.micro_batch_size 1"),
    Technique("cuda-graphs", "--cuda_graphs true"),
    Technique("all-offloads",
              "--activation_checkpointing all --activation_offload --optimizer_offload cpu --weight_streaming"),
    Technique("checkpointing-in-backward-8bit",
              "--activation_checkpointing all --optimizer_in_backward true --optimizer adamw_8bit "
              "--optimizer.lr 2e-5", same_losses=False),
]
LR = ["--optimizer.lr", "2e-5"]

# Where the same sums are added in another order: of the loss, in bfloat16. Flash attention's backward adds
# in no fixed order at all.
LOSSES_WITHIN = 2.0**-8


def compare_plan(job, name, run):
    """Planned beside measured, a figure and perhaps a fault."""
    figures = {"technique": name, "step_seconds": run.seconds, "losses": run.losses}
    for what, within in (("allocated", ALLOCATED_WITHIN), ("reserved", RESERVED_WITHIN)):
        planned, measured = run.memory("predicted", what), run.memory("measured", what)
        figures[what] = measured
        if not job.place.on_gpu and what == "reserved":
            continue  # of a GPU alone
        figures[f"{what}_planned"] = planned
        if not planned:
            job.check(False, f"{name}: nothing was planned")
            continue
        off = measured / planned - 1
        figures[f"{what}_off"] = off
        job.check(abs(off) <= within, f"{name}: {measured} B {what}, {planned} planned, {100 * off:+.2f} % off")
    job.figure(**figures)


def technique_part(technique):
    def run(job):
        shape = dataclasses.replace(SMALL[job.place.device], precision=technique.precision)
        trained = train(job, "run", shape, STEPS, *LR, *technique.options.split(), command=technique.command)
        compare_plan(job, technique.name, trained)
        plain = job.place.shared.setdefault("plain", trained)  # the first part's
        if technique.same_losses:
            compare_losses(job, technique.name, plain, trained)

    return Part(technique.name, 40, run)


def compare_losses(job, name, plain, run, within=LOSSES_WITHIN):
    difference = largest_difference(plain.losses, run.losses)
    job.figure(losses_of=name, difference=difference, same_bits=plain.losses == run.losses)
    job.check(difference <= within, f"{name}: losses are {difference:.2g} from those of plain training")


OFFLOADS = {"nothing": "",
            "activations": "--activation_offload",
            "optimizer": "--optimizer_offload cpu",
            "weights": "--optimizer_offload cpu --weight_streaming"}


def offload_part(name, options):
    """With copies ahead of their use, and without: the difference is what the overlap hides."""

    def run(job):
        shape = LARGE[job.place.device]
        seconds = {}
        for prefetch in ("true", "false") if options else ("auto",):
            label = f"{name}, prefetch {prefetch}"
            trained = train(job, prefetch, shape, STEPS, *LR, *options.split(), "--offload_prefetch", prefetch)
            seconds[prefetch] = trained.seconds
            compare_plan(job, label, trained)
            plain = job.place.shared.setdefault("nothing offloaded", trained)
            compare_losses(job, label, plain, trained)
        job.figure(offload=name, step_seconds=seconds, step_seconds_without=plain.seconds)

    return Part(f"offload-{name}", 60, run)


def budgets(job):
    """A plan that does not fit is refused before anything is done; --force gets as far as the allocator lets it.
    Both end with 3 and say in run.json what was missing. A budget that fits changes nothing."""
    shape = SMALL[job.place.device]
    free = train(job, "free", shape, STEPS, *LR)
    driver = 600 << 20 if job.place.on_gpu else 0
    peak = free.memory("measured", "reserved" if job.place.on_gpu else "allocated")
    for name, budget, options, code in (
            ("refused", int(0.7 * peak) + driver, [], 3),
            ("forced", int(0.7 * peak) + driver, ["--force"], 3),
            ("enough", int(1.15 * peak) + (1 << 30 if job.place.on_gpu else 0), [], 0)):
        run = train(job, name, shape, STEPS, *LR, "--memory_budget", budget, *options, ok=(0, 3))
        missing = run.record.get("out_of_memory")
        job.figure(budget=name, bytes=budget, code=run.code, outcome=run.record["outcome"],
                   phase=missing and missing["phase"], missing=missing and missing["missing"],
                   suggestions=missing and [s["options"] for s in missing["suggestions"]],
                   measured=run.memory("measured", "allocated"))
        job.check(run.code == code, f"a budget that is {name} ended with {run.code}")
        if code == 3:
            job.check(run.record["outcome"] == "oom", f"{name}: run.json says {run.record['outcome']}")
            continue
        compare_losses(job, "with a budget", free, run)


def resume(job):
    """A run is killed after its second checkpoint, as a machine is that goes away, and goes on."""
    shape, steps = SMALL[job.place.device], 8
    saving = [*LR, "--train.save_interval", "2"]
    whole = train(job, "whole", shape, steps, *saving)
    folder = job.folder / "killed"
    job.command([*options_of(job, shape, steps), "--out_dir", folder, *saving],
                env=job.place.environment(), ok=None, stop=lambda: (folder / "step-000004").exists())
    saved = sorted(path.name for path in folder.glob("step-*"))
    job.figure(checkpoints_at_the_kill=saved, outcome=read_record(folder)["outcome"])
    run = train(job, "killed", shape, steps, *saving, "--resume", "auto")
    job.figure(resumptions=run.record["resumptions"], losses=run.losses)
    job.check(run.record["resumptions"], "the killed run started afresh")
    compare_losses(job, "killed and resumed", whole, run)


def repeat(job):
    """The same twice: equal bits but for flash attention's backward, whose sums have no order."""
    shape = SMALL[job.place.device]
    for precision in ("bf16-true", "32-true"):
        first, second = (train(job, f"{precision}-{i}", dataclasses.replace(shape, precision=precision), 8, *LR)
                         for i in range(2))
        job.figure(precision=precision, losses=first.losses, again=second.losses)
        compare_losses(job, f"{precision} again", first, second)


def host_memory(job):
    """Page-locked memory: how much the machine grants, since offloads live in it."""
    limits = job.command(["bash", "-c", "ulimit -l; ulimit -v; cat /proc/meminfo | head -n 3; df -h /dev/shm /tmp"],
                         ok=None)
    job.figure(limits=limits.output.split("\n"))


FIRST = 4  # techniques before the other parts: what is most used

PARTS = [
    Part("host", 10, host_memory),
    *map(technique_part, TECHNIQUES[:FIRST]),
    Part("resume", 80, resume),
    Part("budgets", 70, budgets),
    *map(technique_part, TECHNIQUES[FIRST:]),
    *(offload_part(name, options) for name, options in OFFLOADS.items()),
    Part("repeat", 70, repeat),
]
