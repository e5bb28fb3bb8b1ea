// A model of two small blocks and random samples, for tests that train.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/mismatched.h"
#include "data/sample_store.h"
#include "engine/labels.h"
#include "engine/run.h"
#include "engine/steps/objective.h"
#include "models/family.h"
#include "recipe/recipe.h"
#include "recipe/tables/objectives.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug::tests {

inline std::unique_ptr<models::Model> tiny_model(const std::string& shape = "llama") {
  return models::model_from_config(tests::source_dir() / "tests/data/parity" / shape /
                                   "config.json");
}

// Each begins with what `reading` asks for: a picture's places, and a source before the target.
// Where pictures may be anywhere, sample i has i % 3 of them, of which the last is among the text.
inline data::SampleStore random_samples(int count, int longest, uint32_t seed,
                                        const data::Reading& reading = {}) {
  std::mt19937 random(seed);
  data::SampleStore store;
  for (int i = 0; i < count; ++i) {
    data::Sample sample;
    const int length = 2 + static_cast<int>(random() % static_cast<uint32_t>(longest - 1));
    const auto add_picture = [&] {
      sample.ids.insert(sample.ids.end(), static_cast<size_t>(reading.num_picture_tokens),
                        reading.picture_token);
      sample.labels.resize(sample.ids.size(), -100);
      ++sample.num_pictures;
    };
    const int pictures = reading.image_size == 0 ? 0 : reading.pictures_anywhere ? i % 3 : 1;
    for (int p = 0; p < (reading.pictures_anywhere ? pictures - 1 : pictures); ++p) add_picture();
    if (reading.source)
      for (int t = 0; t < 1 + i % 4; ++t) sample.ids.push_back(static_cast<int32_t>(random() % 96));
    sample.labels.resize(sample.ids.size(), -100);
    sample.source_tokens = reading.source ? std::ssize(sample.ids) : 0;
    for (int t = 0; t < length; ++t) {
      if (t == length / 2 && sample.num_pictures < pictures) add_picture();
      sample.ids.push_back(static_cast<int32_t>(random() % 96));
      sample.labels.push_back(t < length / 3 ? -100 : sample.ids.back());
    }
    store.append(sample);
  }
  return store;
}

// The same with the head that the recipe's objective trains: for two labels, or for a reward.
inline std::unique_ptr<models::Model> model_for(const recipe::Recipe& recipe,
                                                const std::string& shape = "llama") {
  models::Checkpoint made{.model = tiny_model(shape)};
  engine::prepare_head(made, recipe, /*tokenizer=*/nullptr);
  return std::move(made.model);
}

// Of two such samples the second may begin as the first does, up to its first target.
inline data::SampleStore samples_with_prompts(int count, int longest, uint32_t seed) {
  const data::SampleStore apart = random_samples(2 * count, longest, seed);
  data::SampleStore store;
  for (int i = 0; i < 2 * count; ++i) {
    data::Sample sample = apart.sample(i);
    const data::Sample first = apart.sample(i / 2 * 2);
    if (i % 2 == 1 && i % 3 > 0) {
      const auto prompt =
          std::ranges::find_if(first.labels, [](int32_t label) { return label >= 0; }) -
          first.labels.begin();
      sample.ids.insert(sample.ids.begin(), first.ids.begin(), first.ids.begin() + prompt);
      sample.labels.insert(sample.labels.begin(), static_cast<size_t>(prompt), -100);
      sample.ids.resize(std::min<size_t>(sample.ids.size(), static_cast<size_t>(longest)));
      sample.labels.resize(sample.ids.size());
    }
    store.append(sample);
  }
  return store;
}

