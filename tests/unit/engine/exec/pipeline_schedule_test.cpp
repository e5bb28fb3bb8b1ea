// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace snug::exec {
namespace {

// F and B with the micro-batch, as papers draw them; with chunks as F0.1.
std::string drawn(const PipelineShape& shape, int64_t stage) {
  std::string text;
  for (const PipelineStep& step : pipeline_steps(shape, stage)) {
    text += (text.empty() ? "" : " ") + std::string(step.way == Way::Forward ? "F" : "B") +
            std::to_string(step.micro_batch);
    if (shape.chunks > 1) text += "." + std::to_string(step.place / shape.stages);
  }
  return text;
}

TEST(PipelineSchedule, IsWhatThePapersDraw) {
  PipelineShape shape{.stages = 4, .micro_batches = 4};
  EXPECT_EQ(drawn(shape, 0), "F0 F1 F2 F3 B0 B1 B2 B3");
  EXPECT_EQ(drawn(shape, 2), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(drawn(shape, 3), "F0 B0 F1 B1 F2 B2 F3 B3");
  shape.order = PipelineOrder::AllForwardFirst;
  EXPECT_EQ(drawn(shape, 3), "F0 F1 F2 F3 B0 B1 B2 B3");
  shape = {.stages = 2, .chunks = 2, .micro_batches = 2};
  EXPECT_EQ(drawn(shape, 1), "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0");
}

// All that may differ; every number of micro-batches, also those that stages do not divide.
template <class Check>
void for_all_shapes(const Check& check) {
  for (int64_t stages = 1; stages <= 6; ++stages)
    for (int64_t chunks = 1; chunks <= 4; ++chunks)
      for (int64_t micro_batches = 1; micro_batches <= 14; ++micro_batches)
        for (const auto order :
             {PipelineOrder::OneForwardOneBackward, PipelineOrder::AllForwardFirst}) {
          const PipelineShape shape{stages, chunks, micro_batches, order};
          SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(chunks) + " chunks, " +
                       std::to_string(micro_batches) + " micro-batches");
          check(shape);
          if (testing::Test::HasFailure()) return;
        }
}

TEST(PipelineSchedule, EveryMicroBatchGoesThroughEveryPlaceOnceEachWay) {
  for_all_shapes([](const PipelineShape& shape) {
    std::set<PipelineStep> seen;
    for (int64_t stage = 0; stage < shape.stages; ++stage)
      for (const PipelineStep& step : pipeline_steps(shape, stage)) {
        EXPECT_EQ(step.place % shape.stages, stage);
        EXPECT_LT(step.place, shape.num_places());
        EXPECT_LT(step.micro_batch, shape.micro_batches);
        EXPECT_TRUE(seen.insert(step).second);
      }
    EXPECT_EQ(std::ssize(seen), 2 * shape.num_places() * shape.micro_batches);
  });
}

// A chunk's gradients are whole after its backward of the last micro-batch.
TEST(PipelineSchedule, MicroBatchesKeepTheirOrderInEachPlace) {
  for_all_shapes([](const PipelineShape& shape) {
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      std::map<std::pair<Way, int64_t>, int64_t> last;
      for (const PipelineStep& step : pipeline_steps(shape, stage)) {
        const auto [found, is_first] = last.try_emplace({step.way, step.place}, -1);
        EXPECT_EQ(step.micro_batch, found->second + 1);
        found->second = step.micro_batch;
      }
    }
  });
}

// All stages at once. A send is over when the receive has been started; one step ahead receives are
// started, in the order of the sender; before a stage sends it waits for what it sent that way
// last.
class Rendezvous {
 public:
  explicit Rendezvous(const PipelineShape& shape) : shape_(shape), ranks_(shape.stages) {
    for (int64_t stage = 0; stage < shape.stages; ++stage)
      ranks_[stage].steps = pipeline_steps(shape, stage);
    for (int64_t stage = 0; stage < shape.stages; ++stage)
      for (const PipelineStep& step : ranks_[stage].steps)
        if (const auto target = target_of(step))
          messages_[{stage, target->place % shape.stages}].push_back(*target);
  }

