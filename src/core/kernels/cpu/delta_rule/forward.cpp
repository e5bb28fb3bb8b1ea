// The chunks of a document follow each other, so a task is a document and some value heads of a key
// head, which share the products of queries and keys: fewer of them where threads would be idle.
// Heads do not meet, so who computes them changes no bit.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "core/kernels/cpu/delta_rule/chunks.h"

namespace snug::kernels::cpu {
namespace delta_rule {
namespace {

// Value heads of a task at most: by then what they share costs little, and their states still lie
// in a cache near the core.
constexpr int64_t kMostHeads = 8;

int64_t group_of(const DeltaRuleSizes& sizes) {
  return sizes.num_value_heads / sizes.num_key_heads;
}

struct ForwardScratch {
  ForwardScratch(Carver& carver, const DeltaRuleSizes& sizes, const Tile& tile)
      : chunk(carver, sizes, tile) {
    const Lengths lengths(sizes, tile);
    state_floats = lengths.key_rows * lengths.value_cols;
    states = carver.take<float>(std::min(group_of(sizes), kMostHeads) * state_floats);
    e = carver.take<float>(lengths.tokens * lengths.value_cols);
    out = carver.take<float>(lengths.tokens * lengths.value_cols);
  }
  ChunkScratch chunk;
  int64_t state_floats;
  float* states;   // (heads of a task, dk, dv) panels
  float *e, *out;  // (tokens, dv) panels
};

class ForwardTask {
 public:
  ForwardTask(const DeltaRuleForward& args, const Kernels& kernels, const ForwardScratch& scratch,
              const HeadTask& task)
      : args_(args),
        kernels_(kernels),
        work_(scratch),
        chunks_(args, kernels, scratch.chunk, Reads::StateAndQueries),
        task_(task) {}

  void run() const {
    std::fill_n(work_.states, task_.num_heads * work_.state_floats, 0.f);
    for (int64_t begin = 0; begin < task_.num_tokens; begin += args_.sizes.chunk) {
      const Chunk chunk{task_.first_token + begin,
                        std::min(args_.sizes.chunk, task_.num_tokens - begin)};
      chunks_.load_keys(chunk, task_.key_head);
      for (int64_t i = 0; i < task_.num_heads; ++i)
        compute(chunk, i, begin == 0 ? nullptr : state(i));
    }
    for (int64_t i = 0; args_.final_states != nullptr && i < task_.num_heads; ++i) store_state(i);
  }

 private:
  float* state(int64_t i) const { return work_.states + i * work_.state_floats; }

  void compute(const Chunk& chunk, int64_t i, float* before) const {
    const DeltaRuleSizes& sizes = args_.sizes;
    const int64_t head = task_.first_head + i, stride = sizes.num_value_heads * sizes.value_dim;
    chunks_.load_scores(chunk, head);
    chunks_.solve(chunk, head, before, work_.e);
    chunks_.read_out(chunk, head, before, work_.e, work_.out);
    chunks_.advance(chunk, work_.e, state(i));
    const int64_t begin = chunk.first * stride + head * sizes.value_dim;
    store_panels(kernels_, work_.chunk.token_panels(work_.out), chunk.count,
                 static_cast<char*>(args_.out) + begin * scalar_bytes(sizes.type), sizes.type,
                 stride);
  }

  void store_state(int64_t i) const {
    const DeltaRuleSizes& sizes = args_.sizes;
    const int64_t number = task_.document * sizes.num_value_heads + task_.first_head + i;
    store_panels(kernels_, work_.chunk.state_panels(state(i)), sizes.key_dim,
                 args_.final_states + number * sizes.key_dim * sizes.value_dim, Scalar::F32,
                 sizes.value_dim);
  }

  const DeltaRuleForward& args_;
  const Kernels& kernels_;
  const ForwardScratch& work_;
  const ChunkForward chunks_;
  const HeadTask& task_;
};

int64_t heads_per_task(const DeltaRuleSizes& sizes, int threads) {
  const int64_t groups = std::max<int64_t>(sizes.num_documents * sizes.num_key_heads, 1);
  const int64_t parts = threads == 1 ? 1 : ceil_div(int64_t{2} * threads, groups);
  return std::clamp<int64_t>(group_of(sizes) / parts, 1, kMostHeads);
}

}  // namespace
}  // namespace delta_rule

int64_t delta_rule_forward_workspace_bytes(const DeltaRuleForward& args) {
  return delta_rule::workspace_bytes<delta_rule::ForwardScratch>(args);
}

void delta_rule_forward(const DeltaRuleForward& args, void* workspace) {
  using namespace delta_rule;  // NOLINT(google-build-using-namespace): this file's own
  check_delta_rule(args);
  const auto work = scratch_of_threads<ForwardScratch>(args, workspace);
  const auto tasks = head_tasks(args, heads_per_task(args.sizes, static_cast<int>(work.size())));
  each_task(tasks.size(), work, [&](size_t number, const ForwardScratch& own) {
    ForwardTask(args, active_kernels(), own, tasks[number]).run();
  });
}

}  // namespace snug::kernels::cpu
