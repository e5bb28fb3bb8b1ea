#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/import/keys.json: the names of the keys that other programs' recipes have.

    pip download --no-deps -d WHEELS axolotl==0.19.0 llamafactory==0.9.5 trl==1.16.0 \\
        transformers==5.23.0 torchtune==0.6.1 unsloth==2026.10.9
    pip download --no-deps -d WHEELS transformers==4.46.3 trl==0.12.2
    pip download --no-deps --no-binary :all: -d WHEELS deepspeed==0.19.8
    tests/oracles/import_keys.py WHEELS

The wheels are read, not installed: the fields of the classes that the programs read a recipe into,
and for torchtune, which has no such classes, the keys of its own recipes for fine-tuning and those that its programs ask for.
Of Unsloth's calls they are the arguments; of DeepSpeed the keys that its readers look up, with the fields of its ZeRO classes.
"""
import ast
import json
import pathlib
import re
import sys
import tarfile
import zipfile

OUT = pathlib.Path(__file__).parents[1] / "data" / "import" / "keys.json"
# Package and version, the files with the classes, the classes; what to call them, unless as the package.
CLASSES = [
    ("axolotl", "0.19.0", "axolotl/utils/schemas/", ["AxolotlInputConfig"]),
    ("axolotl", "0.19.0", "axolotl/integrations/liger/", ["LigerArgs"]),
    ("axolotl", "0.19.0", "axolotl/integrations/cut_cross_entropy/", ["CutCrossEntropyArgs"]),
    ("axolotl", "0.19.0", "axolotl/integrations/kernels/", ["KernelsArgs"]),
    ("axolotl", "0.19.0", "axolotl/integrations/swanlab/", ["SwanLabConfig"]),
    ("axolotl", "0.19.0", "axolotl/integrations/lm_eval/", ["LMEvalArgs"]),
    ("llamafactory", "0.9.5", "llamafactory/hparams/",
     ["ModelArguments", "DataArguments", "FinetuningArguments", "GeneratingArguments",
      "EvaluationArguments", "TrainingArguments"]),
    ("transformers", "5.23.0", "transformers/training_args", ["Seq2SeqTrainingArguments"]),
    ("transformers", "4.46.3", "transformers/training_args", ["Seq2SeqTrainingArguments"]),
    ("trl", "1.16.0", "trl/trainer/", ["SFTConfig", "ModelConfig"]),
    ("trl", "1.16.0", "trl/scripts/utils.py", ["ScriptArguments", "DatasetMixtureConfig"]),
    ("trl", "0.12.2", "trl/trainer/", ["SFTConfig", "ModelConfig"]),
    ("trl", "0.12.2", "trl/utils.py", ["ScriptArguments"]),
    ("trl", "1.16.0", "trl/trainer/", ["DPOConfig", "KTOConfig", "ModelConfig"], "trl-preferences"),
    ("trl", "1.16.0", "trl/experimental/orpo/", ["ORPOConfig"], "trl-preferences"),
    ("trl", "1.16.0", "trl/experimental/cpo/", ["CPOConfig"], "trl-preferences"),
    ("trl", "1.16.0", "trl/scripts/utils.py", ["ScriptArguments", "DatasetMixtureConfig"], "trl-preferences"),
    ("trl", "0.12.2", "trl/trainer/", ["DPOConfig", "ORPOConfig", "CPOConfig", "ModelConfig"], "trl-preferences"),
    ("trl", "0.12.2", "trl/utils.py", ["ScriptArguments"], "trl-preferences"),
]
TORCHTUNE = ("torchtune", "0.6.1")
UNSLOTH = ("unsloth", "2026.10.9")
# File, class and function whose arguments are keys.
UNSLOTH_CALLS = [
    ("unsloth/models/loader.py", "FastLanguageModel", "from_pretrained"),
    ("unsloth/models/loader.py", "FastModel", "from_pretrained"),
    ("unsloth/models/llama.py", "FastLlamaModel", "get_peft_model"),
    ("unsloth/models/vision.py", "FastBaseModel", "get_peft_model"),
    ("unsloth/trainer.py", "UnslothTrainingArguments", "__init__"),
]
UNSLOTH_SECTIONS = ["DataConfig", "TrainingConfig", "LoraConfig", "LoggingConfig"]
DEEPSPEED = ("deepspeed", "0.19.8")
# The files whose functions look keys up in the whole configuration.
DEEPSPEED_READERS = ["runtime/config.py", "runtime/precision_config.py",
                     "runtime/activation_checkpointing/config.py", "runtime/swap_tensor/aio_config.py",
                     "runtime/tensor_parallel/config.py", "monitor/config.py", "comm/config.py",
                     "profiling/config.py", "utils/config.py", "datastates/config.py"]
# Constants with keys that the readers look up in other ways.
DEEPSPEED_NAMES = ["COMMUNICATION_DATA_TYPE", "SEQ_PARALLEL_COMMUNICATION_DATA_TYPE", "DATA_EFFICIENCY",
                   "AUTOTUNING"]


def classes(wheel, folder):
    """Name -> (bases, fields) of each class in the folder's files."""
    found = {}
    for name in wheel.namelist():
        if not name.startswith(folder) or not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(wheel.read(name))):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
                fields = {s.target.id for s in node.body
                          if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
                          and "ClassVar" not in ast.unparse(s.annotation) and s.target.id[0] != "_"}
                found[name, node.name] = (bases, fields)
    return found


def fields_of(found, name):
    out = set()
    for (_, known), (bases, fields) in found.items():
        if known == name:
            out |= fields
            for base in bases:
                if base != name:
                    out |= fields_of(found, base)
    return out


