#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/import/keys.json: the names of the keys that other programs' recipes have.

    pip download --no-deps -d WHEELS axolotl==0.19.0 llamafactory==0.9.5 trl==1.16.0 \\
        transformers==5.23.0 torchtune==0.6.1
    pip download --no-deps -d WHEELS transformers==4.46.3 trl==0.12.2
    tests/oracles/import_keys.py WHEELS

The wheels are read, not installed: the fields of the classes that the programs read a recipe into,
and for torchtune, which has no such classes, the keys of its own recipes for fine-tuning and those that its programs ask for.
"""
import ast
import json
import pathlib
import re
import sys
import zipfile

OUT = pathlib.Path(__file__).parents[1] / "data" / "import" / "keys.json"
# Package and version, the files with the classes, the classes.
CLASSES = [
    ("axolotl", "0.19.0", "axolotl/utils/schemas/", ["AxolotlInputConfig"]),
    ("axolotl", "0.19.0", "axolotl/integrations/liger/", ["LigerArgs"]),
    ("axolotl", "0.19.0", "axolotl/integrations/cut_cross_entropy/", ["CutCrossEntropyArgs"]),
    ("llamafactory", "0.9.5", "llamafactory/hparams/",
     ["ModelArguments", "DataArguments", "FinetuningArguments", "GeneratingArguments",
      "EvaluationArguments", "TrainingArguments"]),
    ("transformers", "5.23.0", "transformers/training_args", ["Seq2SeqTrainingArguments"]),
    ("transformers", "4.46.3", "transformers/training_args", ["Seq2SeqTrainingArguments"]),
    ("trl", "1.16.0", "trl/trainer/", ["SFTConfig", "ModelConfig"]),
    ("trl", "1.16.0", "trl/scripts/utils.py", ["ScriptArguments", "DatasetMixtureConfig"]),
    ("trl", "0.12.2", "trl/trainer/", ["SFTConfig", "ModelConfig"]),
    ("trl", "0.12.2", "trl/utils.py", ["ScriptArguments"]),
]
TORCHTUNE = ("torchtune", "0.6.1")


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
                    other in name for other in ("dpo", "ppo", "KD", "qat", "vision", "/dev/")):
            keys |= set(keys_of_recipe(yaml.safe_load(wheel.read(name))))
        if re.match("recipes/(full|lora)_finetune_.*py", name):
            keys |= set(re.findall(r'cfg\.get\("([a-z_0-9]+)"', wheel.read(name).decode()))
    return keys


def main():
    wheels = pathlib.Path(sys.argv[1])
    open_wheel = lambda name, version: zipfile.ZipFile(next(wheels.glob(f"{name}-{version}-*.whl")))
    out = {}
    for package, version, folder, names in CLASSES:
        found = classes(open_wheel(package, version), folder)
        keys = set().union(*(fields_of(found, name) for name in names))
        entry = out.setdefault(f"{package} {version}", set())
        entry |= keys
    out[" ".join(TORCHTUNE)] = torchtune_keys(open_wheel(*TORCHTUNE))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({name: sorted(keys) for name, keys in sorted(out.items())}, indent=1)
                   + "\n")


if __name__ == "__main__":
    main()
