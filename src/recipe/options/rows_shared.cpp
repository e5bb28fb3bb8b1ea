// Rows that several commands have (data, the machine, quantized weights), those of snug data, and
// LitGPT's keys without an effect.
// SPDX-License-Identifier: Apache-2.0

#include <iterator>
#include <vector>

#include "recipe/hub_models.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {
constexpr std::string_view kData = "Data";
constexpr std::string_view kMachine = "This machine";
constexpr std::string_view kShownData = "Data to show";

}  // namespace

std::vector<Row> data_rows(DataOptions& d) {
  return {
      {.theme = kData,
       .key = "data.class_path",
       .slot = &d.class_path,
       .help =
           "data source: a file of rows; a data set of the Hugging Face Hub, ORG/NAME, which is "
           "fetched to data/ once; JSON, with data.json_path; HFDataset, a folder in Hugging "
           "Face's format; ImageFolder, pictures with a metadata file; TextFiles, texts to read "
           "on, with "
           "data.path; Synthetic, random samples for measurements without files; or a named data "
           "set, which is downloaded once. Several with commas between them are mixed",
       .choices = data_names(),
       .for_a_path =
           "--data.json_path (rows), or with --data HFDataset, ImageFolder or TextFiles as "
           "--data.path",
       .quiet_choices = {std::string(kMix)},
       .shown = "data",
       .aliases = {"data", "data.name"},
       .common = true,
       .normalise = normalise_data},
      {.theme = kData,
       .key = "data.json_path",
       .slot = &d.json_path,
       .help = "JSON, JSONL, CSV, TSV or Parquet file with columns instruction, input and output; "
               "messages; question and answer; prompt and completion; or text. Or a folder with "
               "train.json and val.json",
       .kind = TextKind::File,
       .common = true},
      {.theme = kData,
       .key = "data.path",
       .slot = &d.path,
       .help = "folder of the data set; for HFDataset: written by save_to_disk, or as on the hub, "
               "with Parquet, JSON, JSONL or CSV files; for ImageFolder: with metadata.jsonl or "
               "metadata.csv, or the file with the "
               "captions; for TextFiles: with .txt and .md files, or files of rows with a column "
               "text, or one such file",
       .kind = TextKind::File,
       .aliases = {"data.train_data_path"}},
      {.theme = kData,
       .key = "data.sources",
       .slot = &d.sources,
       .help = "data sets to mix, a list: each a file, a name, or a mapping of file or class_path "
               "with the keys of data that hold for it alone, and weight (how often an epoch has "
               "each of its samples, 1 unless given) or share (of the samples of an epoch)",
       .kind = TextKind::Tree},
      {.theme = kData,
       .key = "data.split",
       .slot = &d.split,
       .help = "split of an HFDataset or ImageFolder to train on"},
      {.theme = kData,
       .key = "data.subset",
       .slot = &d.subset,
       .help = "subset (configuration) of an HFDataset that has several, by its name on the hub"},
      {.theme = kData,
       .key = "data.val_split",
       .slot = &d.val_split,
       .help = "split of an HFDataset to validate on, instead of rows held out"},
      {.theme = kData,
       .key = "data.image_column",
       .slot = &d.image_column,
       .help = "column with the pictures; auto: the column that holds pictures"},
      {.theme = kData,
       .key = "data.text_column",
       .slot = &d.text_column,
       .help = "column with the captions; auto: text, caption, captions, description or a similar "
               "name"},
      {.theme = kData,
       .key = "data.prompt",
       .slot = &d.prompt,
       .help = "text before every caption; has no loss"},
      {.theme = kData,
       .key = "data.val_split_fraction",
       .slot = &d.val_split_fraction,
       .help = "share of the rows to hold out for validation (Alpaca 0.03865, AlpacaGPT4 0.03847, "
               "Dolly and LIMA 0.1)",
       .min = 0,
       .max = 1},
      {.theme = kData,
       .key = "data.val_path",
       .slot = &d.val_path,
       .help = "separate validation file, instead of a share of the rows",
       .kind = TextKind::File,
       .aliases = {"data.val_data_path"}},
      {.theme = kData,
       .key = "data.prompt_style",
       .slot = &d.prompt_style,
       .help = "how to turn a row into text; auto: the model's chat template for conversations, "
               "prompt and completion unchanged, alpaca for other rows (named data sets have their "
               "own defaults); chat: the chat template for all rows",
       .choices = {"auto", "alpaca", "chat", "plain", "flan", "longform"},
       .normalise =
           [](std::string_view name) { return std::string(name == "default" ? "plain" : name); }},
      {.theme = kData,
       .key = "data.chat_template",
       .slot = &d.chat_template,
       .help = "chat template in place of the model's: a file of Jinja, the folder of a model that "
               "has one (whose eos_token is then meant too), or alpaca, chatml, gemma, llama3 or "
               "phi3. It is saved with what is trained; none: the model's own"},
      {.theme = kData,
       .key = "data.eos_token",
       .slot = &d.eos_token,
       .help = "token of the vocabulary that ends texts and answers, in place of the model's "
               "eos_token; saved with what is trained; none: the model's own"},
      {.theme = kData,
       .key = "tokens.add",
       .slot = &d.add_tokens,
       .help = "special tokens to add to the vocabulary, separated by commas (which a token cannot "
               "hold), such as the marks of a chat template. Embedding and head get rows for those "
               "that are new, which begin as the mean of the others; beside adapters both train "
               "whole",
       .aliases = {"data.add_tokens"}},
      {.theme = kData,
       .key = "data.mask_prompt",
       .slot = &d.mask_prompt,
       .help = "exclude the tokens of the prompt from the loss; none: those of rows of turns, so "
               "that only the assistant's are learnt",
       .common = true},
      {.theme = kData,
       .key = "data.ignore_index",
       .slot = &d.ignore_index,
       .help = "label of tokens without loss",
       .min = -2147483648.0,
       .max = -1},
      {.theme = kData,
       .key = "data.max_samples",
       .slot = &d.max_samples,
       .help = "training rows to use, at most N after shuffling; none: all (Synthetic generates "
               "256, or one global batch if that is more)",
       .min = 1,
       .max = 1e9,
       .aliases = {"num_train_samples"}},
      {.theme = kData,
       .key = "data.packing",
       .slot = &d.packing,
       .help = "pack samples end to end without padding, with attention inside each sample only; "
               "false: pad to the longest"},
      {.theme = kData,
       .key = "data.padding_in_loss",
       .slot = &d.padding_in_loss,
       .help = "pad to the longest and include the padding in the loss, only to compare with "
               "scripts that use the padded ids as labels; it teaches the model nothing"},
      {.theme = kData,
       .key = "data.include_multiturn_conversations",
       .slot = &d.include_multiturn_conversations,
       .help = "make a sample of each question in a conversation (LIMA, Deita)"},
      {.theme = kData,
       .key = "data.split_turns",
       .slot = &d.split_turns,
       .help =
           "make a sample of each answer of a chat, behind all turns before it as the model sees "
           "them then; so thoughts of every answer are learnt where the chat template drops "
           "those of earlier ones"},
      {.theme = kData,
       .key = "data.keep_empty_answers",
       .slot = &d.keep_empty_answers,
       .help = "learn to say nothing where an answer of a chat is empty, and does not think or "
               "call tools"},
      {.theme = kData,
       .key = "data.long_rows",
       .slot = &d.long_rows,
       .help = "what becomes of a row longer than train.max_seq_length: cut there; split into "
               "samples, so that nothing is lost; or drop, left out. auto: texts are split, "
               "others cut",
       .choices = choices_of<LongRows>()},
      {.theme = kData,
       .key = "data.overlap",
       .slot = &d.overlap,
       .help = "how many tokens a piece of a split row repeats of the one before, to be read and "
               "not learnt again",
       .min = 0,
       .max = 1e6},
      {.theme = kData,
       .key = "data.seed",
       .slot = &d.seed,
       .help = "seed for the split and order of samples, where it is another than seed",
       .min = 0,
       .max = kMostSeed},
      {.theme = kData,
       .key = "data.num_workers",
       .slot = &d.num_workers,
       .help = "threads that tokenize text and decode pictures",
       .min = 0,
       .max = 1024,
       .aliases = {"num_workers"}},
      {.theme = kData,
       .key = "data.download_dir",
       .slot = &d.download_dir,
       .help = "directory for downloaded data sets; none: the user's cache",
       .kind = TextKind::Directory},
  };
}