// What somebody says of each token: some of the first ids, each with a part of the probability.
inline data::ColumnOfNumbers teachers_column(const data::SampleStore& store, int64_t top_k,
                                             std::mt19937& random) {
  data::ColumnOfNumbers column{.is_per_target = true, .width = 2 * top_k};
  for (int64_t i = 0; i < store.num_different(); ++i)
    for (int64_t token = 0; token < store.whole_length(i); ++token) {
      const auto first = static_cast<int64_t>(random() % 8);
      for (int64_t k = 0; k < top_k; ++k) column.values.push_back(static_cast<float>(first + k));
      for (int64_t k = 0; k < top_k; ++k)
        column.values.push_back(
            -std::log(static_cast<float>(top_k + 1) + static_cast<float>(random() % 9)));
    }
  return column;
}

// Draws numbers for the columns that an objective reads beside these samples; a document that is
// scored is scored at its last token.
inline void draw_columns(data::SampleStore& store, const nn::Objective& objective, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<data::ColumnOfNumbers> columns;
  const auto drawn = [&](const std::string& column, int64_t index, int64_t document) {
    if (column == "tokens")
      return static_cast<float>(std::ssize(store.document(index, document).stored));
    return column == "label" ? static_cast<float>(random() % 2)
                             : -static_cast<float>(random() % 1000) / 10.0F;
  };
  for (const nn::Column& column : objective.batch().columns) {
    std::vector<float>& values = columns.emplace_back().values;
    if (column.per == nn::Column::Per::Target) {
      columns.back() = teachers_column(store, column.width / 2, random);
      continue;
    }
    for (int64_t i = 0; i < store.num_different(); ++i)
      for (int64_t d = 0; d < store.documents_per_sample(); ++d)
        values.push_back(drawn(column.name, i, d));
  }
  store.set_columns(std::move(columns));
}

// Samples for any objective, pairs of documents or single ones, with what it reads beside them.
inline data::SampleStore random_answers(int count, int longest, uint32_t seed,
                                        const recipe::ObjectiveOptions& options) {
  recipe::Recipe recipe;
  recipe.objective = options;
  const auto objective = engine::validation_objective(recipe);
  const int64_t documents = objective->batch().documents_per_sample;
  data::SampleStore store = documents == 2 ? samples_with_prompts(count, longest, seed)
                                           : random_samples(count, longest, seed);
  draw_columns(store, *objective, seed);
  store.group(documents);
  if (documents == 2 && options.share_prompt) store.share_prompts(/*least=*/0);
  return store;
}

// Their prompts with answers to others, where the objective wants an estimate of these; else none.
inline data::SampleStore others_of(const data::SampleStore& samples, const recipe::Recipe& recipe) {
  const auto objective = engine::validation_objective(recipe);
  if (objective->estimate() == nullptr) return {};
  data::SampleStore others = data::mismatched(samples, data::mismatch(samples), 0);
  draw_columns(others, *objective->estimate(), 77);
  return others;
}

inline recipe::Recipe tiny_recipe() {
  recipe::Recipe recipe;
  recipe.precision = "32-true";
  recipe.train.global_batch_size = 8;
  recipe.train.micro_batch_size = 8;
  recipe.optimizer = {.name = "adamw", .lr = 1e-2, .weight_decay = 0.01};
  return recipe;
}

// The place for optimizer_offload and weight_offload: the file there has no name, so that nothing
// is left in that folder.
inline std::string on_disk() { return "disk:" + std::filesystem::temp_directory_path().string(); }

inline data::MicroBatchOptions batch_options(const recipe::Recipe& recipe,
                                             const models::Model& model) {
  return {.packing = recipe.data.packing,
          .ignore_index = static_cast<int32_t>(recipe.data.ignore_index),
          .reading = model.reads()};
}

// The pictures of these samples where the model looks at some: noise that a sample's number gives.
inline void add_pictures(data::MicroBatch& batch, const data::SampleStore& store,
                         std::span<const int64_t> samples) {
  for (const int64_t sample : samples) {
    std::mt19937 random(static_cast<uint32_t>(sample));
    const int64_t pictures = batch.image_size > 0 ? store.num_pictures(sample) : 0;
    for (int64_t i = 0; i < pictures * batch.image_size * batch.image_size * 3; ++i)
      batch.pixels.push_back(static_cast<uint8_t>(random()));
  }
}

