// A task is a tile of queries of one document with all heads that share a key/value head, so that
// each packed block of keys and values serves about two hundred rows. Per block of keys and panel
// of rows (as many as the register tile has): scores, running maximum and sum, probabilities packed
// again, and their product with the values, all in the first-level cache.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/kernels/cpu/linalg/attention/attention_bias.h"
#include "core/kernels/cpu/linalg/attention/attention_common.h"

namespace snug::kernels::cpu {
namespace {

constexpr int64_t kTileRows = 192;  // queries x heads of a group
constexpr int64_t kKeyBlock = 128;

struct Shape {
  Shape(const AttentionArgs& args, const Tile& product)
      : group(args.num_heads / args.num_kv_heads),
        tile(round_up(std::max<int64_t>(kTileRows / group, 24), product.mr)),
        keys(round_up(kKeyBlock, product.nr)),
        dim(round_up(args.head_dim, product.nr)),
        depth(product.packed_depth(args.head_dim)) {}
  int64_t group, tile, keys, dim;  // dim: padded to whole register tiles
  int64_t depth;                   // floats of one line of queries or keys in a panel
};

struct Workspace {
  float *q, *k, *v, *scores, *probabilities, *out, *row_max, *row_sum;
  uint16_t* rounded;  // a panel of probabilities

  Workspace(Carver& carver, const Tile& tile, const Shape& shape)
      : q(carver.take<float>(shape.group * shape.tile * shape.depth + kPackSlack)),
        k(carver.take<float>(shape.keys * shape.depth + kPackSlack)),
        v(carver.take<float>(tile.packed_depth(shape.keys) * shape.dim + kPackSlack)),
        scores(carver.take<float>(tile.mr * shape.keys)),
        probabilities(carver.take<float>(tile.mr * tile.packed_depth(shape.keys) + kPackSlack)),
        out(carver.take<float>(shape.group * shape.tile * shape.dim)),
        row_max(carver.take<float>(shape.group * shape.tile)),
        row_sum(carver.take<float>(shape.group * shape.tile)),
        rounded(carver.take<uint16_t>(tile.per_float > 1 ? tile.mr * shape.keys : 0)) {}
};

class ForwardTile {
 public:
  ForwardTile(const AttentionArgs& args, const Kernels& kernels, const Shape& shape,
              const RelativeBias& bias, const Workspace& work, const Segment& segment,
              int64_t begin)
      : args_(args),
        kernels_(kernels),
        tile_(product_tile(args, kernels)),
        shape_(shape),
        bias_(bias),
        work_(work),
        segment_(segment),
        queries_{begin, std::min(segment.num_queries, begin + shape.tile)} {}

  void run() const {
    pack_queries();
    for (int64_t head = 0; head < shape_.group; ++head) start_head(head);
    std::fill_n(work_.out, shape_.group * shape_.tile * shape_.dim, 0.f);
    const Range keys = visible_keys(args_, segment_, queries_.begin, queries_.end);
    for (int64_t key = keys.begin / shape_.keys * shape_.keys; key < keys.end; key += shape_.keys) {
      const Range block{key, std::min(segment_.num_keys, key + shape_.keys)};
      pack_keys(block);
      for (int64_t head = 0; head < shape_.group; ++head) {
        for (int64_t row = 0; row < queries_.end - queries_.begin; row += tile_.mr) {
          add_block(block, head, row);
        }
      }
    }
    for (int64_t head = 0; head < shape_.group; ++head) store_head(head);
  }

 private:
  int64_t query_head(int64_t head) const { return segment_.kv_head * shape_.group + head; }

  // Before the first key there is none, or the sink, whose value adds nothing.
  void start_head(int64_t head) const {
    const bool sinks = args_.sinks != nullptr;
    const float first =
        sinks ? args_.sinks[query_head(head)] : -std::numeric_limits<float>::infinity();
    std::fill_n(work_.row_max + head * shape_.tile, shape_.tile, first);
    std::fill_n(work_.row_sum + head * shape_.tile, shape_.tile, sinks ? 1.f : 0.f);
  }

