// Which mesh --fit chooses: what it may choose from, what the links between devices make of it, and
// that every rank of what it has chosen fits.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/bytes.h"
#include "engine/strategy.h"
#include "models/family.h"
#include "plan/fit.h"
#include "plan/search_space.h"
#include "recipe/mesh.h"

namespace snug::plan {
namespace {

using dist::Axis;

class FitMesh : public ::testing::Test {
 protected:
  static constexpr int64_t kLength = 256;

  static void SetUpTestSuite() { memory::install_allocators(); }

  FitMesh() {
    recipe_.precision = "bf16-true";
    recipe_.devices = "4";
    recipe_.train.micro_batch_size = 1;
    set_samples(16);
  }

  void set_samples(int64_t count) {
    recipe_.train.global_batch_size = count;
    samples_ = {};
    const std::vector<int32_t> ids(kLength, 1);
    for (int64_t i = 0; i < count; ++i) samples_.append({.ids = ids, .labels = ids});
  }
  Workload work() const { return {.samples = samples_, .max_seqlen = kLength}; }

  static std::unique_ptr<models::Model> named(const std::string& name) {
    return models::model_from_config(std::filesystem::path(SNUG_SOURCE_DIR) / "recipes/models" /
                                     (name + ".json"));
  }
  std::set<std::string> meshes() const {
    std::set<std::string> found;
    for (const Layout& layout : layouts(*model_, recipe_))
      found.insert(recipe::mesh_text(engine::named_strategy(laid_out(recipe_, layout)).mesh));
    return found;
  }
  // A GPU with these links within a machine, in bytes a second.
  static DeviceProfile device(double link, int64_t memory) {
    DeviceProfile profile = find_profile("a100-80", 0);
    profile.memory_bytes = memory + profile.context_bytes;
    profile.intra_node_bytes_per_second = link;
    return profile;
  }
  dist::MeshShape chosen(double link, int64_t memory) const {
    const DeviceProfile profile = device(link, memory);
    const Fit found = fit(*model_, recipe_, work(), profile);
    EXPECT_TRUE(found.best) << (found.smallest ? found.smallest->options : "");
    return found.best ? engine::named_strategy(found.best->recipe).mesh : dist::MeshShape{};
  }

  std::unique_ptr<models::Model> model_ = named("tiny-llama");  // 32 heads of 4 key-value heads
  recipe::Recipe recipe_;
  data::SampleStore samples_;
};

constexpr double kNvlink = 300e9, kSlow = 2e9;

TEST_F(FitMesh, LaysDevicesOutInAllWaysThatAreAllowed) {
  EXPECT_EQ(meshes(), (std::set<std::string>{"dp=4", "fsdp=4", "tp=4", "pp=2,dp=2", "pp=2,fsdp=2",
                                             "pp=4", "dp=2,tp=2", "fsdp=2,tp=2", "pp=2,tp=2"}));
}

// An optimizer that looks at whole matrices, machines of two, heads that two cannot share evenly.
TEST_F(FitMesh, LeavesOutWhatWouldBeRefused) {
  recipe_.optimizer.name = "adafactor";
  EXPECT_EQ(meshes(), (std::set<std::string>{"dp=4", "pp=2,dp=2", "pp=4"}));
  recipe_.optimizer.name = "adamw";
  recipe_.devices = "2";
  recipe_.num_nodes = 2;
  for (const std::string& mesh : meshes()) EXPECT_EQ(mesh.find("tp=4"), mesh.npos) << mesh;
  EXPECT_TRUE(meshes().contains("fsdp=2,tp=2"));
  model_ = named("mingpt-xl");
  for (const std::string& mesh : meshes()) EXPECT_EQ(mesh.find("tp="), mesh.npos) << mesh;
  EXPECT_TRUE(meshes().contains("pp=4"));
}

// Its vision model and its Q-Former have four heads, as its language model has.
TEST_F(FitMesh, SharesWhatLooksAtPicturesToo) {
  model_ = named("tiny-blip2");
  for (const char* mesh : {"tp=4", "fsdp=2,tp=2", "pp=2,tp=2"})
    EXPECT_TRUE(meshes().contains(mesh)) << mesh;
}

TEST_F(FitMesh, KeepsWhatSomebodyHasChosen) {
  recipe_.strategy = "zero1";
  recipe_.given_keys = {"strategy"};
  EXPECT_EQ(meshes(), std::set<std::string>{"fsdp=4"});
  recipe_.strategy = "auto";
  recipe_.mesh = "pp=2,tp=2";
  recipe_.given_keys = {"mesh", "train.micro_batch_size", "activation_checkpointing"};
  EXPECT_EQ(meshes(), std::set<std::string>{"pp=2,tp=2"});
  const Fit found = fit(*model_, recipe_, work(), device(kNvlink, 20 * kGiB));
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->recipe.mesh, "pp=2,tp=2");
  recipe_.mesh = "";
  recipe_.devices = "1";
  EXPECT_EQ(layouts(*model_, recipe_).size(), 1U);
}

// Where whole copies do not fit, weights have to travel for each micro-batch (fsdp) or activations
// do: over NVLink between the halves of a layer, over slow links between stages alone.
TEST_F(FitMesh, LinksDecide) {
  const int64_t memory = 5 * kGiB;
  const dist::MeshShape fast = chosen(kNvlink, memory), slow = chosen(kSlow, memory);
  EXPECT_EQ(fast[Axis::Pipeline], 1) << recipe::mesh_text(fast);
  EXPECT_GT(slow[Axis::Pipeline], 1) << recipe::mesh_text(slow);
  EXPECT_EQ(slow[Axis::Tensor], 1) << recipe::mesh_text(slow);
}

// With few samples each of which is small against the weights, gathering those costs more than
// sending activations.
TEST_F(FitMesh, FewSamplesAreSharedAlongTensors) {
  set_samples(4);
  const dist::MeshShape mesh = chosen(kNvlink, 5 * kGiB);
  EXPECT_GT(mesh[Axis::Tensor], 1) << recipe::mesh_text(mesh);
}

// The plan of what was chosen is what the search said of it, and it fits on every rank.
TEST_F(FitMesh, NeverChoosesWhatDoesNotFit) {
  set_samples(8);
  std::set<std::string> seen;
  for (const double link : {kNvlink, kSlow})
    for (const int64_t memory : {3 * kGiB, 6 * kGiB}) {
      const DeviceProfile profile = device(link, memory);
      const Fit found = fit(*model_, recipe_, work(), profile);
      if (!found.best) continue;
      for (const Candidate& candidate : found.front) {
        const dist::MeshShape mesh = engine::named_strategy(candidate.recipe).mesh;
        seen.insert(recipe::mesh_text(mesh));
        int64_t most = 0;
        for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
          const Candidate own = evaluate(*model_, candidate.recipe, work(), profile, rank);
          EXPECT_TRUE(fits(own, profile)) << candidate.options << ", rank " << rank;
          most = std::max(most, own.prediction.peak_allocated);
        }
        if (candidate.options == found.best->options) {
          EXPECT_EQ(candidate.prediction.peak_allocated, most) << candidate.options;
        }
        const Candidate whole = evaluate_neediest(*model_, candidate.recipe, work(), profile);
        EXPECT_NEAR(candidate.cost.seconds() / whole.cost.seconds(), 1, 0.01) << candidate.options;
      }
    }
  EXPECT_GT(seen.size(), 2U);
}

