// What is saved is what goes on: every optimizer's states through a file, in every type they have.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/training_checkpoint.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "support/temp_folder.h"
#include "unit/core/optim/optim_testing.h"

namespace snug::checkpoint {
namespace training_checkpoint_test {

using optim::Bench;
using optim::Case;
using optim::options_of;

const std::vector<std::vector<int64_t>> kShapes = {{40, 129}, {129}};

std::vector<Case> all_cases() {
  recipe::OptimizerOptions momentum = options_of("sgd"), masters = options_of("adamw_8bit");
  momentum.momentum = 0.9;
  masters.master_weights = true;
  return {{"adamw", options_of("adamw")},
          {"adamw_bf16", options_of("adamw"), at::kBFloat16, at::kBFloat16},
          {"adamw_8bit", options_of("adamw_8bit")},
          {"adamw_8bit_masters", masters, at::kBFloat16, at::kBFloat16},
          {"adafactor", options_of("adafactor")},
          {"lion", options_of("lion")},
          {"sgd", options_of("sgd")},
          {"sgd_momentum", momentum}};
}

void run(Bench& b, const Case& c, uint64_t first, uint64_t last) {
  for (uint64_t step = first; step < last; ++step) {
    b.set_gradients(step, c.gradients);
    b.optimizer->step({.lr = b.lr});
  }
}

TrainingTensors tensors_of(const Bench& b) { return {b.parameters, b.optimizer->states()}; }

class Resume : public ::testing::TestWithParam<Case> {};

TEST_P(Resume, GoesOnAsIfNeverStopped) {
  const Case& c = GetParam();
  const test::TempFolder folder;
  Bench straight(c, at::kCPU, kShapes), resumed(c, at::kCPU, kShapes);
  run(straight, c, 0, 2);
  const auto saved = save(folder.path(), {.step = 2}, tensors_of(straight), "{}");
  run(straight, c, 2, 4);
  load_tensors(saved, tensors_of(resumed));
  resumed.optimizer->set_num_steps(load_state(saved).step);
  run(resumed, c, 2, 4);
  optim::expect_same(straight.parameters, resumed.parameters);
  optim::expect_same(straight.optimizer->states(), resumed.optimizer->states());
}

TEST_P(Resume, TakesTheRoomThatWasForeseen) {
  const test::TempFolder folder;
  const Bench b(GetParam(), at::kCPU, kShapes);
  const auto foreseen = static_cast<double>(bytes_to_save(tensors_of(b)));
  const auto written =
      static_cast<double>(size_bytes(save(folder.path(), {}, tensors_of(b), "{}")));
  EXPECT_NEAR(foreseen, written, 0.01 * written + 1000) << "but for state.json and checksums.json";
}

INSTANTIATE_TEST_SUITE_P(All, Resume, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Checkpoint, OfAnotherOptimizerIsRefused) {
  const test::TempFolder folder;
  const Bench saved({"", options_of("adamw")}, at::kCPU, kShapes);
  const auto path = save(folder.path(), {.step = 1}, tensors_of(saved), "{}");
  for (const char* other : {"adamw_8bit", "adafactor"}) {
    const Bench b({"", options_of(other)}, at::kCPU, kShapes);
    EXPECT_THROW(load_tensors(path, tensors_of(b)), UserError) << other;
  }
}

TEST(Checkpoint, StatesThatWouldBeDroppedAreRefused) {
  const std::vector<Case> all = all_cases();
  const auto named = [&](const char* name) { return *std::ranges::find(all, name, &Case::name); };
  Case no_masters = named("adamw_8bit_masters");
  no_masters.options.master_weights = false;
  for (const auto& [had, has] : {std::pair{named("sgd_momentum"), named("sgd")},
                                 {named("adamw_8bit_masters"), no_masters}}) {
    const test::TempFolder folder;
    const Bench saved(had, at::kCPU, kShapes), other(has, at::kCPU, kShapes);
    const auto path = save(folder.path(), {.step = 1}, tensors_of(saved), "{}");
    EXPECT_THROW(load_tensors(path, tensors_of(other)), UserError) << had.name;
  }
}

// Numbers that a conversion would bend into a state nobody wrote.
TEST(Checkpoint, AStateOfWrongNumbersIsRefused) {
  const test::TempFolder folder;
  const Bench saved({"", options_of("adamw")}, at::kCPU, kShapes);
  const auto path = save(folder.path(), {.step = 1, .loss_scale = 2}, tensors_of(saved), "{}");
  std::filesystem::remove(path / "checksums.json");  // they would find it first
  const auto whole = nlohmann::json::parse(read_file(path / kStateName));
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, nlohmann::json>>{{"step", -1},
                                                                     {"step", 1.5},
                                                                     {"epoch", 1e300},
                                                                     {"tokens", UINT64_MAX},
                                                                     {"loss_scale", 0},
                                                                     {"loss_scale", "2"},
                                                                     {"data_fingerprint", 0.5},
                                                                     {"micro_batches", nullptr}}) {
    nlohmann::json state = whole;
    state[key] = value;
    write_file_atomically(path / kStateName, state.dump());
    EXPECT_THROW(load_state(path), UserError) << key << " " << value;
  }
  write_file_atomically(path / kStateName, whole.dump());
  EXPECT_EQ(load_state(path).loss_scale, 2);
}

// A folder with three small files under each name.
class Folders : public ::testing::Test {
 protected:
  void write(const std::string& name) const {
    std::filesystem::create_directories(folder_ / name);
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
      write_file_atomically(folder_ / name / file, name);
  }
  std::set<std::string> names(const std::filesystem::path& below = "") const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / below))
      found.insert(entry.path().filename());
    return found;
  }
  const test::TempFolder folder_;
};