// What a plan is told of the other documents of these samples; none: there are none.
inline std::optional<data::MicroBatch> others_batch(const data::SampleStore& samples,
                                                    std::span<const int64_t> indices,
                                                    const recipe::Recipe& recipe,
                                                    const models::Model& model) {
  const data::SampleStore others = others_of(samples, recipe);
  if (others.empty()) return std::nullopt;
  return data::make_micro_batch(others, indices, batch_options(recipe, model));
}

class TinyBatches final : public data::BatchSource {
 public:
  TinyBatches(const data::SampleStore& samples, const data::MicroBatchOptions& options)
      : TinyBatches(samples, {}, options) {}
  TinyBatches(const data::SampleStore& samples, data::SampleStore others,
              const data::MicroBatchOptions& options)
      : samples_(samples), others_(std::move(others)), tokens_(samples, others_, options) {}
  std::shared_ptr<const data::MicroBatch> make(std::span<const int64_t> indices) override {
    auto batch = std::make_shared<data::MicroBatch>(*tokens_.make(indices));
    add_pictures(*batch, samples_, indices);
    return batch;
  }
  BatchSource* others() override { return tokens_.others(); }

 private:
  const data::SampleStore& samples_;
  data::SampleStore others_;
  data::TokenBatchSource tokens_;
};

// The host memory that a GPU run takes meanwhile and no plan counts: a loss and up to four figures
// that are read back, 4 bytes each.
class UncountedOnTheHost {
 public:
  UncountedOnTheHost() : before_(memory::cpu_ledger().allocated()) {
    memory::cpu_ledger().reset_peak();
  }
  void expect_none() const {
    constexpr int64_t kNumbersReadBack = 5 * 4;
    if (!test_device().is_cuda()) return;
    EXPECT_LE(memory::cpu_ledger().at_peak().allocated - before_, kNumbersReadBack)
        << "bytes on the host that are in no plan";
  }

 private:
  int64_t before_;
};

// A run over `samples` of a model with random weights.
struct TinyRun {
  explicit TinyRun(recipe::Recipe r, const data::SampleStore& s, const std::string& shape = "llama",
                   at::Device device = test_device(),
                   std::shared_ptr<dist::Mesh> mesh = dist::single_mesh(),
                   const std::shared_ptr<const nn::Objective>& objective = nullptr)
      : recipe(std::move(r)),
        model(model_for(recipe, shape)),
        batches(
            std::make_unique<TinyBatches>(s, others_of(s, recipe), batch_options(recipe, *model))),
        run(*model, recipe, *batches,
            {.device = device,
             .longest = 128,
             .mesh = std::move(mesh),
             .extensions = {.objective = objective}}) {
    ++num_made;
    engine.fill_weights([](nn::Unit& unit) {
      for (nn::Parameter* parameter : unit.parameters()) parameter->initialize(7, 0.2);
    });
    engine.weights_changed();
  }

  engine::StepResult step(const engine::SampleIndices& micro_batches, double lr) {
    return run.step(micro_batches, lr);
  }

  static inline int64_t num_made = 0;  // by this program; it says how many in the end

  recipe::Recipe recipe;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<data::BatchSource> batches;
  engine::Run run;
  engine::Engine& engine = run.engine();
};

// Samples 0 .. 7 in micro-batches of `size`.
inline engine::SampleIndices eight_in(int64_t size) {
  engine::SampleIndices micro_batches;
  for (int64_t begin = 0; begin < 8; begin += size) {
    micro_batches.emplace_back();
    for (int64_t i = begin; i < begin + size; ++i) micro_batches.back().push_back(i);
  }
  return micro_batches;
}

}  // namespace snug::tests
