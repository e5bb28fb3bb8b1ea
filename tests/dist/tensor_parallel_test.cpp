// Layers that the ranks share compute what one process with the whole model computes: logits, loss,
// every gradient, and training.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "core/memory/ledger.h"
#include "core/nn/objective.h"
#include "engine/batch.h"
#include "engine/parallel/tensor_parallel.h"
#include "ranks_main.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"
#include "use/generate/next_logits.h"

namespace snug {
namespace {

using tests::random_samples;
using tests::tiny_recipe;

int num_ranks() { return test::world().size(); }

dist::MeshShape tensor_mesh_shape() {
  dist::MeshShape shape;
  shape[dist::Axis::Tensor] = num_ranks();
  return shape;
}

std::shared_ptr<dist::Mesh> tensor_mesh() {
  return test::world().make_mesh(tensor_mesh_shape(), at::kCPU);
}

// One of tests/data/parity, with changes to its config.
std::unique_ptr<models::Model> model_of(const std::string& shape, const nlohmann::json& changes) {
  nlohmann::json config;
  std::ifstream(std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/parity" / shape /
                "config.json") >>
      config;
  config.merge_patch(changes);
  const test::TempFolder folder;
  std::ofstream(folder / "config.json") << config;
  return models::model_from_config(folder / "config.json");
}

struct Case {
  std::string name;
  std::string shape;
  nlohmann::json changes;
  std::function<void(recipe::Recipe&)> turn_on = [](recipe::Recipe&) {};
};

// Four key-value heads, so that four ranks have one each.
const nlohmann::json kFourHeads = {{"num_key_value_heads", 4}};

// The same of GPT-2, whose q, k and v are one product.
const nlohmann::json kFourHeadsOfGpt2 = {{"n_head", 4}};

const nlohmann::json kAsItIs = nlohmann::json::object();

// And of BLIP-2's vision model and Q-Former, which have two.
const nlohmann::json kFourHeadsOfPictures = {{"vision_config", {{"num_attention_heads", 4}}},
                                             {"qformer_config", {{"num_attention_heads", 4}}}};

const nlohmann::json kFourHeadsOfBoth = {{"vision_config", {{"num_attention_heads", 4}}},
                                         {"text_config", {{"num_key_value_heads", 4}}}};

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"own head", "llama", kFourHeads},
      {"tied head", "llama3-rope", kFourHeads},
      {"grouped queries",
       "llama",
       {{"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 4}}},
      {"biases", "llama-bias", kAsItIs},
      {"biases of q, k, v, tied head", "qwen2", kFourHeads},
      {"queries that grow with positions", "ministral3", kFourHeads},
      {"sliding window", "ministral", kFourHeads},
      {"norms of heads", "qwen3", kFourHeads},
      {"four norms, capped scores and logits", "gemma2", kFourHeads},
      {"two rotary bases", "gemma3", kFourHeads},
      {"two sizes of heads, keys that are values",
       "gemma4",
       {{"num_attention_heads", 8},
        {"num_key_value_heads", 4},
        {"num_global_key_value_heads", 4},
        {"per_layer_config", nullptr}}},
      {"one layer for q, k and v, and one for gate and up", "phi3", kFourHeads},
      {"neighbours turned, one layer for gate and up, norms by other names", "glm4", kFourHeads},
      {"neighbours turned, biases everywhere", "ernie4-5", kFourHeads},
      {"neighbours turned, a head of its own", "helium", kFourHeads},
      {"norms with an offset, a scaled embedding", "gemma", kFourHeads},
      {"biases of q, k and v, dropout behind the gate", "seed-oss", kFourHeads},
      {"short convolutions", "lfm2", kFourHeads},
      {"short convolutions with biases, adapters beside them", "lfm2-bias", kFourHeads,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3, .target_modules = "all-linear"};
       }},
      {"squared ReLU without a gate", "arcee", kFourHeads},
      {"norms of projections", "olmo2", kFourHeads},
      {"those, windows without the scaling", "olmo3", kFourHeads},
      {"constants, attention with dropout", "granite", kFourHeads},
      {"layers that do not rotate", "smollm3", kFourHeads},
      {"windows rotate alone", "exaone4", kFourHeads},
      {"layer norms and gates", "stablelm", kFourHeads},
      {"biases, dropout of what layers add", "starcoder2", kFourHeads},
      {"each head's q, k and v side by side, dropout", "gpt-neox", {{"attention_dropout", 0.2}}},
      {"adapters with magnitudes beside that", "gpt-neox", kAsItIs,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3, .use_dora = true};
         r.lora.projection = r.lora.mlp = true;
       }},
      {"queries beside the key they share, two norms of one input",
       "falcon-grouped",
       {{"num_kv_heads", 4}}},
      {"those with one norm, own head", "falcon-shared-norm", {{"num_kv_heads", 4}}},
      {"those one after the other, biases", "falcon-serial", kAsItIs},
      {"adapters with magnitudes beside them",
       "falcon-grouped",
       {{"num_kv_heads", 4}},
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3, .use_dora = true};
         r.lora.projection = r.lora.mlp = true;
       }},
      {"uneven vocabulary", "llama", {{"num_key_value_heads", 4}, {"vocab_size", 98}}},
      {"uneven vocabulary, tied head", "qwen2", {{"num_key_value_heads", 4}, {"vocab_size", 99}}},
      {"checkpointing", "llama-bias", kAsItIs,
       [](recipe::Recipe& r) { r.activation_checkpointing = "all"; }},
      {"selective checkpointing", "qwen2", kFourHeads,
       [](recipe::Recipe& r) { r.activation_checkpointing = "selective"; }},
      {"activation offload", "llama", kFourHeads,
       [](recipe::Recipe& r) { r.activation_offload = true; }},
      {"adapters", "llama-bias", kAsItIs,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0};
         r.lora.key = r.lora.projection = r.lora.mlp = r.lora.head = true;
       }},
      {"adapters with dropout", "llama", kFourHeads,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3};
         r.lora.key = r.lora.projection = r.lora.mlp = r.lora.head = true;
       }},
      {"adapters with magnitudes", "qwen2", kFourHeads,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0, .use_dora = true};
         r.lora.key = r.lora.projection = r.lora.mlp = true;
       }},
      {"noise on embeddings", "gemma2", kFourHeads,
       [](recipe::Recipe& r) { r.train.neftune_noise_alpha = 20; }},
      {"OPT, noise on words narrower than layers", "opt-after", kAsItIs,
       [](recipe::Recipe& r) { r.train.neftune_noise_alpha = 20; }},
      // These drop a tenth of their activations.
      {"GPT-2", "gpt2", kFourHeadsOfGpt2},
      {"GPT-2, own head, uneven vocabulary and positions",
       "gpt2-untied",
       {{"n_head", 4}, {"vocab_size", 98}, {"n_positions", 129}}},
      {"GPT-2, selective checkpointing", "gpt2", kFourHeadsOfGpt2,
       [](recipe::Recipe& r) { r.activation_checkpointing = "selective"; }},
      {"GPT-2, adapters with magnitudes", "gpt2", kFourHeadsOfGpt2,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3, .use_dora = true};
         r.lora.projection = r.lora.mlp = true;
       }},
      {"OPT", "opt", kAsItIs},
      {"OPT without biases, own head", "opt-plain", kAsItIs},
      {"OPT, norms behind the layers, checkpointing",
       "opt-after",
       {{"word_embed_proj_dim", 32}},
       [](recipe::Recipe& r) { r.activation_checkpointing = "all"; }},
      {"OPT, words narrower than layers", "opt-after", kAsItIs},
      {"OPT, adapters between words and layers", "opt-after", kAsItIs,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3, .use_dora = true};
         r.lora.target_modules = "project_in,project_out,fc1,out_proj";
       }},
      {"T5", "t5", kAsItIs},
      {"T5, selective checkpointing, uneven vocabulary",
       "t5",
       {{"vocab_size", 98}},
       [](recipe::Recipe& r) { r.activation_checkpointing = "selective"; }},
      {"T5 with gates, own head", "t5-gated", kAsItIs},
      {"T5, adapters with magnitudes", "t5-gated", kAsItIs,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3, .use_dora = true};
         r.lora.key = r.lora.projection = r.lora.mlp = true;
       }},
      {"BLIP-2 over OPT", "blip2-opt", kFourHeadsOfPictures,
       [](recipe::Recipe& r) { r.model.train_parts = "vision,qformer,projection,language"; }},
      {"BLIP-2 over T5", "blip2-t5", kFourHeadsOfPictures,
       [](recipe::Recipe& r) { r.model.train_parts = "vision,qformer,projection,language"; }},
      {"BLIP-2 over T5, what is between trains, checkpointing", "blip2-t5", kFourHeadsOfPictures,
       [](recipe::Recipe& r) {
         r.model.train_parts = "qformer,projection";
         r.activation_checkpointing = "all";
       }},
      {"BLIP-2 over OPT, adapters", "blip2-opt", kFourHeadsOfPictures,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3};
         r.lora.target_modules =
             "qkv,projection,fc1,fc2,query,key,dense,language_projection,q_proj,out_proj";
       }},
      {"Idefics3", "idefics3", kFourHeadsOfBoth,
       [](recipe::Recipe& r) { r.model.train_parts = "vision,projection,language"; }},
      {"SmolVLM, what is between trains, checkpointing", "smolvlm", kFourHeadsOfBoth,
       [](recipe::Recipe& r) {
         r.model.train_parts = "projection";
         r.activation_checkpointing = "all";
       }},
      {"Idefics3, adapters", "idefics3", kFourHeadsOfBoth,
       [](recipe::Recipe& r) {
         r.lora = {.enabled = true, .r = 4, .dropout = 0.3, .use_dora = true};
         r.lora.target_modules = "q_proj,out_proj,fc1,fc2,proj,down_proj";
       }},
  };
  // The same with whole hidden states between the layers.
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    Case plain = all[i];
    plain.name += ", no sequence parallelism";
    plain.turn_on = [own = all[i].turn_on](recipe::Recipe& r) {
      own(r);
      r.sequence_parallel = false;
    };
    all.push_back(std::move(plain));
  }
  return all;
}

