// One query a sequence against its cache. The cache is cut into chunks of a fixed number of tokens;
// each gives a maximum, a sum and a weighted sum of values, so that one long sequence keeps all
// threads busy. The chunks are then joined in ascending order.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/kernels/cpu/linalg/attention/attention_bias.h"
#include "core/kernels/cpu/linalg/attention/attention_common.h"

namespace snug::kernels::cpu {
namespace {

constexpr int64_t kChunk = 512;

struct Task {
  int64_t sequence, kv_head;
  Range keys;
  int64_t slot;  // of its first query head's result
};

// Results lie in slots, one per chunk and query head; a head's chunks are `group` slots apart.
struct Workspace {
  float *out, *largest, *sum, *queries, *scores;
  RelativeBias bias;

  Workspace(Carver& carver, const DecodeAttentionArgs& args, int64_t slots, int threads)
      : out(carver.take<float>(slots * args.head_dim)),
        largest(carver.take<float>(slots)),
        sum(carver.take<float>(slots)),
        queries(carver.take<float>(args.num_sequences * args.num_heads * args.head_dim)),
        scores(carver.take<float>(threads * group(args) * kChunk)),
        bias(carver, args.bias, args.num_heads, kChunk) {}

  static int64_t group(const DecodeAttentionArgs& args) {
    return args.num_heads / args.num_kv_heads;
  }
};

Range visible(const DecodeAttentionArgs& args, int64_t sequence) {
  const int64_t length = args.lengths[sequence];
  const int64_t window = args.sliding_window > 0 ? args.sliding_window : length;
  return {std::max<int64_t>(0, length - window), length};
}

std::vector<Task> tasks_of(const DecodeAttentionArgs& args) {
  std::vector<Task> tasks;
  for (int64_t sequence = 0; sequence < args.num_sequences; ++sequence) {
    const Range keys = visible(args, sequence);
    for (int64_t head = 0; head < args.num_kv_heads; ++head) {
      for (int64_t begin = keys.begin; begin < keys.end; begin += kChunk) {
        const int64_t slot = int64_t(tasks.size()) * Workspace::group(args);
        tasks.push_back({sequence, head, {begin, std::min(keys.end, begin + kChunk)}, slot});
      }
    }
  }
  return tasks;
}

void attend_to_chunk(const DecodeAttentionArgs& args, const Kernels& kernels, const Workspace& work,
                     const Task& task, float* scores) {
  const int64_t group = Workspace::group(args), dim = args.head_dim;
  const int64_t count = task.keys.end - task.keys.begin;
  const int64_t place = (task.sequence * args.sequence_stride +
                         task.keys.begin * args.token_stride + task.kv_head * dim) *
                        scalar_bytes(args.type);
  const float* q = work.queries + (task.sequence * args.num_heads + task.kv_head * group) * dim;
  kernels.skinny_dot({.m = group,
                      .cols = count,
                      .k = dim,
                      .a = q,
                      .a_stride = dim,
                      .b = static_cast<const char*>(args.k_cache) + place,
                      .type = args.type,
                      .b_stride = args.token_stride,
                      .sums = scores,
                      .sums_stride = count});
  for (int64_t head = 0; head < group; ++head) {
    float* row = scores + head * count;
    float scale = args.scale;
    if (work.bias.present()) {
      const int64_t query = args.lengths[task.sequence] - 1;
      const float* bias = work.bias.row(task.kv_head * group + head) +
                          work.bias.place(task.keys.begin - query, 0, count);
      kernels.row_bias(row, count, scale, bias);
      scale = 1;
    }
    if (args.score_cap > 0) {
      kernels.row_cap(row, count, scale, args.score_cap);
      scale = 1;
    }
    const float largest = kernels.row_max(row, count) * scale;
    work.largest[task.slot + head] = largest;
    work.sum[task.slot + head] = kernels.row_exp(row, count, scale, largest);
  }
  kernels.skinny_axpy({.m = group,
                       .cols = dim,
                       .k = count,
                       .a = scores,
                       .a_stride = count,
                       .b = static_cast<const char*>(args.v_cache) + place,
                       .type = args.type,
                       .b_stride = args.token_stride,
                       .sums = work.out + task.slot * dim,
                       .sums_stride = dim});
}

// Scales every chunk of a head to the largest score of all, and adds them up in the first one's
// slot. `sink`: the head's, or null.
void join_chunks(const DecodeAttentionArgs& args, const Kernels& kernels, const Workspace& work,
                 int64_t first_slot, int64_t chunks, const float* sink, void* out) {
  const int64_t step = Workspace::group(args), dim = args.head_dim;
  float largest = work.largest[first_slot];
  for (int64_t c = 1; c < chunks; ++c)
    largest = std::max(largest, work.largest[first_slot + c * step]);
  if (sink != nullptr) largest = std::max(largest, *sink);
  float total = sink != nullptr ? std::exp(*sink - largest) : 0;
  float* sums = work.out + first_slot * dim;
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t slot = first_slot + c * step;
    const float factor = std::exp(work.largest[slot] - largest);
    total += work.sum[slot] * factor;
    kernels.store({.source = work.out + slot * dim,
                   .rows = 1,
                   .cols = dim,
                   .c = sums,
                   .alpha = factor,
                   .accumulate = c > 0});
  }
  kernels.store(
      {.source = sums, .rows = 1, .cols = dim, .c = out, .type = args.type, .alpha = 1 / total});
}

void join_sequence(const DecodeAttentionArgs& args, const Kernels& kernels, const Workspace& work,
                   const std::vector<Task>& tasks, size_t first) {
  const Task& task = tasks[first];
  if (task.keys.begin != visible(args, task.sequence).begin) return;  // not a head's first chunk
  const Range keys = visible(args, task.sequence);
  for (int64_t head = 0; head < Workspace::group(args); ++head) {
    const int64_t query_head = task.kv_head * Workspace::group(args) + head;
    const int64_t place = task.sequence * args.num_heads + query_head;
    join_chunks(args, kernels, work, task.slot + head, ceil_div(keys.end - keys.begin, kChunk),
                args.sinks != nullptr ? args.sinks + query_head : nullptr,
                static_cast<char*>(args.out) + place * args.head_dim * scalar_bytes(args.type));
  }
}

int64_t slots_of(const DecodeAttentionArgs& args, const std::vector<Task>& tasks) {
  return int64_t(tasks.size()) * Workspace::group(args);
}

}  // namespace

int64_t decode_attention_workspace_bytes(const DecodeAttentionArgs& args) {
  Carver carver(nullptr);
  Workspace(carver, args, slots_of(args, tasks_of(args)), resolve_threads(args.num_threads));
  return carver.used();
}

void decode_attention(const DecodeAttentionArgs& args, void* workspace) {
  const Kernels& kernels = active_kernels();
  const std::vector<Task> tasks = tasks_of(args);
  const int threads = resolve_threads(args.num_threads);
  Carver carver(workspace);
  const Workspace work(carver, args, slots_of(args, tasks), threads);
  kernels.unpack(args.q, args.type, 1, args.num_sequences * args.num_heads * args.head_dim,
                 work.queries);
#pragma omp parallel num_threads(threads)
  {
    float* scores = work.scores + omp_get_thread_num() * Workspace::group(args) * kChunk;
    work.bias.fill(kernels);
#pragma omp for schedule(dynamic, 1)
    for (size_t t = 0; t < tasks.size(); ++t)
      attend_to_chunk(args, kernels, work, tasks[t], scores);
#pragma omp for schedule(static)
    for (size_t t = 0; t < tasks.size(); ++t) join_sequence(args, kernels, work, tasks, t);
  }
}

}  // namespace snug::kernels::cpu
