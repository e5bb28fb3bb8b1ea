// 8-bit states of matrices that tensor parallelism cuts in the middle of their blocks.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/quantized_state.h"

#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "core/kernels/dynamic_map.h"
#include "core/kernels/optimizers.h"
#include "files/checkpoint/training_checkpoint.h"
#include "support/temp_folder.h"
#include "support/thread_group.h"
#include "unit/core/optim/optim_testing.h"

namespace snug::checkpoint {
namespace quantized_state_test {

namespace fs = std::filesystem;
using test::as_ranks;
using test::ThreadGroup;

constexpr int64_t kBlock = kernels::kQuantizedBlock;

// A matrix with 8-bit states, cut by columns in the middle of blocks: those are of a rank's own
// elements.
class BrokenBlocks : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 24, kColumns = 300;

  // One part of so many, with states drawn from `seed`.
  static TrainingTensors part_of(int rank, int num_ranks, uint64_t seed) {
    const int64_t columns = kColumns / num_ranks;
    const int64_t blocks = (kRows * columns + kBlock - 1) / kBlock;
    at::manual_seed(seed + static_cast<uint64_t>(rank));
    TrainingTensors tensors;
    if (num_ranks > 1)
      tensors.pieces["w"] =
          PieceOf::slice({kRows, kColumns}, 1, {rank * columns, rank * columns + columns});
    tensors.parameters.push_back({"w", at::zeros({kRows, columns})});
    for (const char* moment : {"w.exp_avg", "w.exp_avg_sq"}) {
      // The element that gives a block its scale has the code of 1.
      const at::Tensor codes = at::randint(255, {kRows, columns}, at::kByte);
      for (int64_t i = 0; i < codes.numel(); i += kBlock) codes.flatten()[i] = 255;
      tensors.optimizer_states.push_back({moment, codes});
      tensors.optimizer_states.push_back({moment + std::string("_absmax"), at::rand({blocks})});
    }
    return tensors;
  }

  // The numbers that codes and scales mean.
  static at::Tensor decoded(const TrainingTensors& tensors, size_t moment) {
    const auto& map =
        moment == 0 ? kernels::signed_dynamic_map().values : kernels::unsigned_dynamic_map().values;
    const at::Tensor values = at::from_blob(const_cast<float*>(map), {256});
    const at::Tensor& codes = tensors.optimizer_states[2 * moment].tensor;
    const at::Tensor scales =
        tensors.optimizer_states[2 * moment + 1].tensor.repeat_interleave(kBlock);
    return (values.take(codes.flatten().to(at::kLong)) * scales.narrow(0, 0, codes.numel()))
        .view(codes.sizes());
  }

  static at::Tensor decoded(const std::vector<TrainingTensors>& parts, size_t moment) {
    std::vector<at::Tensor> columns;
    for (const TrainingTensors& part : parts) columns.push_back(decoded(part, moment));
    return at::cat(columns, 1);
  }

  static std::vector<TrainingTensors> all_parts(int num_ranks, uint64_t seed) {
    std::vector<TrainingTensors> parts;
    for (int rank = 0; rank < num_ranks; ++rank) parts.push_back(part_of(rank, num_ranks, seed));
    return parts;
  }

  fs::path saved_by(const std::vector<TrainingTensors>& parts) const {
    const auto errors = as_ranks(static_cast<int>(parts.size()), [&](ThreadGroup& ranks) {
      save(folder_.path(), {.step = 1}, parts[static_cast<size_t>(ranks.rank())], "{}", &ranks);
    });
    EXPECT_EQ(errors, std::vector<std::string>(parts.size()));
    return find_latest(folder_.path()).value_or("none");
  }

  const test::TempFolder folder_;
};

TEST_F(BrokenBlocks, AreReadAsTheyAreByTheSameLayout) {
  const auto written = all_parts(2, 10), loaded = all_parts(2, 20);
  const fs::path saved = saved_by(written);
  for (size_t rank = 0; rank < 2; ++rank) {
    load_tensors(saved, loaded[rank]);
    optim::expect_same(written[rank].parameters, loaded[rank].parameters);
    optim::expect_same(written[rank].optimizer_states, loaded[rank].optimizer_states);
  }
}

// No number moves by more than half a step of the map, whose longest ones are at the top.
TEST_F(BrokenBlocks, AreFormedAnewByOthers) {
  std::string warning;
  const LogSinkGuard sink([&](const std::string& text) { warning += text; });
  for (const int before : {1, 2, 3})
    for (const int after : {1, 2, 3, 5}) {
      if (before == after) continue;
      SCOPED_TRACE(std::to_string(before) + " to " + std::to_string(after));
      const auto written = all_parts(before, 10), loaded = all_parts(after, 20);
      const fs::path saved = saved_by(written);
      for (const TrainingTensors& part : loaded) load_tensors(saved, part);
      for (const size_t moment : {0, 1}) {
        const at::Tensor wanted = decoded(written, moment), found = decoded(loaded, moment);
        const double half_a_step = moment == 0 ? 0.9 / 64 / 2 : 0.9 / 128 / 2;
        const double largest = wanted.abs().max().item<double>();
        EXPECT_LE((found - wanted).abs().max().item<double>(), half_a_step * largest * 1.0001);
        EXPECT_EQ(found.abs().max().item<float>(), wanted.abs().max().item<float>());
        // Most are small, and rounded by as little.
        EXPECT_LE((found - wanted).abs().mean().item<double>(), half_a_step * largest / 4);
      }
    }
  EXPECT_NE(warning.find("rounded once more"), std::string::npos) << warning;
}

// A box whose name says something else than the scales it has.
TEST_F(BrokenBlocks, OfNonsenseAreRefused) {
  const fs::path saved = saved_by(all_parts(2, 10));
  std::string text = read_file(saved / kIndexName);
  const std::string box = "@[0:24][0:150]", wrong = "@[0:24][0:250]";
  for (size_t at = text.find(box); at != std::string::npos; at = text.find(box, at + 1))
    text.replace(at, box.size(), wrong);
  write_file_atomically(saved / kIndexName, text);
  EXPECT_THROW(load_tensors(saved, part_of(0, 1, 20)), UserError);
}

}  // namespace quantized_state_test
}  // namespace snug::checkpoint
