// The rows of the commands that use a model: generate, chat, caption, evaluate.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>

#include "recipe/hub_models.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"
#include "recipe/tables/objectives.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kText = "Text";
constexpr std::string_view kPictures = "Pictures";
constexpr std::string_view kSampling = "Sampling";
constexpr std::string_view kEvaluation = "Evaluation";

std::vector<Row> join(std::vector<Row> first, std::vector<Row> second) {
  first.insert(first.end(), std::make_move_iterator(second.begin()),
               std::make_move_iterator(second.end()));
  return first;
}

Row checkpoint_row(std::string& slot) {
  return {.theme = kModelTopic,
          .key = "checkpoint_dir",
          .slot = &slot,
          .help =
              "the model: a Hugging Face or LitGPT directory, or a GGUF file; or an adapter "
              "directory, which names its base model",
          .kind = TextKind::File,
          .required = true,
          .positional = true,
          .normalise = model_folder};
}

Row adapter_row(Slot slot, std::string_view help) {
  return {.theme = kModelTopic,
          .key = "adapter",
          .slot = slot,
          .help = help,
          .kind = TextKind::Directory};
}

Row precision_row(std::string& slot) {
  return {.theme = kModelTopic,
          .key = "precision",
          .slot = &slot,
          .help = "type of weights and arithmetic",
          .choices = choices_of<Precision>(),
          .normalise = normalise_precision};
}

constexpr std::string_view kQuantizeHelp =
    "store the weights of linear layers in 4 or 8 bits: takes less memory, and matches a QLoRA "
    "run; "
    "auto: as they are stored, none: as numbers of `precision`";

Row own_quantize_row(std::string& slot) {
  Row row = quantize_row(slot, kQuantizeHelp);
  row.choices.insert(row.choices.begin(), {"auto", "none"});
  return row;
}

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

}  // namespace

std::vector<Row> generate_rows(GenerateOptions& o) {
  std::vector<Row> rows = {
      checkpoint_row(o.checkpoint_dir),
      adapter_row(&o.adapters,
                  "directory of a PEFT or LitGPT adapter for the model; if given several times, "
                  "each adapter answers in turn with the model loaded once"),
      own_quantize_row(o.quantize),
      precision_row(o.precision),
      {.theme = kText,
       .key = "prompt",
       .slot = &o.prompt,
       .help = "the prompt; none: read it from standard input",
       .kind = TextKind::Verbatim,
       .positional = true},
      {.theme = kText,
       .key = "prompts",
       .slot = &o.prompts,
       .help = "file of many prompts, which are answered in turn with the model loaded once: one a "
               "line, or in a .jsonl file objects with \"prompt\"",
       .kind = TextKind::File},
      {.theme = kText,
       .key = "stop",
       .slot = &o.stop,
       .help = "text that ends an answer, and is not part of it; may be given several times",
       .kind = TextKind::Verbatim},
      {.theme = kText,
       .key = "image",
       .slot = &o.images,
       .help = "file of a picture that the model sees (BLIP-2, SmolVLM); if given several times, "
               "each stands where the prompt says <image>, or all before it",
       .kind = TextKind::File},
      {.theme = kText,
       .key = "sys_prompt",
       .slot = &o.sys_prompt,
       .help = "system message for the chat template; none: the one with which all rows of the "
               "training began, else the template's own",
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
      own_quantize_row(o.quantize),
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
    return row.key == "prompt" || row.key == "prompts" || row.key == "image" ||
           row.key == "num_samples" || row.key == "stream" || row.key == "json" ||
           row.key == "num_beams" || row.key == "length_penalty";
  });
  for (Row& row : rows)
    if (row.key == "adapter") row.help = "directory of a PEFT or LitGPT adapter for the model";
  return rows;
}

std::vector<Row> evaluate_rows(EvaluateOptions& o) {
  std::vector<Row> rows = {
      checkpoint_row(o.checkpoint_dir),
      adapter_row(&o.adapter, "directory of a PEFT or LitGPT adapter for the model"),
      own_quantize_row(o.quantize),
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
       .key = "scores_file",
       .slot = &o.scores_file,
       .help = "file to write each row's scores to, one JSON object per line: of a classifier or "
               "a reward model; of pairs the log-probabilities of both answers",
       .kind = TextKind::File},
      {.theme = kEvaluation,
       .key = "save_top_k",
       .slot = &o.save_top_k,
       .help = "write this model's N most likely tokens for each answer token, with their "
               "log-probabilities, to the teacher file, for a model that learns from it "
               "(--objective distill); 64 is usual",
       .min = 1,
       .max = 1048576},
      {.theme = kEvaluation,
       .key = "teacher_file",
       .slot = &o.teacher_file,
       .help = "the file that save_top_k writes",
       .kind = TextKind::File},
      {.theme = kEvaluation,
       .key = "objective",
       .slot = &o.objective.name,
       .help =
           "dpo, ipo, hinge, orpo, simpo or cpo: rows are pairs of a chosen and a rejected "
           "answer, evaluated as training validates them; the first three compare with "
           "objective.reference, or an adapter with its base. A classifier or reward model needs "
           "none",
       .choices = choices_of<ObjectiveName>(),
       .aliases = {"objective.name"},
       .selected = [&o] { o.objective = objective_defaults(o.objective.name); }},
      {.theme = kEvaluation,
       .key = "objective.beta",
       .slot = &o.objective.beta,
       .help = "the beta that pairs are learnt with; as in training unless given",
       .min = 1e-6,
       .max = 1000},
      {.theme = kEvaluation,
       .key = "objective.reference",
       .slot = &o.objective.reference,
       .help = "the model that answers are compared with (dpo, ipo, hinge), if it was another one "
               "in training than the adapter's base",
       .kind = TextKind::Directory},
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

}  // namespace snug::recipe
