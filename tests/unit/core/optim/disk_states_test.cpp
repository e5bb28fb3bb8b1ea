// States in a file: the sweep goes through them in several parts, and comes to the same bits.
// SPDX-License-Identifier: Apache-2.0
#include "core/memory/disk_file.h"
#include "support/temp_folder.h"
#include "unit/core/optim/optim_testing.h"

namespace snug::optim {
namespace {

// Large enough for three parts; small tensors, which share pages with their neighbours, between.
const std::vector<std::vector<int64_t>> kShapes = {{3000, 1000}, {3000, 1001}, {7}, {3001, 1000},
                                                   {3000, 1000}, {2999, 1000}, {5}};

std::vector<Case> cases() {
  recipe::OptimizerOptions masters = options_of("adamw");
  masters.master_weights = true;
  return {{"adamw", options_of("adamw")},
          {"adamw_masters", masters, at::kBFloat16, at::kBFloat16},
          {"adamw_8bit", options_of("adamw_8bit")},
          {"adafactor", options_of("adafactor")},
          {"lion", options_of("lion")}};
}

class DiskStates : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

TEST_P(DiskStates, AreThoseInMemory) {
  const Case& c = GetParam();
  const test::TempFolder folder;
  memory::DiskFile file(memory::kStatesOnDisk, folder.path(), int64_t{256} << 20);
  Bench in_memory(c, at::kCPU, kShapes), on_disk(c, at::kCPU, kShapes);
  {
    const memory::HostGuard host;
    const memory::DiskGuard disk(&file);
    on_disk.optimizer = make_optimizer(c.options, on_disk.parameters);
  }
  for (uint64_t step = 0; step < 2; ++step) {
    for (Bench* bench : {&in_memory, &on_disk}) {
      bench->set_gradients(step, c.gradients);
      bench->optimizer->step({.lr = bench->lr});
    }
  }
  expect_same(in_memory.parameters, on_disk.parameters);
  expect_same(in_memory.optimizer->states(), on_disk.optimizer->states());
}

INSTANTIATE_TEST_SUITE_P(Optimizers, DiskStates, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace snug::optim
