// What training made, written by ranks that each hold a part: the same file as one process writes,
// and no rank holds more at a time than one unit of what trains.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/files.h"
#include "core/memory/ledger.h"
#include "engine/exec/policies/sharding.h"
#include "engine/strategy.h"
#include "ranks_main.h"
#include "recipe/mesh.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"
#include "train/base_model.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

recipe::Recipe adapters_of(const std::string& shape) {
  recipe::Recipe recipe = tests::tiny_recipe();
  recipe.model.config =
      (fs::path(SNUG_SOURCE_DIR) / "tests/data/parity" / shape / "config.json").string();
  recipe.data.class_path = "Synthetic";
  recipe.lora = {.enabled = true, .r = 4};
  return recipe;
}

// A model and where it lies.
struct Placed {
  Placed(recipe::Recipe r, std::shared_ptr<dist::Mesh> mesh)
      : recipe(std::move(r)),
        base(recipe),
        made(engine::make_engine(base.model(), recipe, at::kCPU, 128, std::move(mesh))) {
    base.load(engine);
    engine.weights_changed();
  }

  recipe::Recipe recipe;
  train::BaseModel base;
  std::unique_ptr<engine::Engine> made;
  engine::Engine& engine = *made;
};

Placed run_on(recipe::Recipe recipe, const std::string& strategy, const std::string& mesh) {
  recipe.strategy = strategy;
  recipe.mesh = mesh;
  const auto shape = engine::strategy_of(recipe, test::world().size(), 2).mesh;
  return {recipe, test::world().make_mesh(shape, at::kCPU)};
}

// Bytes of what a unit trains, gathered: of the largest unit, and of all together.
struct Sizes {
  int64_t largest = 0;
  int64_t all = 0;
};

Sizes sizes_of_trained(const engine::Engine& engine) {
  Sizes sizes;
  for (const auto& unit : engine.sharding->flats()) {
    int64_t bytes = 0;
    for (const auto& flat : unit)
      if (flat->is_trained())
        bytes += flat->values().numel() * static_cast<int64_t>(flat->values().element_size());
    sizes.largest = std::max(sizes.largest, bytes);
    sizes.all += bytes;
  }
  return sizes;
}

class WrittenAdapter : public testing::Test {
 protected:
  void SetUp() override {
    dist::Group& ranks = test::row().world();
    if (ranks.rank() == 0) own_ = std::make_unique<test::TempFolder>();
    folder_ = ranks.broadcast_text(own_ ? own_->path().string() : "", 0);
  }
  void TearDown() override { test::row().world().barrier(); }

  // What this rank holds beyond what it held before, at most, while it writes.
  static int64_t peak_of_writing(const Placed& run, const fs::path& folder) {
    memory::Ledger& ledger = memory::cpu_ledger();
    const int64_t before = ledger.allocated();
    ledger.reset_peak();
    run.base.write_trained(folder, run.engine);
    EXPECT_EQ(ledger.allocated(), before) << "something stays behind";
    return ledger.at_peak().allocated - before;
  }

  std::unique_ptr<test::TempFolder> own_;
  fs::path folder_;
};

TEST_F(WrittenAdapter, NoRankHoldsMoreThanAUnitOfIt) {
  recipe::Recipe recipe = adapters_of("blip2-opt");
  recipe.model.train_parts = "vision,qformer,projection";
  const Placed run = run_on(recipe, "fsdp", "");
  const Sizes sizes = sizes_of_trained(run.engine);
  ASSERT_GT(sizes.all, 3 * sizes.largest);
  EXPECT_LE(peak_of_writing(run, folder_ / "adapter"), sizes.largest);
}

struct Shared {
  const char* model;
  const char* strategy;
  const char* mesh = "";  // empty: the strategy's, of any number of ranks
  const char* parts = "all";
  bool dora = false;
  const char* targets = "";
  const char* start = "default";
};

bool fits_here(const std::string& mesh) {
  recipe::MeshShape shape;
  return mesh.empty() ||
         (recipe::read_mesh(mesh, shape).empty() && shape.num_ranks() == test::world().size());
}

// Random weights of the same seed, so that all of them have the same adapters and parts.
TEST_F(WrittenAdapter, IsTheSameFileHoweverRanksShareIt) {
  constexpr Shared kAll[] = {
      {"blip2-opt", "ddp", "", "qformer,projection"},
      {"blip2-opt", "zero1", "", "qformer,projection"},
      {"blip2-t5", "fsdp", "", "vision,qformer"},
      {"blip2-opt", "auto", "pp=2", "vision,projection"},
      {"blip2-t5", "fsdp", "pp=2,fsdp=2", "qformer,projection"},
      {"llama", "fsdp", "", "all", true},
      {"opt-plain", "auto", "tp=2"},
      {"gpt2", "auto", "pp=2,tp=2"},
      {"llama", "zero1", "fsdp=2,tp=2", "all", true},
      {"olmoe", "auto", "ep=2", "all", true},
      {"gpt-oss", "auto", "ep=2"},
      {"gpt-oss", "fsdp", "fsdp=2,ep=2"},
      {"mixtral", "auto", "pp=2,ep=2"},
      {"mixtral", "auto", "ep=2", "all", false, "experts.0.w1"},
      {"mixtral", "auto", "ep=2", "all", false, "", "pissa"},
  };
  int folders = 0;
  for (const Shared& shared : kAll) {
    if (!fits_here(shared.mesh)) continue;
    SCOPED_TRACE(std::string(shared.model) + ", " + shared.strategy + " " + shared.mesh);
    recipe::Recipe recipe = adapters_of(shared.model);
    recipe.model.train_parts = shared.parts;
    recipe.lora.use_dora = shared.dora;
    recipe.lora.target_modules = shared.targets;
    recipe.lora.init_weights = shared.start;
    recipe.lora.mlp = std::string(shared.mesh).find("ep=") != std::string::npos;
    const fs::path folder = folder_ / std::to_string(folders++), one = folder.string() + "-one";
    const Placed many = run_on(recipe, shared.strategy, shared.mesh);
    many.base.write_trained(folder, many.engine);
    if (test::world().rank() > 0) continue;
    const Placed single(recipe, dist::single_mesh());
    single.base.write_trained(one, single.engine);
    for (const char* file : {"adapter_model.safetensors", "adapter_config.json"})
      EXPECT_EQ(read_file(folder / file), read_file(one / file)) << file;
  }
}

}  // namespace
}  // namespace snug
