// A model cut for one rank of many: what it loads, draws and refuses. What ranks compute together:
// tests/dist/tensor_parallel_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/tensor_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "core/dist/mesh.h"
#include "core/memory/ledger.h"
#include "core/ops/linear/stored_weight.h"
#include "engine/adapters/adapters.h"
#include "engine/export/export.h"
#include "models/family.h"
#include "recipe/mesh.h"
#include "support/temp_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::engine {
namespace tensor_parallel_test {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kData = fs::path(SNUG_SOURCE_DIR) / "tests/data";

std::shared_ptr<dist::Mesh> mesh_of_rank(int rank, int ranks) {
  dist::MeshShape shape;
  shape[dist::Axis::Tensor] = ranks;
  return dist::planned_mesh(shape, rank);
}

void cut_for(models::Model& model, const dist::Mesh& mesh, const recipe::Recipe& recipe = {}) {
  cut_tensors(model, recipe, mesh);
}

class CutModel : public testing::Test {
 protected:
  void SetUp() override { memory::install_allocators(); }

  void write_config(const json& changes) {
    json config = json::parse(read_file(kData / "parity/llama-bias/config.json"));
    config["vocab_size"] = 304;
    config.update(changes);
    write_file_atomically(folder_ / "config.json", config.dump());
  }
  std::unique_ptr<models::Model> make() {
    return models::model_from_config(folder_ / "config.json");
  }
  // With other numbers in every element of every parameter.
  std::unique_ptr<models::Model> make_filled() {
    auto model = make();
    for (nn::Parameter* parameter : model->parameters()) {
      parameter->allocate(at::kCPU, at::kFloat);
      parameter->init = nn::Init::Normal;
      parameter->initialize(3, 1.0);
    }
    return model;
  }

  test::TempFolder folder_;
};

// Rows here of the one parameter with this end of its name.
int64_t rows_of(models::Model& model, std::string_view ending) {
  for (const nn::Parameter* parameter : model.parameters())
    if (parameter->name.ends_with(ending)) return parameter->shape[0];
  ADD_FAILURE() << ending;
  return 0;
}

// The elements of a whole tensor that a parameter's slice is.
at::Tensor slice_of(const at::Tensor& whole, const nn::Parameter& parameter) {
  if (!parameter.slice) return whole.detach();
  const int64_t dim = parameter.slice->dim, sections = parameter.slice->sections;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& section : whole.detach().chunk(sections, dim))
    parts.push_back(section.narrow(dim, parameter.slice->begin,
                                   parameter.shape[static_cast<size_t>(dim)] / sections));
  return at::cat(parts, dim);
}

// Each of four ranks loads its slices of the whole model's weights from a checkpoint.
void expect_slices(models::Model& whole, const fs::path& path) {
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(path.string() + ", rank " + std::to_string(rank));
    const auto mesh = mesh_of_rank(rank, 4);
    models::Checkpoint checkpoint = models::open_checkpoint(path);
    cut_for(*checkpoint.model, *mesh);
    for (nn::Parameter* parameter : checkpoint.model->parameters())
      parameter->allocate(at::kCPU, at::kFloat);
    models::load_weights(checkpoint);
    const auto wanted = whole.parameters();
    const auto found = checkpoint.model->parameters();
    for (size_t i = 0; i < found.size(); ++i) {
      const at::Tensor expected = slice_of(wanted[i]->value, *found[i]);
      EXPECT_TRUE(at::equal(found[i]->value.detach(), expected)) << found[i]->name;
      EXPECT_TRUE(at::equal(models::read_parameter(checkpoint, *found[i], at::kFloat), expected))
          << found[i]->name;
    }
  }
}