std::vector<Row> machine_rows(std::string& accelerator, std::string& memory_budget,
                              int64_t& num_threads, bool& verbose) {
  return {
      {.theme = kMachine,
       .key = "accelerator",
       .slot = &accelerator,
       .help = "device to compute on; auto: a GPU if this build has CUDA and a GPU is visible",
       .choices = choices_of<Accelerator>()},
      {.theme = kMachine,
       .key = "memory_budget",
       .slot = &memory_budget,
       .help = "device memory to use, at most; a run that needs more is out of memory. On a GPU it "
               "includes driver and libraries; with several processes it applies to each. Units: "
               "GiB or g "
               "is 2^30 bytes, GB 10^9; MiB, MB, m and so on alike",
       .min = kLeastMemory,
       .max = kMostMemory,
       .kind = TextKind::Bytes,
       .common = true},
      {.theme = kMachine,
       .key = "num_threads",
       .slot = &num_threads,
       .help = "CPU threads to use; 0: one per core",
       .min = 0,
       .max = 4096},
      verbose_row(kMachine, verbose),
  };
}

const IgnoredKey* find_ignored_key(std::string_view key) {
  static constexpr std::string_view kNoOnlineLogger = "snug has no online loggers";
  static constexpr std::string_view kKnownSet = "the source of a named data set is fixed";
  static constexpr std::string_view kOneWay = "the optimizer has one implementation";
  static constexpr IgnoredKey kKeys[] = {
      {"log.project", kNoOnlineLogger},
      {"log.run", kNoOnlineLogger},
      {"log.group", kNoOnlineLogger},
      {"data.repo_id", kKnownSet},
      {"data.file_url", kKnownSet},
      {"data.url", kKnownSet},
      {"data.file_name", kKnownSet},
      {"data.access_token", "give --access_token"},
      {"data.subsets", "all subsets are used"},
      {"optimizer.fused", kOneWay},
      {"optimizer.foreach", kOneWay},
      {"optimizer.capturable", kOneWay},
      {"optimizer.differentiable", kOneWay},
  };
  for (const IgnoredKey& known : kKeys)
    if (known.key == key) return &known;
  return nullptr;
}

