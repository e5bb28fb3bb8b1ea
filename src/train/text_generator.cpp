// SPDX-License-Identifier: Apache-2.0
#include "train/text_generator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/error.h"
#include "report/text_width.h"
#include "setup/batch.h"

namespace snug::train {

void print_piece(const std::string& piece) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string text = terminal ? report::printable_lines(piece) : piece;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

TextGenerator::TextGenerator(exec::Executor& executor, const models::Model& model,
                             const tokenizer::Tokenizer& tokenizer, at::ScalarType compute)
    : executor_(executor),
      dimensions_(model.dimensions()),
      tokenizer_(tokenizer),
      compute_(compute) {
  if (tokenizer.special().eos >= 0) end_ids_.push_back(tokenizer.special().eos);
  // Chat models end a turn with a token of their own, which their config names beside eos.
  const nlohmann::json config = model.hugging_face_config();
  for (const nlohmann::json& id : config["eos_token_id"].is_array()
                                      ? config["eos_token_id"]
                                      : nlohmann::json::array({config["eos_token_id"]}))
    if (id.is_number_integer()) end_ids_.push_back(id.get<int32_t>());
}

bool TextGenerator::ends(int32_t id) const {
  return std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end();
}

at::Tensor TextGenerator::forward(std::span<const int32_t> ids, nn::KvCache& cache) {
  data::MicroBatch flat;
  flat.input_ids.assign(ids.begin(), ids.end());
  flat.targets.assign(ids.size(), -100);
  flat.positions.resize(ids.size());
  std::iota(flat.positions.begin(), flat.positions.end(), static_cast<int32_t>(cache.length()));
  flat.cu_seqlens = {0, static_cast<int32_t>(ids.size())};
  flat.max_seqlen = static_cast<int64_t>(ids.size());
  nn::Batch batch = setup::to_device(flat, executor_.device());
  batch.cache = &cache;
  return executor_.last_logits(batch, compute_).cpu();  // where the next token is chosen
}

Generation TextGenerator::generate(const GenerationRequest& request) {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens == 0) throw UserError("the prompt is empty");
  const int32_t last = *std::max_element(request.prompt.begin(), request.prompt.end());
  if (last >= dimensions_.vocabulary)
    throw UserError(
        "the prompt has token {}, the model's embedding {} rows: the tokenizer belongs to another "
        "model",
        last, dimensions_.vocabulary);
  const int64_t room = dimensions_.max_positions - prompt_tokens;
  if (room <= 0)
    throw UserError("the prompt has {} tokens, the model can see {}; shorten it", prompt_tokens,
                    dimensions_.max_positions);
  const int64_t wanted = std::min(request.max_new_tokens, room);
  nn::KvCache cache({dimensions_.num_layers, dimensions_.num_kv_heads_here, dimensions_.head_dim,
                     prompt_tokens + wanted},
                    executor_.device(), compute_);
  TokenSampler sampler(request.sampling);
  tokenizer::StreamingDecoder decoder(tokenizer_);
  Generation result;
  const auto emit = [&](const std::string& piece) {
    result.text += piece;
    if (request.on_text && !piece.empty()) request.on_text(piece);
  };
  at::Tensor logits = forward(request.prompt, cache);
  while (static_cast<int64_t>(result.ids.size()) < wanted) {
    const int32_t id =
        sampler.next({logits.const_data_ptr<float>(), static_cast<size_t>(dimensions_.vocabulary)});
    if (ends(id)) {
      result.ended = true;
      break;
    }
    result.ids.push_back(id);
    emit(decoder.push(id));
    if (static_cast<int64_t>(result.ids.size()) < wanted) logits = forward({&id, 1}, cache);
  }
  emit(decoder.flush());
  return result;
}

}  // namespace snug::train