struct Training {
  Training(const Case& c, std::shared_ptr<dist::Mesh> mesh, at::Device device = at::kCPU)
      : recipe(recipe_of(c)),
        model(model_of(c.shape, c.changes)),
        batches(samples, tests::batch_options(recipe, *model)),
        run(*model, recipe, batches, {.device = device, .longest = 128, .mesh = std::move(mesh)}) {
    // Adapters' B too, so that what is added beside the weights counts.
    engine.fill_weights([](nn::Unit& unit) {
      for (nn::Parameter* parameter : unit.parameters()) {
        if (parameter->name.ends_with("lora_B.weight")) parameter->init = nn::Init::Normal;
        parameter->initialize(7, 0.2);
      }
    });
    engine.weights_changed();
  }

  static recipe::Recipe recipe_of(const Case& c) {
    recipe::Recipe recipe = tiny_recipe();
    c.turn_on(recipe);
    return recipe;
  }

  recipe::Recipe recipe;
  std::unique_ptr<models::Model> model;
  data::SampleStore samples;  // that its steps take
  tests::TinyBatches batches;
  engine::Run run;
  engine::Engine& engine = run.engine();
};

// A batch with an odd number of tokens, so that ranks differ in their numbers of rows.
data::MicroBatch odd_batch(const Training& run) {
  const data::SampleStore samples = random_samples(8, 40, 5, run.model->reads());
  tests::TinyBatches batches(samples, tests::batch_options(run.recipe, *run.model));
  data::MicroBatch batch = *batches.make(std::vector<int64_t>{0, 1, 2, 3});
  if (batch.input_ids.size() % 2 == 0) batch = *batches.make(std::vector<int64_t>{0, 1, 2});
  return batch;
}