  void pack_queries() const {
    const int64_t token = segment_.first_query + queries_.begin;
    for (int64_t head = 0; head < shape_.group; ++head) {
      const HeadRows q(args_.q, args_.type, args_.q_stride, token, query_head(head),
                       args_.head_dim);
      const int64_t count = queries_.end - queries_.begin;
      tile_.pack_a(q.tokens_as_lines(count, count, args_.head_dim,
                                     work_.q + head * shape_.tile * shape_.depth));
    }
  }

  void pack_keys(Range block) const {
    const int64_t token = segment_.first_key + block.begin, count = block.end - block.begin;
    const HeadRows k(args_.k, args_.type, args_.k_stride, token, segment_.kv_head, args_.head_dim);
    const HeadRows v(args_.v, args_.type, args_.v_stride, token, segment_.kv_head, args_.head_dim);
    tile_.pack_b(k.tokens_as_lines(count, count, args_.head_dim, work_.k));
    tile_.pack_b(v.dims_as_lines(count, args_.head_dim, work_.v));
  }

  // One panel of rows against one block of keys.
  void add_block(Range block, int64_t head, int64_t row) const {
    const int64_t token = queries_.begin + row;
    const int64_t rows = std::min<int64_t>(tile_.mr, queries_.end - token);
    const Range seen = visible_keys(args_, segment_, token, token + rows);
    const int64_t depth = std::min(block.end, seen.end) - block.begin;
    if (depth <= 0 || seen.begin >= block.end) return;

    const int64_t panel = head * shape_.tile + row;
    for (int64_t j = 0; j < depth; j += tile_.nr) {
      tile_.multiply(shape_.depth, work_.q + panel * shape_.depth, work_.k + j * shape_.depth,
                     work_.scores + j, shape_.keys, 1.f, false);
    }
    for (int64_t i = 0; i < rows; ++i) update_row(block, head, panel, token, i, depth);
    pack_scores(kernels_, tile_, Operand::A, work_.scores, shape_.keys, rows, depth, work_.rounded,
                work_.probabilities);
    const int64_t values = tile_.packed_depth(block.end - block.begin);  // depth of their panels
    for (int64_t d = 0; d < shape_.dim; d += tile_.nr) {
      tile_.multiply(tile_.packed_depth(depth), work_.probabilities, work_.v + d * values,
                     work_.out + panel * shape_.dim + d, shape_.dim, 1.f, true);
    }
  }

  // Scores of row i become exp(score - maximum so far); what was summed before is scaled to it.
  void update_row(Range block, int64_t head, int64_t panel, int64_t token, int64_t i,
                  int64_t depth) const {
    const Range seen = visible_keys(args_, segment_, token + i, token + i + 1);
    float* scores = work_.scores + i * shape_.keys;
    const int64_t begin = std::clamp<int64_t>(seen.begin - block.begin, 0, depth);
    const int64_t end = std::clamp<int64_t>(seen.end - block.begin, begin, depth);
    std::fill(scores, scores + begin, 0.f);
    std::fill(scores + end, scores + depth, 0.f);
    if (begin == end) return;

    float scale = args_.scale;
    if (bias_.present()) {
      const float* bias =
          bias_.row(query_head(head)) +
          bias_.place(block.begin + begin - token - i - segment_.shift, 0, end - begin);
      kernels_.row_bias(scores + begin, end - begin, scale, bias);
      scale = 1;
    }
    if (args_.score_cap > 0) {
      kernels_.row_cap(scores + begin, end - begin, scale, args_.score_cap);
      scale = 1;
    }
    float& largest = work_.row_max[panel + i];
    float& sum = work_.row_sum[panel + i];
    const float before = largest;
    largest = std::max(before, kernels_.row_max(scores + begin, end - begin) * scale);
    const float added = kernels_.row_exp(scores + begin, end - begin, scale, largest);
    if (args_.dropout.probability > 0) {
      kernels_.row_drop(
          scores + begin, end - begin,
          drop_of(args_, query_head(head), segment_.first_query + token + i, block.begin + begin));
    }
    if (before == largest) {
      sum += added;
      return;
    }
    const float factor = std::exp(before - largest);
    sum = sum * factor + added;
    kernels_.row_scale(work_.out + (panel + i) * shape_.dim, shape_.dim, factor);
  }

