// A model in parts on several ranks, which are threads here, written by one: the same files as of a
// whole one, and never more than a unit at once.
// SPDX-License-Identifier: Apache-2.0
#include "engine/export/gather_export.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/ledger.h"
#include "models/family.h"
#include "support/temp_folder.h"
#include "support/thread_group.h"

namespace snug::engine {
namespace gather_export_test {

namespace fs = std::filesystem;
using test::ThreadGroup;

const fs::path kData = fs::path(SNUG_SOURCE_DIR) / "tests/data";

// A rank's model, which has the values of a unit only while that is gathered.
class InParts {
 public:
  explicit InParts(const fs::path& config)
      : model_(models::model_from_config(config)), units_(model_->units()) {}

  void gather(size_t unit) {
    EXPECT_TRUE(present_.insert(unit).second);
    EXPECT_EQ(present_.size(), 1U) << "a second unit at once";
    gathered.push_back(unit);
    for (nn::Parameter* parameter : units_[unit]->parameters()) {
      parameter->allocate(at::kCPU, at::kFloat);
      parameter->initialize(3, 0.1);  // by its name
    }
  }
  void release(size_t unit) {
    EXPECT_EQ(present_.erase(unit), 1U);
    for (nn::Parameter* parameter : units_[unit]->parameters()) parameter->value.reset();
  }
  UnitGathering gathering() {
    return {[this](size_t unit) { gather(unit); }, [this](size_t unit) { release(unit); }};
  }
  models::Model& model() { return *model_; }
  const std::vector<nn::Unit*>& units() const { return units_; }
  bool is_empty() const { return present_.empty(); }

  std::vector<size_t> gathered;

 private:
  std::unique_ptr<models::Model> model_;
  std::vector<nn::Unit*> units_;
  std::set<size_t> present_;
};

class GatherExport : public testing::Test {
 protected:
  void SetUp() override {
    memory::install_allocators();
    auto config = nlohmann::json::parse(read_file(kData / "parity" / "llama" / "config.json"));
    config["vocab_size"] = 304;
    write_file_atomically(folder_ / "config.json", config.dump());
    tokenizer_ = tokenizer::Tokenizer::from_directory(kData / "system/tiny");
    for (int rank = 0; rank < kRanks; ++rank)
      models_.push_back(std::make_unique<InParts>(folder_ / "config.json"));
  }

  std::vector<std::string> export_to(const fs::path& directory) {
    return test::as_ranks(kRanks, [&](ThreadGroup& ranks) {
      InParts& own = *models_[static_cast<size_t>(ranks.rank())];
      write_gathered(ranks, own.units(), own.gathering(), [&](const ParameterReader& read) {
        export_hugging_face(directory, own.model(), tokenizer_.get(), read, {.dtype = at::kFloat});
      });
    });
  }

  static constexpr int kRanks = 3;
  test::TempFolder folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::vector<std::unique_ptr<InParts>> models_;
};

TEST_F(GatherExport, WritesWhatAWholeModelDoes) {
  EXPECT_EQ(export_to(folder_ / "gathered"), std::vector<std::string>(kRanks));
  const auto whole = models::model_from_config(folder_ / "config.json");
  for (nn::Parameter* parameter : whole->parameters()) {
    parameter->allocate(at::kCPU, at::kFloat);
    parameter->initialize(3, 0.1);
  }
  export_hugging_face(folder_ / "whole", *whole, tokenizer_.get(), resident_value,
                      {.dtype = at::kFloat});
  for (const auto& entry : fs::directory_iterator(folder_ / "whole"))
    EXPECT_EQ(read_file(entry.path()), read_file(folder_ / "gathered" / entry.path().filename()))
        << entry.path();
  for (const auto& model : models_) {
    EXPECT_TRUE(model->is_empty());
    EXPECT_EQ(model->gathered, models_[0]->gathered) << "all ranks alike";
    EXPECT_LE(model->gathered.size(), model->units().size()) << "each once";
  }
}

TEST_F(GatherExport, AFailureEndsAll) {
  write_file_atomically(folder_ / "a_file", "");
  const std::vector<std::string> errors = export_to(folder_ / "a_file");
  for (const std::string& error : errors)
    EXPECT_EQ(error, "rank 0: " + (folder_ / "a_file").string() +
                         " is a file; move it away, or name another folder");
  // In the midst of it, with a unit gathered.
  const auto late = test::as_ranks(kRanks, [&](ThreadGroup& ranks) {
    InParts& own = *models_[static_cast<size_t>(ranks.rank())];
    write_gathered(ranks, own.units(), own.gathering(), [&](const ParameterReader& read) {
      read(*own.model().parameters().front());
      throw UserError("the disk is full");
    });
  });
  EXPECT_EQ(late, std::vector<std::string>(kRanks, "rank 0: the disk is full"));
  EXPECT_EQ(export_to(folder_ / "again"), std::vector<std::string>(kRanks));
}

}  // namespace gather_export_test
}  // namespace snug::engine
