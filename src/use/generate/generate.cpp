// SPDX-License-Identifier: Apache-2.0
#include "use/commands.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/pictures/picture_processor.h"
#include "data/pictures/picture_sample.h"
#include "data/prompts.h"
#include "engine/host.h"
#include "engine/language_model.h"
#include "use/generate/prompts.h"
#include "use/generate/text_generator.h"

namespace snug::use {
namespace {

// `asked`: the user's prompt.
std::string prompt_text(const std::string& system, const std::string& asked,
                        const data::PromptStyle& style) {
  if (!style.is_chat() || system.empty()) {
    // As training formats chats for styles without turns.
    const std::string before = system.empty() ? "" : system + "\n\n";
    return style.prompt({.instruction = before + asked, .input = "", .output = "", .messages = {}});
  }
  const std::vector<tokenizer::Message> turns{{"system", system}, {"user", asked}};
  return style.render(turns, /*add_generation_prompt=*/true);
}

// Prints one answer, token by token or as a line of JSON.
void answer(TextGenerator& generator, GenerationRequest request,
            const recipe::GenerateOptions& options, const std::string& adapter) {
  const bool stream = options.stream && !options.json;
  if (stream) request.on_text = print_piece;
  const auto start = std::chrono::steady_clock::now();
  const Generation result = generator.generate(request);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) {
    nlohmann::json line{{"prompt", *options.prompt},
                        {"text", result.text},
                        {"tokens", result.ids.size()},
                        {"ended", result.ended},
                        {"seconds", seconds}};
    if (!adapter.empty()) line["adapter"] = adapter;
    if (!options.images.empty()) line["images"] = options.images;
    print_piece(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return;
  }
  print_piece(stream ? "\n" : result.text + "\n");
  const auto num_tokens = static_cast<int64_t>(result.ids.size());
  const bool is_full = !result.ended && num_tokens < request.options.max_new_tokens;
  std::fprintf(stderr, "(%lld tokens, %.1f tokens/s%s)\n", static_cast<long long>(num_tokens),
               seconds > 0 ? static_cast<double>(num_tokens) / seconds : 0.0,
               is_full ? "; cut off where the model takes no more" : "");
}

// Prints all answers of the model with its current adapter.
void answer_all(TextGenerator& generator, const Prompt& prompt,
                const recipe::GenerateOptions& options, const std::string& adapter) {
  for (int64_t sample = 0; sample < options.num_samples; ++sample)
    answer(generator,
           {.prompt = prompt,
            .options = generation_options(options.max_new_tokens,
                                          {.temperature = options.temperature,
                                           .top_k = options.top_k,
                                           .top_p = options.top_p,
                                           .seed = options.seed + static_cast<uint64_t>(sample)},
                                          options.beams, 1),
            .stops = options.stop},
           options, adapter);
}

std::vector<data::PreparedPicture> read_pictures(const recipe::GenerateOptions& options,
                                                 const engine::LanguageModel& lm) {
  if (options.images.empty()) return {};
  check_reads_pictures(*lm.model, options.checkpoint_dir);
  return data::read_picture_processor(lm.path, lm.model->reads()).prepare(options.images);
}

// One a line, or in a .jsonl file objects with "prompt".
std::vector<std::string> prompts_in(const std::string& file) {
  const bool is_json = file.ends_with(".jsonl");
  std::istringstream lines(read_file(file));
  std::vector<std::string> prompts;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (trimmed(line).empty()) continue;
    if (!is_json) {
      prompts.push_back(line);
      continue;
    }
    const auto row = nlohmann::json::parse(line, nullptr, false);
    const auto found = row.is_object() ? row.find("prompt") : row.end();
    if (!row.is_object() || found == row.end() || !found->is_string())
      throw UserError("{}:{}: a line must be an object with a text as \"prompt\"", file, number);
    prompts.push_back(*found);
  }
  if (prompts.empty()) throw UserError("{} holds no prompt; write one a line", file);
  return prompts;
}

std::vector<std::string> all_prompts(const recipe::GenerateOptions& given) {
  if (!given.prompts.empty()) {
    if (given.prompt)
      throw UserError("--prompts {} and a prompt are given; leave one out", given.prompts);
    return prompts_in(given.prompts);
  }
  // A picture may stand alone.
  return {given.images.empty() || given.prompt
              ? given_prompt(given.prompt)
              : text_of_input(STDIN_FILENO, kPatienceSeconds).value_or("")};
}

}  // namespace

void generate(const recipe::GenerateOptions& given) {
  recipe::GenerateOptions options = given;
  const std::vector<std::string> all = all_prompts(given);
  const engine::Host host =
      engine::prepare_host(options.memory_budget, options.num_threads, options.accelerator);
  const engine::LanguageModel lm = engine::open_language_model(
      options.checkpoint_dir, host.device,
      {.precision = options.precision, .quantize = options.quantize, .adapters = options.adapters});
  const data::TextEncoder encoder = data::make_encoder(*lm.tokenizer);
  const std::vector<data::PreparedPicture> pictures = read_pictures(options, lm);
  std::set<std::string> said;
  const auto say_once = [&](const std::string& system) {
    if (said.insert(system).second)
      std::fprintf(stderr,
                   "(system message of all training rows: %s; use --sys_prompt for another)\n",
                   printable_lines(system).c_str());
  };
  const auto prompt = [&](const engine::LoadedAdapter* adapter) {
    const auto style_of = pictures.empty() ? style_of_prompts : style_of_questions;
    const data::PromptStyle style = style_of(options.prompt_style, lm, adapter, encoder);
    const std::string asked = lm.model->reads().pictures_anywhere
                                  ? data::with_marks(*options.prompt, std::ssize(pictures))
                                  : *options.prompt;
    const std::string system = system_message(options.sys_prompt, style, lm, adapter);
    if (!options.sys_prompt && !system.empty()) say_once(system);
    return prompt_with_pictures(*lm.model, style.encoder_of_prompts(encoder),
                                prompt_text(system, asked, style), pictures);
  };
  TextGenerator generator(*lm.executor, *lm.model, *lm.tokenizer, lm.precision.compute);
  for (const std::string& one : all) {
    options.prompt = one;
    if (all.size() > 1 && !options.json) print_piece("> " + one + "\n");
    if (lm.adapters.empty()) answer_all(generator, prompt(nullptr), options, "");
    for (const engine::LoadedAdapter& adapter : lm.adapters) {
      lm.use(adapter);
      if (lm.adapters.size() > 1 && !options.json) print_piece("[" + adapter.name + "]\n");
      answer_all(generator, prompt(&adapter), options, adapter.name);
    }
    if (all.size() > 1 && !options.json) print_piece("\n");
  }
}

}  // namespace snug::use