// That, and where samples need no pictures a micro-batch without any, as samples 0 and 3 are.
std::vector<data::MicroBatch> both_batches(const Training& run) {
  std::vector<data::MicroBatch> all{odd_batch(run)};
  if (!run.model->reads().pictures_anywhere) return all;
  const data::SampleStore samples = random_samples(8, 40, 5, run.model->reads());
  tests::TinyBatches batches(samples, tests::batch_options(run.recipe, *run.model));
  all.push_back(*batches.make(std::vector<int64_t>{0, 3}));
  return all;
}

// The softmax does not see a bias that all keys share, unless keys are rotated.
bool is_key_bias(const std::string& name) {
  return std::ranges::any_of(std::array{"k_proj.bias", "key.bias", "c_attn.bias", "qkv.bias"},
                             [&](const char* ending) { return name.ends_with(ending); });
}

nn::Pass training_pass(const data::MicroBatch& batch) {
  static const nn::CrossEntropy smoothed(
      nn::CrossEntropy::Options{.label_smoothing = 0.1, .z_loss = 1e-2});
  return {.gradient_scale = 1.0 / static_cast<double>(batch.loss_tokens),
          .objective = &smoothed,
          .dropout_key = 77};
}

// Relative to the largest element.
void expect_close(const std::string& what, const at::Tensor& actual, const at::Tensor& expected,
                  double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const at::Tensor difference = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs().flatten();
  const double scale = std::max(1e-4, expected.abs().max().item<double>());
  const auto worst = difference.argmax().item<int64_t>();
  EXPECT_LE(difference[worst].item<double>(), tolerance * scale)
      << what << " differs most at flat index " << worst << ": "
      << actual.flatten()[worst].item<double>() << " for "
      << expected.flatten()[worst].item<double>();
}