def keys_of_recipe(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from keys_of_recipe(value, prefix + key + ".")
        else:
            yield prefix + key


def torchtune_keys(wheel):
    import yaml

    keys = set()
    for name in wheel.namelist():
        kind = pathlib.PurePosixPath(name).name
        if name.startswith("recipes/configs/") and kind.endswith(".yaml") and \
                ("full" in kind or "lora" in kind) and not any(
                    other in name for other in ("ppo", "KD", "qat", "vision", "/dev/")):
            keys |= set(keys_of_recipe(yaml.safe_load(wheel.read(name))))
        if re.match("recipes/(full|lora)_(finetune|dpo)_.*py", name):
            keys |= set(re.findall(r'cfg\.get\("([a-z_0-9]+)"', wheel.read(name).decode()))
    # The arguments of its losses of pairs, which its recipes leave out.
    for node in ast.walk(ast.parse(wheel.read("torchtune/rlhf/loss/dpo.py"))):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            keys |= {"loss." + argument.arg for argument in node.args.args[1:]}
    return keys


def unsloth_keys(wheel):
    """Of the calls in a notebook, and of the command's file."""
    calls = set()
    for file, owner, function in UNSLOTH_CALLS:
        for node in ast.walk(ast.parse(wheel.read(file))):
            if isinstance(node, ast.ClassDef) and node.name == owner:
                calls |= {argument.arg for method in node.body
                          if isinstance(method, ast.FunctionDef) and method.name == function
                          for argument in method.args.args + method.args.kwonlyargs}
    found = classes(wheel, "unsloth_cli/config.py")
    command = {"model"}.union(*(fields_of(found, name) for name in UNSLOTH_SECTIONS))
    return calls - {"self", "model"}, command


def constants(source):
    """Name -> text of each module-level assignment of a text."""
    return {node.targets[0].id: node.value.value for node in ast.parse(source).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)}


def looked_up(source, names):
    """The keys that a module looks up in its param_dict or ds_config."""
    def is_configuration(node):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "keys":
            node = node.func.value
        return isinstance(node, ast.Name) and node.id in ("param_dict", "ds_config")

    for node in ast.walk(ast.parse(source)):
        key = None
        if isinstance(node, ast.Subscript) and is_configuration(node.value):
            key = node.slice
        elif isinstance(node, ast.Compare) and is_configuration(node.comparators[0]):
            key = node.left
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get" and \
                is_configuration(node.func.value):
            key = node.args[0]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "get_scalar_param" and \
                is_configuration(node.args[0]):
            key = node.args[1]
        if isinstance(key, ast.Constant):
            yield key.value
        elif isinstance(key, ast.Name) and key.id in names:
            yield names[key.id]


def deepspeed_keys(package):
    read = lambda name: package.extractfile(f"{'-'.join(DEEPSPEED)}/deepspeed/{name}").read().decode()
    files = [name.split("/deepspeed/", 1)[1] for name in package.getnames()
             if name.endswith(".py") and "/deepspeed/" in name]
    names = {}
    for file in files:
        if pathlib.PurePosixPath(file).name in ("constants.py", "config.py", "precision_config.py"):
            names |= constants(read(file))
    keys = {key for file in DEEPSPEED_READERS for key in looked_up(read(file), names)}
    keys |= {names[name] for name in DEEPSPEED_NAMES} | {"tensorboard", "wandb", "csv_monitor", "comet"}
    for node in ast.walk(ast.parse(read("runtime/zero/config.py"))):
        if isinstance(node, ast.ClassDef) and node.name == "DeepSpeedZeroConfig":
            for field in node.body:
                if isinstance(field, ast.AnnAssign):
                    keys.add("zero_optimization." + field.target.id)
                    keys |= {"zero_optimization." + word.value.value for word in getattr(field.value, "keywords", [])
                             if word.arg == "alias"}
    for node in ast.walk(ast.parse(read("runtime/zero/offload_config.py"))):
        for ending, part in (("ParamConfig", "offload_param"), ("OptimizerConfig", "offload_optimizer")):
            if isinstance(node, ast.ClassDef) and node.name == "DeepSpeedZeroOffload" + ending:
                keys.discard(f"zero_optimization.{part}")
                keys |= {f"zero_optimization.{part}.{field.target.id}" for field in node.body
                         if isinstance(field, ast.AnnAssign)}
    # Keys that it used to have, and names in its error for them.
    for node in ast.parse(read("runtime/config.py")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            prefix = {"_REMOVED_TOP_LEVEL_CONFIG_KEYS": "", "_REMOVED_ZERO_CONFIG_KEYS": "zero_optimization."}
            if node.targets[0].id in prefix:
                keys |= {prefix[node.targets[0].id] + key.value for key in node.value.keys}
    return keys - {"zero_optimization"}


def main():
    wheels = pathlib.Path(sys.argv[1])
    open_wheel = lambda name, version: zipfile.ZipFile(next(wheels.glob(f"{name}-{version}-*.whl")))
    out = {}
    for package, version, folder, names, *name in CLASSES:
        found = classes(open_wheel(package, version), folder)
        keys = set().union(*(fields_of(found, name) for name in names))
        entry = out.setdefault(f"{name[0] if name else package} {version}", set())
        entry |= keys
    out[" ".join(TORCHTUNE)] = torchtune_keys(open_wheel(*TORCHTUNE))
    calls, command = unsloth_keys(open_wheel(*UNSLOTH))
    out[" ".join(UNSLOTH)], out["unsloth-train " + UNSLOTH[1]] = calls, command
    with tarfile.open(wheels / f"{'-'.join(DEEPSPEED)}.tar.gz") as package:
        out[" ".join(DEEPSPEED)] = deepspeed_keys(package)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({name: sorted(keys) for name, keys in sorted(out.items())}, indent=1)
                   + "\n")


if __name__ == "__main__":
    main()
