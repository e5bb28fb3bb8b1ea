// Checkpoints that several ranks write together, and others read: whatever way the tensors are cut.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "files/checkpoint/index.h"
#include "files/checkpoint/training_checkpoint.h"
#include "files/checksums.h"
#include "support/temp_folder.h"
#include "support/thread_group.h"
#include "unit/core/optim/optim_testing.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;
using optim::NamedTensor;
using test::as_ranks;
using test::ThreadGroup;

constexpr int64_t kBlock = 256;
constexpr const char* kStates[] = {".exp_avg", ".exp_avg_absmax", ".master"};

// How a model lies on many ranks.
struct Layout {
  std::string name;
  int shard = 1;     // fsdp
  int tensor = 1;    // tp: rows of the even parameters, columns of the odd ones
  int pipeline = 1;  // parameters in turn
  int replicate = 1;

  int num_ranks() const { return shard * tensor * pipeline * replicate; }
};

const std::vector<std::vector<int64_t>> kShapes = {{16, 512}, {12, 1024}, {512}, {700}, {9, 300}};

std::string parameter_name(size_t i) { return "layer." + std::to_string(i) + ".weight"; }

// A parameter and its states, whole.
struct Whole {
  at::Tensor weight, exp_avg, absmax, master;
};

std::vector<Whole> random_model(int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  std::vector<Whole> model;
  for (const auto& shape : kShapes) {
    const at::Tensor master = at::randn(shape);
    const int64_t blocks = (master.numel() + kBlock - 1) / kBlock;
    model.push_back({master.to(at::kBFloat16), at::randint(256, shape, at::kByte),
                     at::randn({blocks}), master});
  }
  return model;
}

// This rank's piece of parameter `i`; none where another has it.
std::optional<PieceOf> piece_of(const Layout& layout, int rank, size_t i) {
  const int tensor = rank % layout.tensor, shard = rank / layout.tensor % layout.shard;
  const int pipeline = rank / layout.tensor / layout.shard / layout.replicate;
  if (static_cast<int>(i) % layout.pipeline != pipeline) return std::nullopt;
  PieceOf piece = PieceOf::whole(kShapes[i]);
  Span& cut = piece.box[kShapes[i].size() == 2 && i % 2 == 1 ? 1 : 0];
  const int64_t size = cut.end;
  const bool is_cut = size % (kBlock * layout.tensor) == 0 || (i == 0 && layout.tensor > 1);
  if (is_cut) cut = {size / layout.tensor * tensor, size / layout.tensor * (tensor + 1)};
  const int64_t elements = piece.box_elements();
  const int64_t part =
      ((elements + layout.shard - 1) / layout.shard + kBlock - 1) / kBlock * kBlock;
  piece.range = {std::min(elements, part * shard), std::min(elements, part * (shard + 1))};
  if (piece.num_elements() == 0) return std::nullopt;
  return piece;
}

at::Tensor cut_out(const at::Tensor& whole, const PieceOf& piece) {
  at::Tensor box = whole.view(piece.whole_shape);
  for (size_t d = 0; d < piece.box.size(); ++d)
    box = box.narrow(static_cast<int64_t>(d), piece.box[d].begin, piece.box[d].length());
  return box.flatten().narrow(0, piece.range.begin, piece.num_elements()).clone();
}

TrainingTensors tensors_of(const std::vector<Whole>& model, const Layout& layout, int rank) {
  TrainingTensors tensors;
  for (size_t i = 0; i < model.size(); ++i) {
    const std::optional<PieceOf> piece = piece_of(layout, rank, i);
    if (!piece) continue;
    const std::string name = parameter_name(i);
    tensors.pieces[name] = *piece;
    tensors.parameters.push_back({name, cut_out(model[i].weight, *piece)});
    const std::optional<PieceOf> blocks = blocks_of(*piece, kBlock);
    const at::Tensor states[] = {cut_out(model[i].exp_avg, *piece),
                                 cut_out(model[i].absmax, blocks.value()),
                                 cut_out(model[i].master, *piece)};
    for (size_t k = 0; k < 3; ++k)
      tensors.optimizer_states.push_back({name + kStates[k], states[k]});
  }
  return tensors;
}

