// SPDX-License-Identifier: Apache-2.0
#include "use/generate/text_generator.h"

#include "use/generate/stop_texts.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace snug::use {
namespace {

// Token ids at "eos_token_id": one or a list.
void add_end_ids(const nlohmann::json& config, std::vector<int32_t>& ids) {
  const auto field = config.find("eos_token_id");
  if (field == config.end()) return;
  for (const nlohmann::json& id : field->is_array() ? *field : nlohmann::json::array({*field}))
    if (id.is_number_integer()) ids.push_back(id.get<int32_t>());
}

// Indices of prompts that may share a batch: for a decoder, those of one length.
std::map<size_t, std::vector<size_t>> by_length(std::span<const Prompt> prompts, bool is_decoder) {
  std::map<size_t, std::vector<size_t>> groups;
  for (size_t i = 0; i < prompts.size(); ++i)
    groups[is_decoder ? prompts[i].ids.size() : 0].push_back(i);
  return groups;
}

// A decoder that has already decoded these ids.
tokenizer::StreamingDecoder decoder_after(const tokenizer::Tokenizer& tokenizer,
                                          std::span<const int32_t> ids) {
  tokenizer::StreamingDecoder decoder(tokenizer);
  for (const int32_t id : ids) decoder.push(id);
  if (!ids.empty()) decoder.flush();
  return decoder;
}

}  // namespace

GenerationOptions generation_options(int64_t max_new_tokens, const SamplingOptions& sampling,
                                     const recipe::BeamOptions& beams, int64_t default_beams) {
  return {.max_new_tokens = max_new_tokens,
          .sampling = sampling,
          .num_beams = beams.num_beams.value_or(default_beams),
          .length_penalty = beams.length_penalty,
          .rules = {.repetition_penalty = beams.repetition_penalty,
                    .no_repeat_ngram_size = beams.no_repeat_ngram_size,
                    .min_new_tokens = beams.min_new_tokens}};
}

void print_piece(const std::string& piece) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string text = terminal ? printable_lines(piece) : piece;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

TextGenerator::TextGenerator(exec::Executor& executor, const models::Model& model,
                             const tokenizer::Tokenizer& tokenizer, at::ScalarType compute)
    : model_(executor, model, compute), tokenizer_(tokenizer) {
  if (tokenizer.special().eos >= 0) end_ids_.push_back(tokenizer.special().eos);
  const std::vector<int32_t> ends = tokenizer.ends_of_answers();
  end_ids_.insert(end_ids_.end(), ends.begin(), ends.end());
  // A chat model's config names the token that ends a turn beside eos; a picture model's
  // text_config names the token that ends a caption.
  const nlohmann::json config = model.hugging_face_config();
  add_end_ids(config, end_ids_);
  if (const auto text = config.find("text_config"); text != config.end())
    add_end_ids(*text, end_ids_);
}

GenerationOptions TextGenerator::feasible(const Prompt& prompt, GenerationOptions options) const {
  options.max_new_tokens = std::min(options.max_new_tokens, model_.check(prompt));
  if (options.end_ids.empty()) options.end_ids = end_ids_;
  return options;
}

Generation TextGenerator::decode(GeneratedIds made, std::span<const int32_t> begun,
                                 std::span<const std::string> stops) const {
  tokenizer::StreamingDecoder decoder = decoder_after(tokenizer_, begun);
  StopTexts until(stops);
  Generation result{.text = {}, .ids = std::move(made.ids), .ended = made.ended};
  for (size_t i = 0; i < result.ids.size() && !until.found(); ++i) {
    result.text += until.push(decoder.push(result.ids[i]));
    if (until.found()) result.ids.resize(i + 1);
  }
  result.text += until.push(decoder.flush()) + until.flush();
  result.ended = result.ended || until.found();
  return result;
}

Generation TextGenerator::generate(const GenerationRequest& request) {
  SNUG_CHECK(request.begun.empty() || !model_.decoder_start(),
             "continuing the answer of an encoder-decoder");
  tokenizer::StreamingDecoder decoder = decoder_after(tokenizer_, request.begun);
  StopTexts until(request.stops);
  Prompt prompt = request.prompt;
  prompt.ids.insert(prompt.ids.end(), request.begun.begin(), request.begun.end());
  const auto emit = [&](const std::string& piece) {
    if (request.on_text && !piece.empty()) request.on_text(piece);
  };
  const bool streams = request.options.num_beams == 1;
  GenerationOptions options = feasible(prompt, request.options);
  options.stop = [&, stop = std::move(options.stop)] { return until.found() || (stop && stop()); };
  std::vector<GeneratedIds> made = generate_ids(
      model_, {&prompt, 1}, options,
      streams ? [&](size_t, int32_t id) { emit(until.push(decoder.push(id))); } : OnToken());
  if (streams) emit(until.push(decoder.flush()) + until.flush());
  Generation result = decode(std::move(made.front()), request.begun, request.stops);
  if (!streams) emit(result.text);
  return result;
}

std::vector<Generation> TextGenerator::generate_all(std::span<const Prompt> prompts,
                                                    const GenerationOptions& options,
                                                    int64_t batch_size) {
  std::vector<Generation> results(prompts.size());
  const auto most = static_cast<size_t>(std::max<int64_t>(batch_size, 1));
  for (const auto& [length, group] : by_length(prompts, !model_.decoder_start()))
    for (size_t begin = 0; begin < group.size(); begin += most) {
      const size_t end = std::min(group.size(), begin + most);
      std::vector<Prompt> batch;
      GenerationOptions own = options;
      own.sampling.seed += group[begin];
      for (size_t i = begin; i < end; ++i) {
        own = feasible(prompts[group[i]], std::move(own));
        batch.push_back(prompts[group[i]]);
      }
      std::vector<GeneratedIds> made = generate_ids(model_, batch, own);
      for (size_t i = begin; i < end; ++i) results[group[i]] = decode(std::move(made[i - begin]));
    }
  return results;
}

}  // namespace snug::use