// float32 sums in another order, through two blocks; a T5's five, a BLIP-2's eight, and a Gemma 4's
// three, whose scores of attention are not divided by anything.
double tolerance_of(const Case& c) {
  for (const char* sensitive : {"t5", "blip2", "gemma4"})
    if (c.shape.starts_with(sensitive)) return 3e-5;
  return 1e-5;
}

TEST(TensorParallel, LogitsLossAndEveryGradient) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Training whole(c, dist::single_mesh());
    Training cut(c, tensor_mesh());
    for (const data::MicroBatch& batch : both_batches(whole)) {
      const nn::Batch tensors = engine::to_device(batch, at::kCPU);
      expect_close("logits", cut.engine.executor->last_logits(tensors, at::kFloat),
                   whole.engine.executor->last_logits(tensors, at::kFloat), tolerance_of(c));
      const nn::Pass pass = training_pass(batch);
      EXPECT_NEAR(cut.engine.executor->objective(tensors, pass),
                  whole.engine.executor->objective(tensors, pass),
                  1e-6 * whole.engine.executor->objective(tensors, pass));
      // Twice: gradients are added to.
      for (int i = 0; i < 2; ++i) {
        const double loss = whole.engine.executor->forward_backward(tensors, pass);
        EXPECT_NEAR(cut.engine.executor->forward_backward(tensors, pass), loss, 1e-6 * loss);
      }
    }
    const auto expected = whole.model->parameters();
    const auto actual = cut.model->parameters();
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(actual[i]->name, expected[i]->name);
      expect_close(expected[i]->name, engine::assemble(*actual[i], actual[i]->value.detach()),
                   expected[i]->value, 0);
      const at::Tensor wanted = expected[i]->value.grad();
      if (!wanted.defined()) continue;
      const at::Tensor found = engine::assemble(*actual[i], actual[i]->value.grad());
      if (is_key_bias(expected[i]->name) && wanted.abs().max().item<double>() < 1e-6)
        EXPECT_LE((found - wanted).abs().max().item<double>(), 3e-7) << expected[i]->name;
      else
        expect_close("gradient of " + expected[i]->name, found, wanted, tolerance_of(c));
    }
  }
}

constexpr double kLearningRate = 1e-3;
constexpr int kSteps = 20;  // at most

// Weights after training, relative to the largest of each tensor. What a key's bias has for a
// gradient is rounding, which Adam brings to the size of a step.
void expect_same_weights(models::Model& whole, models::Model& cut, double tolerance) {
  const auto expected = whole.parameters();
  const auto actual = cut.parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor found = engine::assemble(*actual[i], actual[i]->kept().detach());
    const at::Tensor wanted = expected[i]->kept().detach();
    if (is_key_bias(expected[i]->name))
      EXPECT_LE((found - wanted).abs().max().item<double>(), kSteps * kLearningRate);
    else
      expect_close(expected[i]->name, found, wanted, tolerance);
  }
}

data::SampleStore samples_for(const Case& c) {
  return random_samples(8, 40, 5, model_of(c.shape, c.changes)->reads());
}

struct Trained {
  std::vector<double> losses, norms;
};

// This process's share of eight samples, in micro-batches of two.
Trained train(Training& run, const data::SampleStore& samples, int steps) {
  run.samples = samples;
  const dist::Group& data = run.engine.mesh->data();
  engine::SampleIndices own;
  for (int64_t begin = data.rank() * 8 / data.size(); begin < (data.rank() + 1) * 8 / data.size();
       begin += 2)
    own.push_back({begin, begin + 1});
  Trained result;
  for (int i = 0; i < steps; ++i) {
    const engine::StepResult step = run.run.step(own, kLearningRate);
    result.losses.push_back(step.loss);
    result.norms.push_back(step.grad_norm);
  }
  return result;
}