void expect_same(const TrainingTensors& a, const TrainingTensors& b, const std::string& where) {
  SCOPED_TRACE(where);
  optim::expect_same(a.parameters, b.parameters);
  optim::expect_same(a.optimizer_states, b.optimizer_states);
}

const std::vector<Layout> kLayouts = {{.name = "one"},
                                      {.name = "ddp", .replicate = 3},
                                      {.name = "fsdp2", .shard = 2},
                                      {.name = "fsdp5", .shard = 5},
                                      {.name = "hybrid", .shard = 2, .replicate = 2},
                                      {.name = "tp2", .tensor = 2},
                                      {.name = "tp4", .tensor = 4},
                                      {.name = "fsdp3_tp2", .shard = 3, .tensor = 2},
                                      {.name = "pp2_fsdp2", .shard = 2, .pipeline = 2}};

fs::path save_as(const Layout& layout, const fs::path& out_dir, const std::vector<Whole>& model,
                 int64_t step = 1) {
  const auto errors = as_ranks(layout.num_ranks(), [&](ThreadGroup& ranks) {
    save(out_dir, {.step = step}, tensors_of(model, layout, ranks.rank()), "{}", &ranks,
         layout.name);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "") << layout.name;
  return find_latest(out_dir).value_or("none");
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

class FromEach : public ::testing::TestWithParam<Layout> {};

TEST_P(FromEach, ToEach) {
  const test::TempFolder folder;
  const std::vector<Whole> model = random_model(1);
  const fs::path saved = save_as(GetParam(), folder.path(), model);
  for (const Layout& other : kLayouts)
    for (int rank = 0; rank < other.num_ranks(); ++rank) {
      const TrainingTensors wanted = tensors_of(model, other, rank);
      const TrainingTensors loaded = tensors_of(random_model(2), other, rank);
      load_tensors(saved, loaded);
      expect_same(wanted, loaded, other.name + " rank " + std::to_string(rank));
    }
}

INSTANTIATE_TEST_SUITE_P(All, FromEach, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) { return info.param.name; });

// A single process writes the same files whether or not it knows of ranks and pieces.
TEST(ManyRanks, OneWritesNoIndex) {
  const test::TempFolder folder;
  const fs::path saved = save_as({}, folder.path(), random_model(1));
  EXPECT_EQ(names_in(saved),
            (std::set<std::string>{"checksums.json", "model.safetensors", "optimizer.safetensors",
                                   "run.json", "state.json"}));
}

TEST(ManyRanks, CopiesAreWrittenOnceAndByAll) {
  const test::TempFolder folder;
  const std::vector<Whole> model = random_model(1);
  const int64_t one = size_bytes(save_as({}, folder / "one", model));
  const fs::path ddp = save_as({.replicate = 4}, folder / "ddp", model);
  EXPECT_LT(size_bytes(ddp), one + 16000) << "headers, names and the index";
  const Index index = read_index(ddp).value();
  EXPECT_EQ(index.num_ranks, 4);
  std::map<char, int64_t> bytes;  // by the rank's digit
  for (const PieceFile& file : index.files)
    bytes[file.name[file.name.find("rank-") + 8]] += file.bytes;
  EXPECT_EQ(bytes.size(), 4U);
  for (const auto& [rank, count] : bytes) EXPECT_GT(count, one / 8) << rank;
}

TEST(ManyRanks, TakeTheRoomThatWasForeseen) {
  const std::vector<Whole> model = random_model(1);
  for (const Layout& layout : kLayouts) {
    const test::TempFolder folder;
    std::vector<int64_t> foreseen(static_cast<size_t>(layout.num_ranks()));
    as_ranks(layout.num_ranks(), [&](ThreadGroup& ranks) {
      foreseen[static_cast<size_t>(ranks.rank())] =
          bytes_to_save(tensors_of(model, layout, ranks.rank()), &ranks);
    });
    int64_t written = 0;
    for (const auto& entry : fs::directory_iterator(save_as(layout, folder.path(), model)))
      if (entry.path().extension() == ".safetensors")
        written += static_cast<int64_t>(entry.file_size());
    for (const int64_t bytes : foreseen)
      EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(written),
                  0.01 * static_cast<double>(written))
          << layout.name;
  }
}