TEST_F(CutModel, SlicesMakeUpTheWholeAndDrawItsNumbers) {
  write_config({{"vocab_size", 307}});
  const auto whole = make_filled();
  for (const int ranks : {2, 4}) {
    std::map<std::string, int64_t> elements;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto mesh = mesh_of_rank(rank, ranks);
      const auto model = make();
      cut_for(*model, *mesh);
      const auto wanted = whole->parameters();
      const auto found = model->parameters();
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t i = 0; i < found.size(); ++i) {
        found[i]->allocate(at::kCPU, at::kFloat);
        found[i]->init = nn::Init::Normal;
        found[i]->initialize(3, 1.0);
        EXPECT_TRUE(at::equal(found[i]->value.detach(), slice_of(wanted[i]->value, *found[i])))
            << found[i]->name << " of rank " << rank;
        EXPECT_EQ(found[i]->whole_shape(), wanted[i]->shape);
        EXPECT_EQ(found[i]->counts_here(), found[i]->slice.has_value() || rank == 0);
        elements[found[i]->name] += found[i]->counts_here() ? found[i]->num_elements() : 0;
      }
    }
    for (const nn::Parameter* parameter : whole->parameters())
      EXPECT_EQ(elements[parameter->name], parameter->num_elements()) << parameter->name;
  }
}

// Each rank has every parameter but most experts, which make up the whole again.
TEST_F(CutModel, ExpertsAreSpreadOverRanks) {
  const json config = json::parse(read_file(kData / "parity/mixtral/config.json"));
  write_file_atomically(folder_ / "config.json", config.dump());
  const auto whole = make();
  int64_t experts = 0, others = 0;
  for (int rank = 0; rank < 2; ++rank) {
    dist::MeshShape shape;
    shape[dist::Axis::Expert] = 2;
    const auto mesh = dist::planned_mesh(shape, rank);
    const auto model = make();
    cut_for(*model, *mesh);
    for (const nn::Parameter* parameter : model->parameters()) {
      const bool is_expert = parameter->name.find(".experts.") != std::string::npos;
      EXPECT_EQ(parameter->belongs_to_expert(), is_expert) << parameter->name;
      (is_expert ? experts : others) += parameter->num_elements();
      if (!is_expert) continue;
      const bool is_first = parameter->name.find(".experts.0.") != std::string::npos ||
                            parameter->name.find(".experts.1.") != std::string::npos;
      EXPECT_EQ(parameter->is_elsewhere(), is_first != (rank == 0)) << parameter->name;
    }
  }
  EXPECT_EQ(experts + others / 2, whole->num_parameters());
}

