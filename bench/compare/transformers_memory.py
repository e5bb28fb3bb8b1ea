# SPDX-License-Identifier: Apache-2.0
"""Bytes that transformers' Trainer takes for small models, measured on a CPU.

Each case is a recipe: transformers' own model with random weights, peft's adapters, its Trainer with the
optimizer that the recipe names, two steps. PyTorch's profiler reports every allocation and release of its
CPU allocator; the sum is what is live. This is what `snug plan --like transformers` is held against, with
the CPU's kernels in place of a GPU's (tests/data/plan/transformers_memory.jsonl). Prints one line of JSON a
case: `peak`, the most that is live in forward, backward and update, and `after_forward`, what is live
when the last forward ends.

With `ranks` of 2 two processes train it with DDP or FSDP2, as accelerate sets them up, over gloo; the line is that of
rank 0. DeepSpeed's ZeRO and FSDP2's CPU offload run as rank 0 alone, as if the others were there. Their peak counts
from the first forward on, since a CPU holds the whole model while it is sharded.

DeepSpeed and Liger are no part of requirements.txt: `pip install deepspeed liger-kernel`. Liger's kernels need a GPU. What they allocate is decided by the Python around them, which is what runs here, with
kernels that do nothing: sizes are true, losses are not.
"""

import argparse
import contextlib
import gc
import importlib.metadata
import json
import os
import tempfile

import accelerate
import torch
import transformers
from torch.profiler import ProfilerActivity, profile, record_function

FORWARD, TRAINING = "a forward", "the training"


def without_kernels():
    """Triton's interpreter, which needs no GPU, with nothing to interpret."""
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime import interpreter

    interpreter.GridExecutor.__call__ = lambda *args, **kwargs: None


def fsdp_on_a_cpu():
    """accelerate asks for FSDP where there is a GPU; its wrapping itself runs anywhere."""
    from accelerate import state

    class Types:
        def __getattr__(self, name):
            return getattr(accelerate.DistributedType, "MULTI_CPU" if name == "MULTI_NEURON" else name)

    state.DistributedType = Types()


def without_pinned_memory():
    """Which a machine without a GPU does not have."""
    from torch.distributed import fsdp

    fsdp.CPUOffloadPolicy.__init__.__defaults__ = (False,)


def on_a_cpu_without_compiling():
    """DeepSpeed compiles collectives of its own for a CPU; gloo's serve."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed.comm.torch

    deepspeed.comm.torch.build_shm_op = lambda: None


def alone_among(ranks):
    """This process as the first of several, the others of which are not there: collectives return at once. gloo frees
    in threads of its own, which are not in the profile."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)


def forget_last_work():
    """Each of gloo's threads holds the tensors of its last collective, here a small one."""
    if torch.distributed.is_initialized():
        for _ in range(8):
            torch.distributed.all_reduce(torch.zeros(1))


class Trainer(transformers.Trainer):
    """Marks forwards, for the profile."""

    def compute_loss(self, *args, **kwargs):
        forget_last_work()
        with record_function(FORWARD):
            return super().compute_loss(*args, **kwargs)


def rows(case):
    """As many rows as two steps read. Where they differ in length, the batch is padded and has a mask."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for index in range(2 * case["accumulate"] * case["batch"] * case.get("ranks", 1)):
        ids = torch.randint(3, case["model"]["vocab_size"], (case["tokens"],), generator=generator)
        mask = torch.ones_like(ids)
        if case["padded"] and index % case["batch"]:
            mask[case["tokens"] // 2 :] = 0
        made.append({"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)})
    return made


def random_model(case):
    config = transformers.AutoConfig.for_model(**case["model"])
    dtype = torch.float32 if case["precision"] != "bf16-true" else torch.bfloat16
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


def quantized(case, folder):
    """That of the folder in 4 or 8 bits, prepared as peft's guide says: what is not quantized in float32."""
    import peft

    options = transformers.BitsAndBytesConfig(
        load_in_8bit=case["quantize"] == "bnb.int8", load_in_4bit=case["quantize"] != "bnb.int8",
        bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_use_double_quant=case["quantize"].endswith("-dq"),
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=options, dtype="auto", device_map="cpu")
    for weight in model.parameters():  # mapped from the file as they are
        if weight.is_floating_point():
            weight.data = weight.data.clone()
    return peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=case["checkpointing"])


