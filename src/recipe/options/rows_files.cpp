// The rows of the commands that read files and write others: import, convert, merge, download.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/hub_models.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kFiles = "Files";

Row base_row(std::string& slot) {
  return {.theme = kFiles,
          .key = "pretrained_checkpoint_dir",
          .slot = &slot,
          .help =
              "the adapter's base model: a Hugging Face or LitGPT directory, or a GGUF file; "
              "none: the model that the adapter names",
          .kind = TextKind::File,
          .aliases = {"base"},
          .normalise = model_folder};
}

}  // namespace

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

std::vector<Row> convert_rows(ConvertOptions& o) {
  return {
      {.theme = kFiles,
       .key = "source",
       .slot = &o.source,
       .help = "the model to read: a Hugging Face or LitGPT directory, or a GGUF file; or an "
               "adapter, which is merged into its base on the way (a destination NAME.gguf without "
               "--gguf_type: a GGUF adapter for llama.cpp)",
       .kind = TextKind::File,
       .required = true,
       .positional = true,
       .normalise = model_folder},
      {.theme = kFiles,
       .key = "destination",
       .slot = &o.destination,
       .help = "the directory to write; for gguf: the file; none: the source's name with the "
               "format appended",
       .kind = TextKind::File,
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
      {.theme = kFiles,
       .key = "text_only",
       .slot = &o.text_only,
       .help = "write only the language model of a model that also sees pictures (Gemma 3 and 4, "
               "Mistral 3, Qwen2-VL to Qwen3-VL, Qwen3.5 and 3.6, LLaVA 1.5 and OneVision, "
               "InternVL); without it, the other parts are copied"},
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
      verbose_row(kProgramTopic, o.verbose),
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
      verbose_row(kProgramTopic, o.verbose),
  };
}

std::vector<Row> download_rows(DownloadOptions& o) {
  return {
      {.theme = kFiles,
       .key = "repo_id",
       .slot = &o.repo_id,
       .help = "the model's repository on the hub: ORG/NAME, or a name that snug models lists",
       .positional = true,
       .normalise = id_or_word},
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
      verbose_row(kProgramTopic, o.verbose),
  };
}

}  // namespace snug::recipe