TEST_F(CutModel, ExpertsAreSpreadEvenlyOrNotAtAll) {
  const auto fault = [&](const char* model, const char* mesh_text) -> std::string {
    write_file_atomically(folder_ / "config.json",
                          read_file(kData / "parity" / model / "config.json"));
    dist::MeshShape shape;
    EXPECT_EQ(recipe::read_mesh(mesh_text, shape), "");
    const auto mesh = dist::planned_mesh(shape, 0);
    try {
      cut_for(*make(), *mesh);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault("llama", "ep=2"),
            "mesh ep=2: this model has no experts to spread; use fsdp=2 or dp=2");
  EXPECT_EQ(fault("mixtral", "ep=3"),
            "mesh ep=3: the model has 4 experts in a block, and every rank needs the same number; "
            "use ep=1, 2, 4");
  EXPECT_EQ(fault("mixtral", "ep=2,cp=2"),
            "mesh ep=2,cp=2: ep cannot be combined with cp; use fsdp in place of one of the two");
}

// GPT-2 keeps q, k and v in one tensor, turned in the file: a rank has some heads of each.
TEST_F(CutModel, TakesItsHeadsOfOneProductForQueriesKeysAndValues) {
  json config = json::parse(read_file(kData / "parity/gpt2/config.json"));
  config.update({{"n_head", 4}, {"vocab_size", 304}});
  write_file_atomically(folder_ / "config.json", config.dump());
  const auto whole = make_filled();
  const auto tokenizer = tokenizer::Tokenizer::from_directory(kData / "system/tiny");
  export_hugging_face(folder_ / "hf", *whole, tokenizer.get(), resident_value,
                      {.dtype = at::kFloat});
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const auto mesh = mesh_of_rank(rank, 4);
    models::Checkpoint checkpoint = models::open_checkpoint(folder_ / "hf");
    cut_for(*checkpoint.model, *mesh);
    EXPECT_EQ(rows_of(*checkpoint.model, "h.0.attn.c_attn.weight"),
              rows_of(*whole, "h.0.attn.c_attn.weight") / 4);
    for (nn::Parameter* parameter : checkpoint.model->parameters())
      parameter->allocate(at::kCPU, at::kFloat);
    models::load_weights(checkpoint);
    const auto wanted = whole->parameters(), found = checkpoint.model->parameters();
    for (size_t i = 0; i < found.size(); ++i) {
      const at::Tensor expected = slice_of(wanted[i]->value, *found[i]);
      EXPECT_TRUE(at::equal(found[i]->value.detach(), expected)) << found[i]->name;
      found[i]->init = nn::Init::Normal;
      found[i]->initialize(3, 1.0);
      EXPECT_TRUE(at::equal(found[i]->value.detach(), slice_of(wanted[i]->value, *found[i])))
          << found[i]->name;
    }
    // Rows rank * 8 to rank * 8 + 7 of each 32.
    const at::Tensor all = wanted[4]->value.detach(), own = found[4]->value.detach();
    ASSERT_EQ(wanted[4]->name, "transformer.h.0.attn.c_attn.weight");
    EXPECT_EQ(found[4]->shape, (std::vector<int64_t>{24, 32}));
    for (int64_t i = 0; i < 24; ++i)
      EXPECT_TRUE(at::equal(own[i], all[i / 8 * 32 + rank * 8 + i % 8])) << i;
  }
}

TEST_F(CutModel, ReadsItsSlicesFromEveryLayout) {
  for (const bool biases : {true, false}) {
    write_config(biases ? json::object() : json{{"attention_bias", false}, {"mlp_bias", false}});
    const auto whole = make_filled();
    const auto tokenizer = tokenizer::Tokenizer::from_directory(kData / "system/tiny");
    const ExportOptions options{.dtype = at::kFloat};
    export_hugging_face(folder_ / "hf", *whole, tokenizer.get(), resident_value, options);
    export_litgpt(folder_ / "litgpt", *whole, *tokenizer, resident_value, options);
    std::vector<fs::path> paths = {folder_ / "hf", folder_ / "litgpt"};
    if (!biases) {
      export_gguf(folder_ / "model.gguf", *whole, *tokenizer, resident_value, options);
      paths.push_back(folder_ / "model.gguf");
    }
    for (const fs::path& path : paths) expect_slices(*whole, path);
  }
}

// A GGUF file has all queries of a GPT-NeoX or a Falcon, then all keys and all values.
TEST_F(CutModel, TakesItsHeadsOfAnInterleavedLayerFromGguf) {
  for (const char* shape : {"gpt-neox", "falcon-grouped"}) {
    json config = json::parse(read_file(kData / "parity" / shape / "config.json"));
    config["vocab_size"] = 304;
    if (config.contains("num_kv_heads")) config["num_kv_heads"] = 4;
    write_file_atomically(folder_ / "config.json", config.dump());
    const auto whole = make_filled();
    const auto tokenizer = tokenizer::Tokenizer::from_directory(kData / "system/tiny");
    export_gguf(folder_ / "model.gguf", *whole, *tokenizer, resident_value, {.dtype = at::kFloat});
    expect_slices(*whole, folder_ / "model.gguf");
  }
}