std::vector<Case> training_cases() {
  const auto with = [](auto change) {
    return [change](recipe::Recipe& r) {
      r.train.micro_batch_size = 2;
      r.train.max_norm = 0.5;
      change(r);
    };
  };
  return {{"own head", "llama", kFourHeads, with([](recipe::Recipe&) {})},
          {"biases, whole hidden states", "llama-bias", kAsItIs,
           with([](recipe::Recipe& r) { r.sequence_parallel = false; })},
          {"tied head, smoothing, optimizer in backward", "qwen2", kFourHeads,
           with([](recipe::Recipe& r) {
             r.optimizer_in_backward = true;
             r.train.label_smoothing = 0.1;
             r.train.z_loss = 1e-3;
           })},
          {"optimizer offload, checkpointing", "mistral", kFourHeads, with([](recipe::Recipe& r) {
             r.optimizer_offload = "cpu";
             r.activation_checkpointing = "all";
           })},
          {"weight streaming", "llama", kFourHeads, with([](recipe::Recipe& r) {
             r.optimizer_offload = "cpu";
             r.weight_streaming = true;
           })},
          {"adapters", "llama", kFourHeads, with([](recipe::Recipe& r) {
             r.lora = {.enabled = true, .r = 4, .dropout = 0.1};
             r.lora.key = r.lora.projection = r.lora.mlp = r.lora.head = true;
           })},
          {"GPT-2", "gpt2", kFourHeadsOfGpt2, with([](recipe::Recipe&) {})},
          {"OPT, offload, checkpointing", "opt", kAsItIs, with([](recipe::Recipe& r) {
             r.optimizer_offload = "cpu";
             r.activation_checkpointing = "all";
           })},
          {"OPT, words narrower than layers", "opt-after", kAsItIs, with([](recipe::Recipe&) {})},
          {"T5", "t5", kAsItIs, with([](recipe::Recipe&) {})},
          {"BLIP-2 over T5", "blip2-t5", kFourHeadsOfPictures,
           with([](recipe::Recipe& r) { r.model.train_parts = "qformer,projection,language"; })},
          {"BLIP-2 over OPT, adapters beside a whole Q-Former", "blip2-opt", kFourHeadsOfPictures,
           with([](recipe::Recipe& r) {
             r.lora = {.enabled = true, .r = 4, .dropout = 0.1};
             r.model.train_parts = "qformer,projection";
           })},
          {"Idefics3", "idefics3", kFourHeadsOfBoth,
           with([](recipe::Recipe& r) { r.model.train_parts = "vision,projection,language"; })},
          {"SmolVLM, adapters beside a whole connector", "smolvlm", kFourHeadsOfBoth,
           with([](recipe::Recipe& r) {
             r.lora = {.enabled = true, .r = 4, .dropout = 0.1};
             r.model.train_parts = "projection";
           })}};
}

TEST(TensorParallel, TwentyStepsTrainAsOneProcessDoes) {
  for (const Case& c : training_cases()) {
    SCOPED_TRACE(c.name);
    const data::SampleStore samples = samples_for(c);
    Training whole(c, dist::single_mesh());
    Training cut(c, tensor_mesh());
    const Trained expected = train(whole, samples, kSteps);
    const Trained found = train(cut, samples, kSteps);
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-6 * expected.losses[i]) << "step " << i;
      EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-4 * expected.norms[i]) << "step " << i;
    }
    expect_same_weights(*whole.model, *cut.model, 1e-4);
  }
}

// Layers shared by pairs of ranks, and samples among the pairs.
TEST(TensorParallel, WithReplicasAndShards) {
  if (num_ranks() != 4) GTEST_SKIP() << "two pairs are four ranks";
  for (const Case& c : training_cases())
    for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
      SCOPED_TRACE(c.name + ", " + strategy);
      Case shared = c;
      shared.turn_on = [&](recipe::Recipe& r) {
        c.turn_on(r);
        r.strategy = strategy;
        r.mesh = r.strategy == "ddp" ? "dp=2,tp=2" : "fsdp=2,tp=2";
      };
      dist::MeshShape shape;
      shape[dist::Axis::Tensor] = 2;
      shape[std::string(strategy) == "ddp" ? dist::Axis::Replicate : dist::Axis::Shard] = 2;
      // Weights in host memory are cut by fsdp alone.
      if (c.name == "weight streaming" && strategy != std::string("fsdp")) continue;
      const data::SampleStore samples = samples_for(c);
      Training whole(c, dist::single_mesh());
      Training many(shared, test::world().make_mesh(shape, at::kCPU));
      const Trained expected = train(whole, samples, 5);
      const Trained found = train(many, samples, 5);
      for (size_t i = 0; i < expected.losses.size(); ++i) {
        EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-6 * expected.losses[i]) << "step " << i;
        EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-4 * expected.norms[i]) << "step " << i;
      }
    }
}

