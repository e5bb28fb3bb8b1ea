// The chunks of a document follow each other, so a task is a document and a key head with all its
// value heads, which share the products of queries and keys; or with one of them, where that would
// leave threads idle. Heads do not meet, so who computes them changes no bit.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "core/kernels/cpu/delta_rule/chunks.h"

namespace snug::kernels::cpu {
namespace delta_rule {
namespace {

struct ForwardScratch {
  ForwardScratch(Carver& carver, const DeltaRuleSizes& sizes, const Tile& tile)
      : chunk(carver, sizes, tile) {
    const Lengths lengths(sizes, tile);
    state_floats = lengths.key_rows * lengths.value_cols;
    states = carver.take<float>(sizes.num_value_heads / sizes.num_key_heads * state_floats);
    e = carver.take<float>(lengths.tokens * lengths.value_cols);
    out = carver.take<float>(lengths.tokens * lengths.value_cols);
  }
  ChunkScratch chunk;
  int64_t state_floats;
  float* states;   // (heads of a group, dk, dv) panels
  float *e, *out;  // (tokens, dv) panels
};

class ForwardTask {
 public:
  ForwardTask(const DeltaRuleForward& args, const Kernels& kernels, const ForwardScratch& scratch,
              int64_t heads_per_task, const HeadTask& task)
      : args_(args),
        kernels_(kernels),
        work_(scratch),
        chunks_(args, kernels, scratch.chunk, Reads::StateAndQueries),
        heads_(heads_per_task),
        task_(task),
        first_head_(task.head * heads_per_task) {}

  void run() const {
    const int64_t group = args_.sizes.num_value_heads / args_.sizes.num_key_heads;
    std::fill_n(work_.states, heads_ * work_.state_floats, 0.f);
    for (int64_t begin = 0; begin < task_.num_tokens; begin += args_.sizes.chunk) {
      const Chunk chunk{task_.first_token + begin,
                        std::min(args_.sizes.chunk, task_.num_tokens - begin)};
      chunks_.load_keys(chunk, first_head_ / group);
      for (int64_t i = 0; i < heads_; ++i) compute(chunk, i, begin == 0 ? nullptr : state(i));
    }
    for (int64_t i = 0; args_.final_states != nullptr && i < heads_; ++i) store_state(i);
  }

 private:
  float* state(int64_t i) const { return work_.states + i * work_.state_floats; }

  void compute(const Chunk& chunk, int64_t i, float* before) const {
    const DeltaRuleSizes& sizes = args_.sizes;
    const int64_t head = first_head_ + i, stride = sizes.num_value_heads * sizes.value_dim;
    chunks_.load_scores(chunk, head);
    chunks_.solve(chunk, head, before, work_.e);
    chunks_.read_out(chunk, before, work_.e, work_.out);
    chunks_.advance(chunk, work_.e, state(i));
    const int64_t begin = chunk.first * stride + head * sizes.value_dim;
    store_panels(kernels_, work_.chunk.token_panels(work_.out), chunk.count,
                 static_cast<char*>(args_.out) + begin * scalar_bytes(sizes.type), sizes.type,
                 stride);
  }

  void store_state(int64_t i) const {
    const DeltaRuleSizes& sizes = args_.sizes;
    const int64_t number = task_.document * sizes.num_value_heads + first_head_ + i;
    store_panels(kernels_, work_.chunk.state_panels(state(i)), sizes.key_dim,
                 args_.final_states + number * sizes.key_dim * sizes.value_dim, Scalar::F32,
                 sizes.value_dim);
  }

  const DeltaRuleForward& args_;
  const Kernels& kernels_;
  const ForwardScratch& work_;
  const ChunkForward chunks_;
  const int64_t heads_;
  const HeadTask& task_;
  const int64_t first_head_;
};

int64_t heads_per_task(const DeltaRuleSizes& sizes, int threads) {
  const bool enough = sizes.num_documents * sizes.num_key_heads >= 2 * threads;
  return enough || threads == 1 ? sizes.num_value_heads / sizes.num_key_heads : 1;
}

}  // namespace
}  // namespace delta_rule

int64_t delta_rule_forward_workspace_bytes(const DeltaRuleForward& args) {
  Carver own(nullptr);
  delta_rule::ForwardScratch(own, args.sizes, active_kernels().tile);
  return own.used() * resolve_threads(args.num_threads);
}

void delta_rule_forward(const DeltaRuleForward& args, void* workspace) {
  using namespace delta_rule;  // NOLINT(google-build-using-namespace): this file's own
  check_delta_rule(args);
  const Kernels& kernels = active_kernels();
  const int threads = resolve_threads(args.num_threads);
  const int64_t heads = heads_per_task(args.sizes, threads);
  const std::vector<HeadTask> tasks = head_tasks(args, args.sizes.num_value_heads / heads);
  Carver carver(workspace);
  std::vector<ForwardScratch> work;
  for (int t = 0; t < threads; ++t) work.emplace_back(carver, args.sizes, kernels.tile);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (size_t t = 0; t < tasks.size(); ++t) {
    const ForwardScratch& own = work[size_t(omp_get_thread_num())];
    ForwardTask(args, kernels, own, heads, tasks[t]).run();
  }
}

}  // namespace snug::kernels::cpu