TEST_F(CutModel, QuantizesItsSlicesToTheWholesNumbers) {
  write_config({{"hidden_size", 128}, {"head_dim", 64}, {"intermediate_size", 256}});
  const auto whole = make_filled();
  const auto tokenizer = tokenizer::Tokenizer::from_directory(kData / "system/tiny");
  export_hugging_face(folder_ / "hf", *whole, tokenizer.get(), resident_value,
                      {.dtype = at::kFloat});
  recipe::Recipe recipe;
  recipe.quantize = "bnb.nf4";
  recipe.precision = "32-true";
  models::Checkpoint checkpoint = models::open_checkpoint(folder_ / "hf");
  const auto mesh = mesh_of_rank(1, 2);
  cut_for(*checkpoint.model, *mesh, recipe);
  quantize_weights(*checkpoint.model, recipe);
  for (nn::Parameter* parameter : checkpoint.model->parameters())
    parameter->allocate(at::kCPU, at::kFloat);
  models::load_weights(checkpoint);
  int quantized = 0;
  const auto wanted = whole->parameters();
  const auto found = checkpoint.model->parameters();
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]->quantization) continue;
    ++quantized;
    const auto format = found[i]->quantization->format;
    const at::Tensor all =
        ops::dequantize(ops::quantize(wanted[i]->value.detach(), format), at::kFloat);
    const at::Tensor own = ops::dequantize(
        {found[i]->value, format, found[i]->shape[0], found[i]->shape[1]}, at::kFloat);
    EXPECT_TRUE(at::equal(own, slice_of(all, *found[i]))) << found[i]->name;
  }
  EXPECT_EQ(quantized, 14);
}

// A model with blocks that tensor parallelism refuses.
bool is_not_split(const models::Model& model) {
  return !std::ranges::all_of(model.head_counts(), &models::HeadCount::is_split);
}

// Layers that feed the residual stream are split along inputs, the others along outputs (Shoeybi et
// al. 2019, section 3); a name that a family's table misses would leave its layer whole.
TEST_F(CutModel, EveryFamilySplitsEveryLayerWithARole) {
  int64_t layers = 0;
  for (const auto& family : fs::directory_iterator(kData / "parity")) {
    if (!family.is_directory()) continue;
    const auto model = models::model_from_config(family.path() / "config.json");
    if (is_not_split(*model)) {
      EXPECT_THROW(cut_for(*model, *mesh_of_rank(0, 2)), Error) << family.path();
      continue;
    }
    const std::vector<nn::SplitRow> table = model->split();
    for (const nn::Linear* layer : linears_of(*model)) {
      if (layer->role() == nn::Role::Other) continue;
      const std::optional<nn::Split> split = nn::split_of(table, layer->weight().name);
      const bool feeds =
          layer->role() == nn::Role::Projection || layer->role() == nn::Role::MlpOutput;
      ASSERT_TRUE(split) << family.path() << " " << layer->name();
      EXPECT_EQ(split->dim, feeds ? 1 : 0) << family.path() << " " << layer->name();
      ++layers;
    }
  }
  EXPECT_GT(layers, 100);
}

TEST_F(CutModel, IsWholeAgainInAGroupOfOne) {
  write_config(json::object());
  const auto model = make();
  const int64_t all = model->num_parameters();
  const int64_t rows = rows_of(*model, "0.self_attn.k_proj.weight");
  const auto mesh = mesh_of_rank(3, 4);
  cut_for(*model, *mesh);
  EXPECT_LT(model->num_parameters(), all);
  EXPECT_EQ(rows_of(*model, "0.self_attn.k_proj.weight"), rows / 4);
  cut_for(*model, *dist::single_mesh());
  EXPECT_EQ(model->num_parameters(), all);
  EXPECT_EQ(rows_of(*model, "0.self_attn.k_proj.weight"), rows);
  for (const nn::Parameter* parameter : model->parameters()) {
    EXPECT_FALSE(parameter->slice) << parameter->name;
    EXPECT_EQ(parameter->share, nullptr);
  }
}