  bool ends() {
    for (bool moves = true; moves;) {
      moves = false;
      for (Rank& rank : ranks_)
        while (advance(rank)) moves = true;
    }
    return std::ranges::all_of(ranks_, [](const Rank& r) { return r.next == r.steps.size(); });
  }

 private:
  struct Rank {
    std::vector<PipelineStep> steps;
    size_t next = 0;
    std::map<Way, PipelineStep> sent;  // last
  };

  std::optional<PipelineStep> at(PipelineStep step, int64_t by) const {
    step.place += step.way == Way::Forward ? by : -by;
    if (step.place < 0 || step.place >= shape_.num_places()) return std::nullopt;
    return step;
  }
  std::optional<PipelineStep> target_of(const PipelineStep& step) const { return at(step, 1); }
  std::optional<PipelineStep> source_of(const PipelineStep& step) const { return at(step, -1); }

  void start_receive(const PipelineStep& step) {
    const auto source = source_of(step);
    if (!source) return;
    const std::pair link{source->place % shape_.stages, step.place % shape_.stages};
    while (!started_.contains(step)) started_.insert(messages_[link][next_[link]++]);
  }

  bool advance(Rank& rank) {
    if (rank.next == rank.steps.size()) return false;
    const PipelineStep& step = rank.steps[rank.next];
    start_receive(step);
    if (rank.next + 1 < rank.steps.size()) start_receive(rank.steps[rank.next + 1]);
    if (source_of(step) && !arrived_.contains(step)) return false;
    if (const auto target = target_of(step)) {
      const auto before = rank.sent.find(step.way);
      if (before != rank.sent.end() && !started_.contains(before->second)) return false;
      arrived_.insert(*target);
      rank.sent[step.way] = *target;
    }
    ++rank.next;
    return true;
  }

  PipelineShape shape_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int64_t, int64_t>, std::vector<PipelineStep>> messages_;  // in their order
  std::map<std::pair<int64_t, int64_t>, size_t> next_;
  std::set<PipelineStep> started_, arrived_;
};

TEST(PipelineSchedule, NoStageWaitsForEver) {
  for_all_shapes([](const PipelineShape& shape) { EXPECT_TRUE(Rendezvous(shape).ends()); });
}

int64_t most_under_way(const PipelineShape& shape, int64_t stage) {
  int64_t now = 0, most = 0;
  for (const PipelineStep& step : pipeline_steps(shape, stage)) {
    now += step.way == Way::Forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

TEST(PipelineSchedule, FewMicroBatchesAreUnderWayAtOnce) {
  const PipelineShape shape{.stages = 4, .micro_batches = 32};
  for (int64_t stage = 0; stage < 4; ++stage) EXPECT_EQ(most_under_way(shape, stage), 4 - stage);
  PipelineShape all = shape;
  all.order = PipelineOrder::AllForwardFirst;
  EXPECT_EQ(most_under_way(all, 0), 32);
}

// (stages - 1) / (chunks * micro-batches) of the work, Narayanan et al. 2021.
TEST(PipelineSchedule, WaitsAsLongAsThePaperSays) {
  for (const int64_t stages : {1, 2, 4, 8})
    for (const int64_t chunks : {1, 2, 4})
      for (const int64_t rounds : {1, 2, 5}) {
        const PipelineShape shape{
            .stages = stages, .chunks = chunks, .micro_batches = rounds * stages};
        EXPECT_NEAR(
            pipeline_length(shape) - 1,
            static_cast<double>(stages - 1) / static_cast<double>(chunks * shape.micro_batches),
            1e-12);
      }
  const PipelineShape gpipe{
      .stages = 4, .micro_batches = 6, .order = PipelineOrder::AllForwardFirst};
  EXPECT_NEAR(pipeline_length(gpipe) - 1, 3.0 / 6, 1e-12);
}

}  // namespace
}  // namespace snug::exec