// Weights may be there whole where only their states are cut.
TEST(ManyRanks, WholeWeightsBesideCutStates) {
  const test::TempFolder folder;
  const std::vector<Whole> model = random_model(1);
  const Layout layout{.shard = 3};
  const std::string whole = parameter_name(kShapes.size() - 1);
  const auto with_late = [&](int rank) {
    TrainingTensors tensors = tensors_of(model, layout, rank);
    for (const NamedTensor& own : tensors.parameters)
      tensors.late_weights.push_back({own.name, own.name == whole ? at::full(kShapes.back(), 3.0)
                                                                  : at::ones(own.tensor.sizes())});
    return tensors;
  };
  const auto errors = as_ranks(3, [&](ThreadGroup& ranks) {
    save(folder.path(), {.step = 1}, with_late(ranks.rank()), "{}", &ranks);
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  TrainingTensors loaded = tensors_of(model, {}, 0);
  for (const NamedTensor& own : loaded.parameters)
    loaded.late_weights.push_back({own.name, at::zeros(own.tensor.sizes())});
  load_late_weights(find_latest(folder.path()).value(), loaded);
  for (const NamedTensor& late : loaded.late_weights)
    EXPECT_TRUE(
        at::equal(late.tensor, at::full(late.tensor.sizes(), late.name == whole ? 3.0 : 1.0)))
        << late.name;
}

// A weight that was updated in float32 is read as a 16-bit one with a master, and back.
TEST(ManyRanks, MastersAreWhereTheRunWantsThem) {
  const test::TempFolder folder;
  const std::vector<Whole> model = random_model(1);
  const Layout two{.shard = 2}, three{.shard = 3};
  const fs::path saved = save_as(two, folder.path(), model);
  for (int rank = 0; rank < 3; ++rank) {
    TrainingTensors loaded = tensors_of(random_model(2), three, rank);
    std::erase_if(loaded.optimizer_states,
                  [](const NamedTensor& state) { return state.name.ends_with(".master"); });
    for (NamedTensor& parameter : loaded.parameters)
      parameter.tensor = parameter.tensor.to(at::kFloat);
    load_tensors(saved, loaded);
    const TrainingTensors wanted = tensors_of(model, three, rank);
    for (size_t i = 0; i < loaded.parameters.size(); ++i)
      EXPECT_TRUE(
          at::equal(loaded.parameters[i].tensor, wanted.optimizer_states[3 * i + 2].tensor));
  }
}

// --- Failures -----------------------------------------------------------------------------------

void expect_all(const std::vector<std::string>& errors, const std::string& begin,
                const std::string& part) {
  for (const std::string& error : errors) {
    EXPECT_TRUE(error.starts_with(begin)) << error;
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(ManyRanks, OneThatCannotWriteStopsAll) {
  const test::TempFolder folder;
  const std::vector<Whole> model = random_model(1);
  const Layout layout{.shard = 4};
  save_as(layout, folder.path(), model);
  const auto errors = as_ranks(4, [&](ThreadGroup& ranks) {
    // A folder where its file is to go.
    if (ranks.rank() == 2)
      ranks.before_exchange = [&](int n) {
        if (n == 1)
          fs::create_directories(folder.path() / ".tmp-step-000002" /
                                 file_name(Contents::Optimizer, 2, 4));
      };
    save(folder.path(), {.step = 2}, tensors_of(model, layout, ranks.rank()), "{}", &ranks);
  });
  expect_all(errors, "rank 2: ", "optimizer-of-rank-0002-of-0004.safetensors");
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"step-000001"});
}

TEST(ManyRanks, AFolderThatIsNotSharedIsSaid) {
  const test::TempFolder folder, other;
  const std::vector<Whole> model = random_model(1);
  const Layout layout{.shard = 2};
  const auto errors = as_ranks(2, [&](ThreadGroup& ranks) {
    save(ranks.rank() == 0 ? folder.path() : other.path(), {.step = 2},
         tensors_of(model, layout, ranks.rank()), "{}", &ranks);
  });
  expect_all(errors, "rank 1: ", "a file system that all machines share");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_TRUE(fs::is_empty(other.path()));
}

TEST(ManyRanks, TensorsThatDoNotFitTogetherAreOurFault) {
  const test::TempFolder folder;
  const std::vector<Whole> model = random_model(1);
  const auto errors = as_ranks(2, [&](ThreadGroup& ranks) {
    // Rank 1 believes that there are three.
    const Layout layout{.shard = 2 + ranks.rank()};
    save(folder.path(), {.step = 2}, tensors_of(model, layout, ranks.rank()), "{}", &ranks);
  });
  expect_all(errors, "not the user's: ", "no rank holds some elements of layer.");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ManyRanks, LoadingFailsOnAllWhereItFailsOnOne) {
  const test::TempFolder folder;
  const std::vector<Whole> model = random_model(1);
  const Layout layout{.shard = 3};
  const fs::path saved = save_as(layout, folder.path(), model);
  const auto errors = as_ranks(3, [&](ThreadGroup& ranks) {
    TrainingTensors tensors = tensors_of(model, layout, ranks.rank());
    if (ranks.rank() == 1) tensors.parameters.push_back({"other", at::zeros({3})});
    load_tensors(saved, tensors, &ranks);
  });
  expect_all(errors, "rank 1: ", "other does not match what this recipe trains");
}

class Damaged : public ::testing::Test {
 protected:
  Damaged() {
    save_as(layout_, folder_.path(), model_, 1);
    saved_ = save_as(layout_, folder_.path(), model_, 2);
  }
  std::string load_error() const {
    try {
      load_tensors(saved_, tensors_of(model_, {}, 0));
    } catch (const UserError& error) {
      return error.what();
    }
    return "none";
  }
  void expect_damaged(const std::string& part) const {
    EXPECT_NE(load_error().find(part), std::string::npos) << load_error();
    EXPECT_THROW(load_state(saved_), UserError);
    std::string warning;
    const LogSinkGuard sink([&](const std::string& text) { warning += text; });
    EXPECT_EQ(find_latest(folder_.path()), folder_ / "step-000001");
    EXPECT_NE(warning.find("step-000002 is incomplete"), std::string::npos) << warning;
  }

  const Layout layout_{.shard = 3};
  const std::vector<Whole> model_ = random_model(1);
  const test::TempFolder folder_;
  fs::path saved_;
};

TEST_F(Damaged, MissingFile) {
  fs::remove(saved_ / file_name(Contents::Model, 1, 3));
  expect_damaged("model-of-rank-0001-of-0003.safetensors is missing");
}

TEST_F(Damaged, TruncatedFile) {
  const fs::path file = saved_ / file_name(Contents::Optimizer, 2, 3);
  fs::resize_file(file, fs::file_size(file) - 100);
  expect_damaged("optimizer-of-rank-0002-of-0003.safetensors has");
}

TEST_F(Damaged, TruncatedIndex) {
  fs::resize_file(saved_ / kIndexName, 200);
  expect_damaged("index.json is damaged");
}

TEST_F(Damaged, IndexOfNonsense) {
  std::string text = read_file(saved_ / kIndexName);
  const size_t at = text.find("\"stretch\":[");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 12, "\"stretch\":[-");
  write_file_atomically(saved_ / kIndexName, text);
  expect_damaged("index.json is damaged");
}

TEST_F(Damaged, FileOfAnotherSave) {
  fs::remove(saved_ / files::kChecksumsName);
  const std::string file = file_name(Contents::Model, 0, 3);
  fs::copy_file(folder_ / "step-000001" / file, saved_ / file,
                fs::copy_options::overwrite_existing);
  EXPECT_NE(load_error().find("come from different saves"), std::string::npos) << load_error();
}

TEST_F(Damaged, APieceThatNoFileHas) {
  fs::remove(saved_ / files::kChecksumsName);
  Index index = read_index(saved_).value();
  std::erase_if(index.files[0].pieces,
                [](const StoredPiece& piece) { return piece.name == parameter_name(0); });
  write_file_atomically(saved_ / kIndexName, index_text(index));
  EXPECT_NE(load_error().find("of layer.0.weight is missing from its files"), std::string::npos)
      << load_error();
}

TEST(ManyRanks, TheLatestIsTheOneOfRankZero) {
  const test::TempFolder folder, empty;
  save_as({.shard = 2}, folder.path(), random_model(1), 7);
  auto errors = as_ranks(3, [&](ThreadGroup& ranks) {
    EXPECT_EQ(find_latest(ranks.rank() == 0 ? folder.path() : empty.path(), ranks),
              folder / "step-000007");
    EXPECT_EQ(find_latest(empty.path(), ranks), std::nullopt);
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

// --- With optimizers ----------------------------------------------------------------------------

// What a rank of an optimizer over pieces has: `bench` cut as `layout` says.
struct Rank {
  Rank(const optim::Case& c, const optim::Bench& bench, int rank, int num_ranks) {
    for (const NamedTensor& whole : bench.parameters) {
      const int64_t elements = whole.tensor.numel();
      const int64_t part = (elements / num_ranks + kBlock - 1) / kBlock * kBlock;
      const int64_t begin = std::min(elements, part * rank);
      const int64_t end = rank + 1 == num_ranks ? elements : std::min(elements, begin + part);
      if (begin == end) continue;
      tensors.pieces[whole.name] = PieceOf::flat(whole.tensor.sizes().vec(), begin, end);
      tensors.parameters.push_back({whole.name, at::zeros({end - begin}, whole.tensor.options())});
      whole_elements.push_back(elements);
    }
    optimizer = make_optimizer(c.options, tensors.parameters, 0, whole_elements);
    tensors.optimizer_states = optimizer->states();
  }
  void step(const optim::Bench& gradients) const {
    for (const NamedTensor& own : tensors.parameters)
      for (const NamedTensor& whole : gradients.parameters)
        if (own.name == whole.name)
          own.tensor.mutable_grad() = cut_out(whole.tensor.grad(), tensors.pieces.at(own.name));
    optimizer->step({.lr = gradients.lr});
  }

  TrainingTensors tensors;
  std::vector<int64_t> whole_elements;
  std::unique_ptr<optim::Optimizer> optimizer;
};

std::vector<optim::Case> all_cases() {
  recipe::OptimizerOptions momentum = optim::options_of("sgd");
  recipe::OptimizerOptions masters = optim::options_of("adamw_8bit");
  momentum.momentum = 0.9;
  masters.master_weights = true;
  return {{"adamw", optim::options_of("adamw")},
          {"adamw_8bit", optim::options_of("adamw_8bit")},
          {"adamw_8bit_masters", masters, at::kBFloat16, at::kBFloat16},
          {"lion", optim::options_of("lion")},
          {"sgd_momentum", momentum}};
}

class Optimizers : public ::testing::TestWithParam<optim::Case> {};

// One process takes two steps, three ranks the next two, two ranks the last: as if it were one.
TEST_P(Optimizers, GoOnWithOtherNumbersOfRanks) {
  const optim::Case& c = GetParam();
  const test::TempFolder folder;
  const std::vector<std::vector<int64_t>> shapes = {{40, 129}, {129}, {5000}};
  optim::Bench straight(c, at::kCPU, shapes), gradients(c, at::kCPU, shapes);
  const auto steps = [&](int64_t first, int64_t last, const auto& step) {
    for (int64_t i = first; i < last; ++i) {
      gradients.set_gradients(static_cast<uint64_t>(i), c.gradients);
      straight.set_gradients(static_cast<uint64_t>(i), c.gradients);
      straight.optimizer->step({.lr = straight.lr});
      step();
    }
  };
  steps(0, 2, [] {});
  fs::path saved =
      save(folder.path(), {.step = 2}, {straight.parameters, straight.optimizer->states()}, "{}");
  for (const int num_ranks : {3, 2}) {
    const int64_t done = load_state(saved).step;
    std::vector<Rank> ranks;
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks.emplace_back(c, straight, rank, num_ranks);
      load_tensors(saved, ranks.back().tensors);
      ranks.back().optimizer->set_num_steps(done);
    }
    steps(done, done + 2, [&] {
      for (const Rank& rank : ranks) rank.step(gradients);
    });
    const auto errors = as_ranks(num_ranks, [&](ThreadGroup& group) {
      save(folder.path(), {.step = done + 2}, ranks[static_cast<size_t>(group.rank())].tensors,
           "{}", &group);
    });
    EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
    saved = *find_latest(folder.path());
  }
  optim::Bench resumed(c, at::kCPU, shapes);
  load_tensors(saved, {resumed.parameters, resumed.optimizer->states()});
  resumed.optimizer->set_num_steps(load_state(saved).step);
  optim::expect_same(straight.parameters, resumed.parameters);
  optim::expect_same(straight.optimizer->states(), resumed.optimizer->states());
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace snug::checkpoint