def build(case, folder):
    model = quantized(case, folder) if case["quantize"] else random_model(case)
    if not case["lora"]:
        return model
    import peft

    return peft.get_peft_model(model, peft.LoraConfig(
        r=case["lora"]["r"], lora_alpha=16, lora_dropout=case["lora"]["dropout"], task_type="CAUSAL_LM",
        target_modules=case["lora"]["targets"], use_dora=case["lora"].get("dora", False),
    ))


def arguments(case, folder):
    optimizer = {"adamw": "adamw_torch_fused", "sgd": "sgd", "adamw_8bit": "adamw_bnb_8bit"}[case["optimizer"]]
    return transformers.TrainingArguments(
        output_dir=folder, max_steps=2, per_device_train_batch_size=case["batch"],
        gradient_accumulation_steps=case["accumulate"], gradient_checkpointing=case["checkpointing"],
        bf16=case["precision"] == "bf16-mixed" or uses_deepspeed(case) and case["precision"] != "32-true",
        optim=optimizer, use_cpu=True, report_to="none",
        save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
        use_liger_kernel=case.get("liger", False), **sharding(case),
    )


def sharding(case):
    """Arguments of a case for several processes."""
    kind = case.get("sharding")
    if kind is None:
        return {}
    more = dict(ddp_backend="gloo")
    if uses_deepspeed(case):
        return more | dict(deepspeed=deepspeed(case))
    if kind != "ddp":
        fsdp_on_a_cpu()
        without_pinned_memory()
        more |= dict(fsdp=True, fsdp_config=dict(
            version=2, reshard_after_forward=kind == "fsdp", cpu_offload=case.get("offload", False)))
    return more


def uses_deepspeed(case):
    return case.get("sharding", "").startswith("zero")


def is_alone(case):
    """Where two processes would come out differently from run to run."""
    return uses_deepspeed(case) or case.get("offload", False)


def deepspeed(case):
    """What its recipes have in common: the Trainer's numbers, buckets by the model's width."""
    on_a_cpu_without_compiling()
    stage = int(case["sharding"][-1])
    settings = dict(stage=stage, reduce_bucket_size="auto")
    if stage == 3:
        settings |= dict(stage3_prefetch_bucket_size="auto", stage3_param_persistence_threshold="auto")
    numbers = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    return dict.fromkeys(numbers, "auto") | dict(
        zero_optimization=settings | case.get("zero", {}), bf16=dict(enabled="auto"))


def measure(profiler, sharded):
    """Live bytes at their highest within the training, and right after the last forward."""
    live = peak = after_forward = 0
    events = profiler.profiler.kineto_results.events()
    spans = {name: [e for e in events if e.name() == name] for name in (FORWARD, TRAINING)}
    start = min(e.start_ns() for e in spans[FORWARD if sharded else TRAINING])
    last = max(e.start_ns() + e.duration_ns() for e in spans[FORWARD])
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    for when, change in sorted(changes, key=lambda pair: pair[0]):
        live += change
        if when >= start:
            peak = max(peak, live)
        if when <= last:
            after_forward = live
    return {"peak": peak, "after_forward": after_forward}


def train(case):
    data = rows(case)
    if is_alone(case):
        alone_among(case["ranks"])
    if case.get("liger"):
        without_kernels()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nothing, \
            contextlib.redirect_stdout(nothing):
        if case["quantize"]:
            random_model(case).save_pretrained(folder)
            gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            torch.manual_seed(1)
            model = build(case, folder)
            trainer = Trainer(model=model, args=arguments(case, folder), train_dataset=data)
            with record_function(TRAINING):
                trainer.train()
    return measure(profiler, "sharding" in case)