std::string refusal(models::Model& model, int ranks, const recipe::Recipe& recipe = {}) {
  try {
    cut_for(model, *mesh_of_rank(0, ranks), recipe);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST_F(CutModel, RefusesWhatCannotBeShared) {
  write_config({{"num_key_value_heads", 2}});
  EXPECT_EQ(refusal(*make(), 4),
            "mesh tp=4: the model has 4 attention heads, 2 key-value heads, and every rank needs "
            "the same number of each; use tp=1, 2");
  write_config({{"intermediate_size", 50}});
  EXPECT_EQ(refusal(*make(), 4),
            "mesh tp=4: model.layers.0.mlp.gate_proj has 50 features, which 4 ranks cannot share "
            "evenly; use tp=1, 2, 5, 10, 25, 50");
  write_config({{"hidden_size", 64}, {"head_dim", 64}, {"intermediate_size", 96}});
  recipe::Recipe recipe;
  recipe.quantize = "bnb.nf4";
  EXPECT_EQ(refusal(*make(), 2, recipe),
            "quantize = bnb.nf4: mesh tp=2 leaves each rank 48 elements in a row of "
            "model.layers.0.mlp.down_proj, and 64 of them share a scale; use fewer ranks along "
            "tp");
  const auto pictures = models::model_from_config(kData / "parity/blip2-opt/config.json");
  EXPECT_EQ(refusal(*pictures, 4),
            "mesh tp=4: the model has 2 attention heads in its vision model, 2 attention heads in "
            "its Q-Former, 4 attention heads, 4 key-value heads, and every rank needs the same "
            "number of each; use tp=1, 2");
}

// What of each family is cut, and along what, and what every rank has whole.
TEST(CutFamilies, ShapesOfOneRankOfTwo) {
  using Shape = std::vector<int64_t>;
  const std::string bias = ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  const std::string vision = "vision_model.encoder.layers.0.", looking = "qformer.encoder.layer.0.";
  const std::vector<std::tuple<std::string, std::string, Shape>> all{
      {"opt-after", "model.decoder.embed_tokens.weight", {48, 20}},
      {"opt-after", "model.decoder.project_in.weight", {32, 20}},
      {"opt-after", "model.decoder.project_out.weight", {20, 32}},
      {"t5", "shared.weight", {48, 32}},
      {"t5", "encoder" + bias, {8, 2}},
      {"t5", "decoder" + bias, {8, 2}},
      {"t5-gated", "decoder.block.1.layer.1.EncDecAttention.k.weight", {12, 32}},
      {"t5-gated", "decoder.block.1.layer.1.EncDecAttention.o.weight", {32, 12}},
      {"t5-gated", "decoder.block.1.layer.2.DenseReluDense.wi_1.weight", {20, 32}},
      {"blip2-t5", "vision_model.embeddings.patch_embedding.weight", {24, 48}},
      {"blip2-t5", vision + "self_attn.qkv.weight", {36, 24}},
      {"blip2-t5", vision + "self_attn.qkv.bias", {36}},
      {"blip2-t5", vision + "self_attn.projection.weight", {24, 12}},
      {"blip2-t5", vision + "self_attn.projection.bias", {24}},
      {"blip2-t5", vision + "mlp.fc1.bias", {20}},
      {"blip2-t5", vision + "layer_norm1.weight", {24}},
      {"blip2-t5", "query_tokens", {3, 16}},
      {"blip2-t5", looking + "crossattention.attention.key.weight", {8, 24}},
      {"blip2-t5", looking + "output_query.dense.weight", {16, 10}},
      {"blip2-t5", "language_projection.weight", {28, 16}}};
  for (const auto& [family, name, shape] : all) {
    const auto model = models::model_from_config(kData / "parity" / family / "config.json");
    cut_for(*model, *mesh_of_rank(0, 2));
    const auto parameters = model->parameters();
    const auto found = std::ranges::find(parameters, name, &nn::Parameter::name);
    ASSERT_NE(found, parameters.end()) << name;
    EXPECT_EQ((*found)->shape, shape) << name;
  }
}

}  // namespace tensor_parallel_test
}  // namespace snug::engine
