// Checkpoints between processes that know each other by MPI alone.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/training_checkpoint.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <memory>

#include "base/error.h"
#include "ranks_main.h"
#include "support/temp_folder.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

dist::Group& all() { return test::row().world(); }

// One folder for all ranks, gone with rank 0's test.
class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    if (all().rank() == 0) own_ = std::make_unique<test::TempFolder>();
    folder_ = all().broadcast_text(own_ ? own_->path().string() : "", 0);
  }
  void TearDown() override { all().barrier(); }

  std::unique_ptr<test::TempFolder> own_;
  fs::path folder_;
};

// A matrix, its states and a vector; the same on every rank.
struct Model {
  explicit Model(bool random) {
    at::manual_seed(3);
    for (const auto& shape : {std::vector<int64_t>{30, 700}, {30, 700}, {513}})
      values.push_back(random ? at::randn(shape) : at::zeros(shape));
  }
  std::vector<at::Tensor> values;
};

// Part `rank` of `size` of it, as views.
TrainingTensors part_of(const Model& model, int rank, int size) {
  TrainingTensors tensors;
  const auto cut = [&](const std::string& name, const at::Tensor& whole) {
    const int64_t part = (whole.numel() / size + 255) / 256 * 256;
    const int64_t begin = std::min(whole.numel(), part * rank);
    const int64_t end = rank + 1 == size ? whole.numel() : std::min(whole.numel(), begin + part);
    tensors.pieces[name] = PieceOf::flat(whole.sizes().vec(), begin, end);
    return whole.flatten().narrow(0, begin, end - begin);
  };
  tensors.parameters.push_back({"a.weight", cut("a.weight", model.values[0])});
  tensors.optimizer_states.push_back({"a.weight.exp_avg", cut("a.weight", model.values[1])});
  tensors.parameters.push_back({"b.weight", cut("b.weight", model.values[2])});
  std::erase_if(tensors.parameters, [](const auto& p) { return p.tensor.numel() == 0; });
  return tensors;
}

TEST_F(Checkpoints, AreReadByAnyNumberOfRanks) {
  const Model model(true);
  const int rank = all().rank(), size = all().size();
  const fs::path saved = save(folder_, {.step = 3}, part_of(model, rank, size), "{}", &all());
  EXPECT_EQ(find_latest(folder_, all()), saved);
  EXPECT_EQ(load_state(saved).step, 3);
  // As many, all of them whole, and by one rank more than there are.
  for (const int parts : {size, 1, size + 1}) {
    const Model loaded(false);
    for (int part = 0; part < parts; ++part)
      load_tensors(saved, part_of(loaded, part, parts), &all());
    for (size_t i = 0; i < model.values.size(); ++i)
      EXPECT_TRUE(at::equal(loaded.values[i], model.values[i])) << i << " in " << parts;
  }
}

TEST_F(Checkpoints, OfReplicasAreWrittenOnce) {
  const Model model(true), loaded(false);
  const fs::path saved = save(folder_, {.step = 1}, part_of(model, 0, 1), "{}", &all());
  EXPECT_LT(size_bytes(saved), 4 * (2 * 30 * 700 + 513) + 8000);
  load_tensors(saved, part_of(loaded, 0, 1), &all());
  for (size_t i = 0; i < model.values.size(); ++i)
    EXPECT_TRUE(at::equal(loaded.values[i], model.values[i])) << i;
}

// Files of this process may not be larger than that, as if the disk were full.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_ = nullptr;
};

TEST_F(Checkpoints, OneThatCannotWriteStopsAll) {
  const Model model(true);
  const int rank = all().rank(), size = all().size();
  const TrainingTensors tensors = part_of(model, rank, size);
  save(folder_, {.step = 1}, tensors, "{}", &all());
  const auto limit = rank == size - 1 ? std::make_unique<SmallFiles>(4096) : nullptr;
  try {
    save(folder_, {.step = 2}, tensors, "{}", &all());
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("rank " + std::to_string(size - 1) + ": ")) << text;
    EXPECT_NE(text.find("of-rank-000" + std::to_string(size - 1)), std::string::npos) << text;
  }
  all().barrier();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  EXPECT_EQ(find_latest(folder_, all()), folder_ / "step-000001");
}

}  // namespace
}  // namespace snug::checkpoint