def model(kind, layers, width, heads, groups, inner, vocabulary, **more):
    return dict(
        model_type=kind, num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
        num_key_value_heads=groups, intermediate_size=inner, vocab_size=vocabulary,
        max_position_embeddings=1024, tie_word_embeddings=False, **more,
    )


MODELS = {
    "llama": model("llama", 4, 256, 4, 4, 704, 4000),
    "llama-gqa": model("llama", 6, 256, 8, 2, 768, 2000),
    "llama-tied": model("llama", 3, 192, 3, 3, 512, 8000) | {"tie_word_embeddings": True},
    "mistral": model("mistral", 4, 256, 8, 4, 896, 3000, sliding_window=None),
    "qwen2": model("qwen2", 4, 224, 7, 1, 608, 6000),
    "qwen3": model("qwen3", 5, 192, 4, 2, 576, 4000, head_dim=64),
}
FAMILIES = {
    "gemma2": model("gemma2", 3, 192, 4, 2, 512, 4000, head_dim=64, sliding_window=128) | {"tie_word_embeddings": True},
    "gemma3": model("gemma3_text", 6, 192, 4, 1, 640, 5000, head_dim=64, sliding_window=128)
    | {"tie_word_embeddings": True},
    "phi3": model("phi3", 4, 256, 4, 2, 704, 4000, sliding_window=None, pad_token_id=0),
    "granite": model("granite", 4, 256, 8, 2, 640, 3000, embedding_multiplier=12.0, residual_multiplier=0.22,
                     logits_scaling=8.0, attention_multiplier=0.1),
    "olmo2": model("olmo2", 4, 224, 7, 7, 608, 4000, pad_token_id=0),
    "smollm3": model("smollm3", 4, 256, 4, 2, 704, 3000, pad_token_id=0),
    "gpt_neox": dict(model_type="gpt_neox", num_hidden_layers=4, hidden_size=256, num_attention_heads=4,
                     intermediate_size=1024, vocab_size=4000, max_position_embeddings=1024,
                     tie_word_embeddings=False),
    "stablelm": model("stablelm", 4, 256, 4, 2, 704, 4000),
}
EXPERTS = {
    "mixtral": model("mixtral", 3, 192, 4, 2, 384, 3000, num_local_experts=6, num_experts_per_tok=2),
    "qwen3_moe": model("qwen3_moe", 3, 192, 4, 2, 512, 4000, head_dim=64, num_experts=8, num_experts_per_tok=3,
                       moe_intermediate_size=160, norm_topk_prob=True, decoder_sparse_step=2),
    "olmoe": model("olmoe", 3, 192, 4, 4, 160, 3000, num_experts=8, num_experts_per_tok=2, pad_token_id=0),
}
SIZES = [(2, 256, 1), (4, 128, 2), (1, 512, 3)]  # micro-batch, tokens, accumulated
PRECISIONS = ["32-true", "bf16-true", "bf16-mixed"]


EVERYTHING = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def lora(r=16, dropout=0.0, targets=EVERYTHING):
    return dict(r=r, dropout=dropout, targets=targets)


DORA = dict(dora=True)

# Changes to the plain recipe, each made to every model.
TECHNIQUES = [
    dict(),
    dict(checkpointing=True),
    dict(padded=True),
    dict(lora=lora()),
    dict(lora=lora(8, 0.05, ["q_proj", "v_proj"])),
    dict(lora=lora(), checkpointing=True),
    dict(optimizer="sgd"),
    dict(optimizer="adamw_8bit"),
    dict(lora=lora(), quantize="bnb.nf4"),
    dict(lora=lora(8, 0.05), quantize="bnb.nf4-dq", checkpointing=True),
]


MORE_TECHNIQUES = [
    dict(lora=lora(), quantize="bnb.int8"),
    dict(lora=lora(8, 0.05), quantize="bnb.int8", checkpointing=True),
    dict(lora=lora() | DORA),
    dict(lora=lora(8, 0.05) | DORA, checkpointing=True),
    dict(lora=lora() | DORA, quantize="bnb.nf4"),
]


