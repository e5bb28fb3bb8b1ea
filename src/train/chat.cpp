// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <iostream>

#include "base/error.h"
#include "data/text_encoder.h"
#include "setup/language_model.h"
#include "train/generate.h"
#include "train/host.h"
#include "train/text_generator.h"

namespace snug::train {
void chat(const config::GenerateOptions& options) {
  const Host host = prepare_host(options.memory_budget, options.num_threads, options.accelerator);
  const setup::LanguageModel lm = setup::open_language_model(
      options.checkpoint_dir, host.device,
      {.precision = options.precision, .quantize = options.quantize, .adapters = options.adapters});
  if (lm.adapters.size() > 1)
    throw UserError("chat takes one adapter, {} are given; snug generate compares several",
                    lm.adapters.size());
  if (!lm.tokenizer->has_chat_template())
    throw UserError("{} has no chat template; use snug generate", options.checkpoint_dir);
  TextGenerator generator(*lm.executor, *lm.model, *lm.tokenizer, lm.precision.compute);
  std::vector<tokenizer::Message> turns;
  if (!options.sys_prompt.empty()) turns.push_back({"system", options.sys_prompt});
  const bool interactive = ::isatty(STDIN_FILENO) == 1;
  if (interactive) print_piece("Write a line and press Enter; an empty line ends the chat.\n");
  std::string line;
  for (uint64_t turn = 0; interactive ? (print_piece("> "), true) : true; ++turn) {
    if (!std::getline(std::cin, line) || line.empty()) break;
    turns.push_back({"user", line});
    const Generation answer = generator.generate(
        {.prompt = {.ids = lm.tokenizer->encode(
                        lm.tokenizer->apply_chat_template(turns, /*add_generation_prompt=*/true),
                        false)},
         .options = generation_options(options.max_new_tokens,
                                       {.temperature = options.temperature,
                                        .top_k = options.top_k,
                                        .top_p = options.top_p,
                                        .seed = options.seed + turn},
                                       options.beams, 1),
         .on_text = print_piece});
    print_piece("\n");
    turns.push_back({"assistant", answer.text});
  }
}

}  // namespace snug::train