// Two prompts side by side, with a picture each where the model looks at one; then token by token
// with what the cache holds.
class Generation : public testing::TestWithParam<Case> {};

std::vector<use::Prompt> two_prompts(const data::Reading& reads) {
  std::vector<use::Prompt> prompts(2);
  int32_t number = 0;
  for (use::Prompt& prompt : prompts) {
    number += 7;
    prompt.ids.assign(static_cast<size_t>(reads.num_picture_tokens), reads.picture_token);
    for (int32_t i = 0; i < 5; ++i) prompt.ids.push_back((number + 31 * i) % 90);
    for (int64_t i = 0; i < 3 * reads.image_size * reads.image_size; ++i)
      prompt.picture.push_back(static_cast<uint8_t>(i * number));
  }
  return prompts;
}

TEST_P(Generation, HasTheSameLogits) {
  const Case& c = GetParam();
  Training whole(c, dist::single_mesh());
  Training cut(c, tensor_mesh());
  use::ModelLogits expected(*whole.engine.executor, *whole.model, at::kFloat);
  use::ModelLogits found(*cut.engine.executor, *cut.model, at::kFloat);
  const std::vector<use::Prompt> prompts = two_prompts(whole.model->reads());
  constexpr int kNewTokens = 4;
  expect_close("logits of the prompts", found.start(prompts, kNewTokens),
               expected.start(prompts, kNewTokens), tolerance_of(c));
  for (int32_t i = 0; i < kNewTokens; ++i) {
    const std::vector<int32_t> ids{i * 31 % 90, i * 17 % 90};
    expect_close("logits after token " + std::to_string(i), found.next(ids), expected.next(ids),
                 tolerance_of(c));
  }
}

INSTANTIATE_TEST_SUITE_P(
    TensorParallel, Generation,
    testing::Values(Case{"rotary", "qwen2", kFourHeads},
                    Case{"windows and caps", "gemma2", kFourHeads},
                    Case{"each head's q, k and v side by side", "gpt-neox", kAsItIs},
                    Case{"one product of q, k and v", "gpt2", kFourHeadsOfGpt2},
                    Case{"learned positions", "opt", kAsItIs},
                    Case{"words narrower than layers", "opt-after", kAsItIs},
                    Case{"encoder", "t5", kAsItIs},
                    Case{"pictures", "blip2-opt", kFourHeadsOfPictures},
                    Case{"pictures and encoder", "blip2-t5", kFourHeadsOfPictures},
                    Case{"pictures among text", "idefics3", kFourHeadsOfBoth}));

// 4-bit codes of a slice are the whole's where blocks of 64 lie within it.
TEST(TensorParallel, QuantizedWeightsHaveTheWholesCodes) {
  const Case c{"nf4",
               "llama",
               {{"hidden_size", 128},
                {"num_attention_heads", 4},
                {"num_key_value_heads", 4},
                {"head_dim", 64},
                {"intermediate_size", 256}},
               [](recipe::Recipe& r) {
                 r.quantize = "bnb.nf4";
                 r.lora = {.enabled = true, .r = 4, .dropout = 0, .use_dora = true};
                 r.lora.key = r.lora.projection = r.lora.mlp = true;
               }};
  Training whole(c, dist::single_mesh());
  Training cut(c, tensor_mesh());
  const data::MicroBatch batch = odd_batch(whole);
  const nn::Batch tensors = engine::to_device(batch, at::kCPU);
  const nn::Pass pass = training_pass(batch);
  const double loss = whole.engine.executor->forward_backward(tensors, pass);
  EXPECT_NEAR(cut.engine.executor->forward_backward(tensors, pass), loss, 1e-6 * loss);
  const auto expected = whole.model->parameters();
  const auto actual = cut.model->parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    if (expected[i]->value.grad().defined())
      expect_close("gradient of " + expected[i]->name,
                   engine::assemble(*actual[i], actual[i]->value.grad()), expected[i]->value.grad(),
                   tolerance_of(c));
}