FAMILY_TECHNIQUES = [
    dict(),
    dict(checkpointing=True),
    dict(padded=True, optimizer="adamw_8bit"),
    dict(lora=lora(16, 0.0, "all-linear")),
    dict(lora=lora(8, 0.05, "all-linear"), quantize="bnb.nf4", checkpointing=True),
]

LIGER = dict(liger=True)
LIGER_TECHNIQUES = [
    dict() | LIGER,
    dict(checkpointing=True, optimizer="sgd") | LIGER,
    dict(lora=lora(16, 0.0, "all-linear"), padded=True) | LIGER,
]


SEVERAL = ["llama", "llama-gqa", "llama-tied", "qwen2"]
SHARDED_TECHNIQUES = [
    change | dict(ranks=2, sharding=kind)
    for kind in ("ddp", "fsdp", "fsdp-grad-op")
    for change in (
        dict(), dict(checkpointing=True), dict(lora=lora()), dict(padded=True, optimizer="sgd"),
        dict(lora=lora(8, 0.05), checkpointing=True),
    )
]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
EXPERT_TECHNIQUES = [
    dict(),
    dict(checkpointing=True),
    dict(optimizer="sgd"),
    dict(padded=True, optimizer="adamw_8bit"),
    dict(lora=lora(16, 0.0, ATTENTION)),
    dict(lora=lora(8, 0.05, ATTENTION), quantize="bnb.nf4", checkpointing=True),
    dict(ranks=2, sharding="fsdp"),
]

DEEPSPEED_TECHNIQUES = [
    change | dict(ranks=2, sharding=kind)
    for kind in ("zero1", "zero2", "zero3")
    for change in (
        dict(), dict(checkpointing=True), dict(lora=lora()), dict(padded=True, optimizer="sgd"),
        dict(lora=lora(8, 0.05), checkpointing=True),
        dict(zero=dict(reduce_bucket_size=200000, overlap_comm=True)),
    )
    # What is counted of these is 4 to 6 % below what they take, of which the cause is not known.
    if kind != "zero3" or not (change.get("lora") and change.get("checkpointing"))
]
GATHERED = dict(stage3_max_live_parameters=1000000, stage3_max_reuse_distance=300000, sub_group_size=700000)
MORE_DEEPSPEED_TECHNIQUES = [
    dict(ranks=2, sharding="zero2", lora=lora(), quantize="bnb.nf4"),
    # Kernels that do nothing make no gradients that an update would be made with.
    dict(ranks=2, sharding="zero3", optimizer="sgd") | LIGER,
    dict(ranks=2, sharding="zero3", checkpointing=True, zero=GATHERED),
    dict(ranks=2, sharding="zero3", lora=lora(), zero=GATHERED),
]

HOST = dict(device="cpu")
ON_HOST = dict(offload_optimizer=HOST)
WEIGHTS_ON_HOST = dict(offload_param=HOST)
OFFLOADED_TECHNIQUES = [
    change | dict(ranks=2, sharding=kind, zero=ON_HOST)
    for kind in ("zero1", "zero2", "zero3")
    for change in (dict(), dict(checkpointing=True), dict(lora=lora()))
] + [
    dict(ranks=2, sharding="zero2", padded=True, optimizer="sgd", zero=ON_HOST),
    dict(ranks=2, sharding="zero2", zero=ON_HOST | dict(reduce_bucket_size=200000, overlap_comm=True)),
    dict(ranks=2, sharding="zero3", zero=WEIGHTS_ON_HOST),
    dict(ranks=2, sharding="zero3", zero=ON_HOST | WEIGHTS_ON_HOST),
    dict(ranks=2, sharding="zero3", lora=lora(), zero=ON_HOST | WEIGHTS_ON_HOST),
    dict(ranks=2, sharding="zero3", checkpointing=True, zero=ON_HOST | WEIGHTS_ON_HOST | GATHERED),
]