  void store_head(int64_t head) const {
    const int64_t stride = args_.num_heads * args_.head_dim;
    const int64_t first = segment_.first_query + queries_.begin;
    const float grown = args_.dropout.scale();
    for (int64_t i = 0; i < queries_.end - queries_.begin; ++i) {
      const int64_t row = head * shape_.tile + i;
      const int64_t place = (first + i) * stride + query_head(head) * args_.head_dim;
      kernels_.store({.source = work_.out + row * shape_.dim,
                      .source_stride = shape_.dim,
                      .rows = 1,
                      .cols = args_.head_dim,
                      .c = static_cast<char*>(args_.out) + place * scalar_bytes(args_.type),
                      .type = args_.type,
                      .c_stride = stride,
                      .alpha = grown / work_.row_sum[row]});
      args_.lse[query_head(head) * args_.num_tokens + first + i] =
          work_.row_max[row] + std::log(work_.row_sum[row]);
    }
  }

  const AttentionArgs& args_;
  const Kernels& kernels_;
  const Tile& tile_;
  const Shape& shape_;
  const RelativeBias& bias_;
  const Workspace& work_;
  const Segment& segment_;
  const Range queries_;
};

struct Task {
  const Segment* segment;
  int64_t begin;
  int64_t keys;  // what it costs
};

std::vector<Task> tasks_of(const AttentionArgs& args, const Shape& shape,
                           const std::vector<Segment>& segments) {
  std::vector<Task> tasks;
  for (const Segment& segment : segments) {
    for (int64_t begin = 0; begin < segment.num_queries; begin += shape.tile) {
      const int64_t end = std::min(segment.num_queries, begin + shape.tile);
      const Range keys = visible_keys(args, segment, begin, end);
      tasks.push_back({&segment, begin, (keys.end - keys.begin) * (end - begin)});
    }
  }
  // The longest first, so that the threads finish together.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.keys > b.keys; });
  return tasks;
}

}  // namespace

int64_t attention_forward_workspace_bytes(const AttentionArgs& args) {
  const Tile& tile = product_tile(args, active_kernels());
  const Shape shape(args, tile);
  Carver shared(nullptr), own(nullptr);
  RelativeBias(shared, args.bias, args.num_heads, shape.keys);
  Workspace(own, tile, shape);
  return shared.used() + own.used() * resolve_threads(args.num_threads);
}

void attention_forward(const AttentionArgs& args, void* workspace) {
  check_attention(args);
  const Kernels& kernels = active_kernels();
  const Tile& tile = product_tile(args, kernels);
  const Shape shape(args, tile);
  const std::vector<Segment> segments = segments_of(args);
  const std::vector<Task> tasks = tasks_of(args, shape, segments);
  Carver carver(workspace);
  const RelativeBias bias(carver, args.bias, args.num_heads, shape.keys);
  std::vector<Workspace> work;
  const int threads = resolve_threads(args.num_threads);
  for (int t = 0; t < threads; ++t) work.emplace_back(carver, tile, shape);
#pragma omp parallel num_threads(threads)
  {
    const TileScope scope(tile);
    const Workspace& own = work[size_t(omp_get_thread_num())];
    bias.fill(kernels);
#pragma omp for schedule(dynamic, 1)
    for (size_t t = 0; t < tasks.size(); ++t) {
      ForwardTile(args, kernels, shape, bias, own, *tasks[t].segment, tasks[t].begin).run();
    }
  }
}

}  // namespace snug::kernels::cpu