using Names = std::set<std::string>;

TEST_F(Folders, TheNewestAreKept) {
  for (const char* name : {"step-000002", "step-000010", "step-000003", "step-000020", "final"})
    write(name);
  keep_newest(folder_.path(), 10, 2);
  EXPECT_EQ(names(), (Names{"step-000003", "step-000010", "step-000020", "final"}))
      << "step 20 is not this run's";
  keep_newest(folder_.path(), 20, 5);
  EXPECT_EQ(names().size(), 4U);
  keep_newest(folder_.path(), 20, 1);
  EXPECT_EQ(names(), (Names{"step-000020", "final"}));
}

// What a kill leaves while one is written or deleted.
TEST_F(Folders, HalfOnesAreNeverTakenAndGoWithTheNextSave) {
  write("step-000004");
  write(".tmp-step-000008");
  write(".tmp-step-000002.old");
  std::filesystem::create_directories(folder_ / "step-000009");  // made by somebody else
  std::string warning;
  {
    const LogSinkGuard sink([&](const std::string& text) { warning += text; });
    EXPECT_EQ(find_latest(folder_.path()), folder_ / "step-000004");
  }
  EXPECT_NE(warning.find("step-000009 is incomplete (state.json is missing)"), warning.npos)
      << warning;
  save(folder_.path(), {.step = 8}, {}, "{}");
  EXPECT_EQ(names(), (Names{"step-000004", "step-000008", "step-000009"}));
  EXPECT_EQ(find_latest(folder_.path()), folder_ / "step-000008");
  EXPECT_EQ(read_file(folder_ / "step-000008" / kRecordName), "{}");
}

TEST_F(Folders, OthersAreSetAside) {
  for (const char* name : {"step-000002", "step-000004", "step-000006"}) write(name);
  EXPECT_EQ(set_aside(folder_.path(), 2), folder_ / "earlier");
  EXPECT_EQ(names(), (Names{"step-000002", "earlier"}));
  EXPECT_EQ(names("earlier"), (Names{"step-000004", "step-000006"}));
  EXPECT_EQ(set_aside(folder_.path(), 2), std::nullopt);
  EXPECT_EQ(set_aside(folder_.path(), -1), folder_ / "earlier-2");
  EXPECT_EQ(names(), (Names{"earlier", "earlier-2"}));
  EXPECT_EQ(names("earlier"), (Names{"step-000004", "step-000006"})) << "nothing is lost";
  EXPECT_EQ(names("earlier-2"), (Names{"step-000002"}));
}

}  // namespace training_checkpoint_test
}  // namespace snug::checkpoint