IN_HOST_GROUPS = dict(zero_hpz_partition_size=2)
HPZ_TECHNIQUES = [
    change | dict(ranks=4, sharding="zero3")
    for change in (
        dict(zero=IN_HOST_GROUPS), dict(zero=IN_HOST_GROUPS, lora=lora()),
        dict(zero=IN_HOST_GROUPS | GATHERED, checkpointing=True),
        dict(zero=IN_HOST_GROUPS | ON_HOST | WEIGHTS_ON_HOST, lora=lora()),
    )
]

FSDP_OFFLOADED_TECHNIQUES = [
    change | dict(ranks=2, sharding="fsdp", offload=True)
    for change in (dict(), dict(checkpointing=True), dict(lora=lora()))
]

MORE_SHARDED_TECHNIQUES = [
    change | dict(ranks=2, sharding=kind)
    for kind in ("ddp", "fsdp")
    for change in (dict(lora=lora(), quantize="bnb.nf4"), dict() | LIGER)
]


def cases():
    yield from combinations(MODELS, TECHNIQUES)
    yield from combinations(MODELS, MORE_TECHNIQUES)
    yield from combinations(FAMILIES, FAMILY_TECHNIQUES)
    by_liger = [name for name in MODELS | FAMILIES if name not in ("granite", "phi3", "gpt_neox", "stablelm")]
    yield from combinations(by_liger, LIGER_TECHNIQUES)
    yield from combinations(SEVERAL, SHARDED_TECHNIQUES)
    yield from combinations(SEVERAL[:2], MORE_SHARDED_TECHNIQUES)
    yield from combinations(EXPERTS, EXPERT_TECHNIQUES)
    yield from combinations(SEVERAL, DEEPSPEED_TECHNIQUES)
    yield from combinations(SEVERAL[:3], MORE_DEEPSPEED_TECHNIQUES)
    yield from combinations(list(EXPERTS)[:2], [dict(ranks=2, sharding="zero3")])
    yield from combinations(SEVERAL, OFFLOADED_TECHNIQUES)
    yield from combinations(SEVERAL, HPZ_TECHNIQUES)
    yield from combinations(SEVERAL, FSDP_OFFLOADED_TECHNIQUES)


def combinations(models, techniques):
    """Every model with every technique, sizes and precisions in turn."""
    plain = dict(optimizer="adamw", checkpointing=False, padded=False, lora=None, quantize=None)
    for row, change in enumerate(techniques):
        for column, name in enumerate(models):
            batch, tokens, accumulate = SIZES[(row + column) % len(SIZES)]
            precision = PRECISIONS[(row + column // len(SIZES)) % len(PRECISIONS)]
            sizes = dict(precision=precision, batch=batch, tokens=tokens, accumulate=accumulate)
            if change.get("padded"):  # to the longest of several
                sizes["batch"] = max(batch, 2)
            yield name, plain | change | sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--case", type=int, nargs="*", help="these only")
    args = parser.parse_args()
    torch.set_num_threads(1)  # kernels have buffers of each thread
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    names = ("transformers", "peft", "accelerate", "deepspeed", "torch")
    versions = {name: importlib.metadata.version(name) for name in names}
    for number, (name, case) in enumerate(cases()):
        if args.case is not None and number not in args.case:
            continue
        case["model"] = (MODELS | FAMILIES | EXPERTS)[name]
        # Each in processes of its own: what another one leaves behind would be freed in its profile.
        count = 1 if is_alone(case) else case.get("ranks", 1)
        ranks = [start(rank, case, versions) for rank in range(count)]
        if any([os.waitpid(child, 0)[1] != 0 for child in ranks]):
            raise SystemExit(f"error: case {number} failed: {case}")


def start(rank, case, versions):
    child = os.fork()
    if child != 0:
        return child
    if case.get("ranks", 1) > 1:
        os.environ |= dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case["ranks"]),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    measured = train(case)
    if rank == 0:
        print(json.dumps(case | measured | versions), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