// Partial sums are rounded before they are added up.
TEST(TensorParallel, SixteenBitsComeClose) {
  for (const char* precision : {"bf16-true", "bf16-mixed"}) {
    SCOPED_TRACE(precision);
    const Case c{precision, "llama", kFourHeads,
                 [&](recipe::Recipe& r) { r.precision = precision; }};
    Training whole(c, dist::single_mesh());
    Training cut(c, tensor_mesh());
    const data::MicroBatch batch = odd_batch(whole);
    const nn::Batch tensors = engine::to_device(batch, at::kCPU);
    nn::Pass pass = training_pass(batch);
    pass.compute = at::kBFloat16;
    const double loss = whole.engine.executor->forward_backward(tensors, pass);
    EXPECT_NEAR(cut.engine.executor->forward_backward(tensors, pass), loss, 2e-3 * loss);
    const auto expected = whole.model->parameters();
    const auto actual = cut.model->parameters();
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor wanted = expected[i]->value.grad().to(at::kFloat);
      const at::Tensor found = engine::assemble(*actual[i], actual[i]->value.grad()).to(at::kFloat);
      EXPECT_LE((found - wanted).norm().item<double>(), 0.05 * wanted.norm().item<double>())
          << expected[i]->name;
    }
  }
}

// What is whole on every rank stays the same to the bit.
TEST(TensorParallel, RanksKeepTheSameNorms) {
  const data::SampleStore samples = random_samples(8, 40, 5);
  const Case c{"bits", "llama-bias", kAsItIs, [](recipe::Recipe& r) { r.precision = "bf16-true"; }};
  const auto mesh = tensor_mesh();
  Training cut(c, mesh);
  train(cut, samples, 3);
  dist::Group& group = mesh->group(dist::Axis::Tensor);
  for (const nn::Parameter* parameter : cut.model->parameters()) {
    if (parameter->slice) continue;
    const at::Tensor own = parameter->value.detach().contiguous();
    const at::Tensor all = at::empty({group.size(), own.numel()}, own.options());
    group.wait(group.all_gather(all, own));
    for (int rank = 0; rank < group.size(); ++rank)
      EXPECT_TRUE(at::equal(all[rank], own.flatten())) << parameter->name;
  }
}

TEST(TensorParallel, PlanIsTheMeasurementToTheByte) {
  std::vector<Case> all = cases();
  for (const Case& c : training_cases()) all.push_back(c);
  for (const char* precision : {"bf16-true", "bf16-mixed", "16-mixed"})
    all.push_back(
        {precision, "llama", kFourHeads, [=](recipe::Recipe& r) { r.precision = precision; }});
  for (const Case& c : all) {
    SCOPED_TRACE(c.name);
    const data::SampleStore samples = samples_for(c);
    const auto mesh = tensor_mesh();
    const int64_t before = memory::cpu_ledger().allocated();
    const int64_t host_before = memory::cpu_host_ledger().allocated();
    memory::cpu_ledger().reset_peak();
    memory::cpu_host_ledger().reset_peak();
    recipe::Recipe recipe;
    {
      Training cut(c, mesh);
      recipe = cut.recipe;
      train(cut, samples, 1);
    }
    const int64_t peak = memory::cpu_ledger().at_peak().allocated - before;
    const int64_t host_peak = memory::cpu_host_ledger().at_peak().allocated - host_before;
    EXPECT_EQ(memory::cpu_ledger().allocated(), before) << "bytes left behind";
    const int64_t meta_before = memory::meta_ledger().allocated();
    const int64_t meta_host_before = memory::meta_host_ledger().allocated();
    memory::meta_ledger().reset_peak();
    memory::meta_host_ledger().reset_peak();
    {
      Training planned(c, dist::planned_mesh(tensor_mesh_shape(), mesh->rank()), at::kMeta);
      train(planned, samples, 1);
    }
    EXPECT_EQ(memory::meta_ledger().at_peak().allocated - meta_before, peak);
    EXPECT_EQ(memory::meta_host_ledger().at_peak().allocated - meta_host_before, host_peak);
  }
}

}  // namespace
}  // namespace snug
