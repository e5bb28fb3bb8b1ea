// SPDX-License-Identifier: Apache-2.0
#include "use/generate/next_logits.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/micro_batch.h"
#include "engine/batch.h"

namespace snug::use {
namespace {

constexpr int32_t kNoTarget = -100;

// Packed documents, for a decoder or an encoder.
struct Packed {
  std::vector<int32_t> ids, positions, cu_seqlens = {0};
  int64_t max_seqlen = 0;

  void add(std::span<const int32_t> document, int64_t first_position) {
    ids.insert(ids.end(), document.begin(), document.end());
    for (size_t i = 0; i < document.size(); ++i)
      positions.push_back(static_cast<int32_t>(first_position) + static_cast<int32_t>(i));
    cu_seqlens.push_back(static_cast<int32_t>(ids.size()));
    max_seqlen = std::max(max_seqlen, std::ssize(document));
  }
};

void set_documents(data::MicroBatch& batch, Packed packed) {
  batch.targets.assign(packed.ids.size(), kNoTarget);
  batch.input_ids = std::move(packed.ids);
  batch.positions = std::move(packed.positions);
  batch.cu_seqlens = std::move(packed.cu_seqlens);
  batch.max_seqlen = packed.max_seqlen;
}

void set_source(data::MicroBatch& batch, Packed packed) {
  batch.source_ids = std::move(packed.ids);
  batch.source_positions = std::move(packed.positions);
  batch.source_cu_seqlens = std::move(packed.cu_seqlens);
  batch.source_max_seqlen = packed.max_seqlen;
}

}  // namespace

ModelLogits::ModelLogits(exec::Executor& executor, const models::Model& model,
                         at::ScalarType compute)
    : executor_(executor),
      dimensions_(model.dimensions()),
      reads_(model.reads()),
      compute_(compute) {}

std::optional<int32_t> ModelLogits::decoder_start() const {
  if (!reads_.source) return std::nullopt;
  return reads_.decoder_start_token;
}

int64_t ModelLogits::check(const Prompt& prompt) const {
  const int64_t tokens = std::ssize(prompt.ids);
  if (tokens == 0) throw UserError("the prompt is empty");
  const int32_t last = *std::max_element(prompt.ids.begin(), prompt.ids.end());
  if (last >= dimensions_.vocabulary)
    throw UserError(
        "the prompt contains token {}, but the model's embedding has {} rows: the tokenizer "
        "belongs to another model",
        last, dimensions_.vocabulary);
  const int64_t picture_bytes = 3 * reads_.image_size * reads_.image_size;
  const int64_t pictures = prompt.picture.empty() ? 0 : std::ssize(prompt.picture) / picture_bytes;
  const auto places = std::count(prompt.ids.begin(), prompt.ids.end(), reads_.picture_token);
  if (reads_.num_picture_tokens > 0 && places != pictures * reads_.num_picture_tokens)
    throw UserError(
        "the prompt contains {} picture tokens, and the model needs {}: leave the placeholder "
        "(<image>) out of the text, snug inserts it",
        places, pictures * reads_.num_picture_tokens);
  const int64_t room = dimensions_.max_positions - (reads_.source ? 1 : tokens);
  if (room <= 0 || tokens > dimensions_.max_positions)
    throw UserError("the prompt has {} tokens, and the model takes at most {}; shorten it", tokens,
                    dimensions_.max_positions);
  return room;
}

at::Tensor ModelLogits::start(std::span<const Prompt> prompts, int64_t max_new_tokens) {
  Packed packed, starts;
  data::MicroBatch batch;
  for (const Prompt& prompt : prompts) {
    if (!prompt.picture.empty())
      for (size_t i = 0; i < prompt.ids.size(); ++i)
        if (prompt.ids[i] == reads_.picture_token)
          batch.picture_rows.push_back(static_cast<int32_t>(packed.ids.size() + i));
    packed.add(prompt.ids, 0);
    starts.add({&reads_.decoder_start_token, 1}, 0);
    batch.pixels.insert(batch.pixels.end(), prompt.picture.begin(), prompt.picture.end());
  }
  if (!batch.pixels.empty()) {
    batch.image_size = reads_.image_size;
    batch.num_pictures = std::ssize(batch.picture_rows) / reads_.num_picture_tokens;
  }
  const int64_t before = reads_.source ? 1 : packed.max_seqlen;
  SNUG_CHECK(reads_.source || std::ssize(packed.ids) == before * std::ssize(prompts),
             "prompts of different lengths in one batch");
  if (reads_.source) {
    set_source(batch, std::move(packed));
    set_documents(batch, std::move(starts));
  } else {
    set_documents(batch, std::move(packed));
  }
  cache_.reset();
  cache_.emplace(before + max_new_tokens, std::ssize(prompts));
  return run(engine::to_device(batch, executor_.device()));
}

at::Tensor ModelLogits::next(std::span<const int32_t> ids) {
  Packed packed;
  for (const int32_t& id : ids) packed.add({&id, 1}, cache_->length());
  data::MicroBatch batch;
  set_documents(batch, std::move(packed));
  return run(engine::to_device(batch, executor_.device()));
}

void ModelLogits::select(const std::vector<int64_t>& from) {
  std::vector<int64_t> same(static_cast<size_t>(cache_->num_sequences()));
  std::iota(same.begin(), same.end(), int64_t{0});
  if (from != same) cache_->select(from);
}

at::Tensor ModelLogits::run(nn::Batch batch) {
  batch.cache = &*cache_;
  return executor_.last_logits(batch, compute_).slice(1, 0, dimensions_.vocabulary);
}

}  // namespace snug::use