Row verbose_row(std::string_view theme, bool& slot) {
  return {.theme = theme,
          .key = "verbose",
          .slot = &slot,
          .help = "print more about what is done and why"};
}

Row quantize_row(std::string& slot, std::string_view help) {
  return {.theme = kModelTopic,
          .key = "quantize",
          .slot = &slot,
          .help = help,
          .choices = {"bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8"}};
}

std::vector<Row> show_data_rows(ShowDataOptions& o) {
  std::vector<Row> rows = {
      {.theme = kShownData,
       .key = "action",
       .slot = &o.action,
       .help = "show: print samples as the model sees them, and counts over all rows",
       .choices = {"show"},
       .required = true,
       .positional = true},
      {.theme = kShownData,
       .key = "file",
       .slot = &o.file,
       .help = "the data file, as for --data.json_path; with --data HFDataset, ImageFolder or "
               "TextFiles: the folder, as for --data.path",
       .kind = TextKind::File,
       .positional = true},
      {.theme = kShownData,
       .key = "checkpoint_dir",
       .slot = &o.checkpoint_dir,
       .help = "model whose tokenizer and chat template to use: a directory or a GGUF file; its "
               "weights are not read",
       .kind = TextKind::File,
       .shown = "model",
       .aliases = {"model"},
       .required = true,
       .normalise = model_folder},
      {.theme = kShownData,
       .key = "num_samples",
       .slot = &o.num_samples,
       .help = "show the first N rows; 0: counts only",
       .min = 0,
       .max = kMostSamplesAStep},
      {.theme = kShownData,
       .key = "row",
       .slot = &o.row,
       .help = "show row N instead, counted from 1",
       .min = 1,
       .max = 1e12},
      {.theme = kShownData,
       .key = "max_seq_length",
       .slot = &o.max_seq_length,
       .help = "truncate samples to N tokens, as train.max_seq_length does; none: the longest that "
               "the model allows",
       .min = 2,
       .max = kMostTokens,
       .aliases = {"train.max_seq_length"}},
      {.theme = kShownData,
       .key = "objective",
       .slot = &o.objective,
       .help = "what training shall minimise: classification reads texts with labels, kto rows "
               "with an answer and whether it is good, the others but sft and distill rows with a "
               "chosen and a rejected answer",
       .choices = choices_of<ObjectiveName>(),
       .aliases = {"objective.name"}},
      {.theme = kShownData,
       .key = "json",
       .slot = &o.json,
       .help = "print one JSON object instead of text"},
      {.theme = kShownData,
       .key = "access_token",
       .slot = &o.access_token,
       .help = "Hugging Face token for gated data sets",
       .secret = true},
      verbose_row(kShownData, o.verbose),
  };
  std::vector<Row> data = data_rows(o.data);
  rows.insert(rows.end(), std::make_move_iterator(data.begin()),
              std::make_move_iterator(data.end()));
  return rows;
}

}  // namespace snug::recipe