// A sketch of a pipeline is the plan: its peak, and what all its micro-batches send.
TEST_F(FitMesh, ASketchIsThePlan) {
  set_samples(64);
  for (const char* mesh : {"pp=4", "pp=2,fsdp=2", "pp=2,tp=2"})
    for (const char* strategy : {"auto", "zero1"})
      for (const int64_t interleave : {1, 2}) {
        recipe_.mesh = mesh;
        recipe_.strategy = recipe_.mesh == "pp=2,fsdp=2" ? strategy : "auto";
        recipe_.pipeline_interleave = interleave;
        for (const int rank : {0, 2}) {
          const DeviceProfile profile = device(kNvlink, 40 * kGiB);
          const Candidate whole = evaluate(*model_, recipe_, work(), profile, rank);
          const Candidate sketch =
              evaluate(*model_, recipe_, work(), profile, rank, Detail::Sketch);
          EXPECT_LT(sketch.prediction.micro_batches, whole.prediction.micro_batches);
          EXPECT_EQ(sketch.prediction.peak_allocated, whole.prediction.peak_allocated);
          EXPECT_NEAR(sketch.cost.sent.sum(), whole.cost.sent.sum(), 1e-6 * whole.cost.sent.sum())
              << mesh << " " << recipe_.strategy << " " << interleave << " rank " << rank;
          // The first micro-batches write gradients that later ones only add to.
          EXPECT_NEAR(sketch.cost.seconds() / whole.cost.seconds(), 1, 0.08);
        }
      }
}

// Nobody waits for anybody else's larger share: with the head's products on the last stage of four,
// the step takes as long as that stage.
TEST_F(FitMesh, TheSlowestStageSetsThePace) {
  recipe_.mesh = "pp=2";
  recipe_.devices = "2";
  const DeviceProfile profile = device(kNvlink, 40 * kGiB);
  const double even = evaluate(*model_, recipe_, work(), profile).cost.products_seconds;
  recipe_.mesh = "dp=2";
  const double each = evaluate(*model_, recipe_, work(), profile).cost.products_seconds;
  EXPECT_GE(even, each);
  EXPECT_LT(even, 1.1 * each);
  recipe_.devices = "16";  // 22 blocks: two for some stages, one for others
  recipe_.mesh = "pp=16";
  const double uneven = evaluate(*model_, recipe_, work(), profile).cost.products_seconds;
  EXPECT_GT(uneven, 1.3 * each * 2 / 16);
}

}  // namespace
}  // namespace snug::plan
