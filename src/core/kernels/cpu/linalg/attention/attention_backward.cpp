// A task is one block of keys of one document and key/value head. It walks the tiles of queries
// that see the block, in ascending order, recomputes their probabilities from the log-sum-exp, and
// sums dK and dV by itself. dQ collects contributions of several tasks: each tile of queries has a
// ticket that says which block of keys is next, so the sum always runs in the same order and needs
// neither a second pass nor atomic additions. A task waits only for the block before it, which was
// handed out earlier.
//
//   P = exp(S*scale - lse)   dV += P^T dO   dP = dO V^T   dS = P*(dP - delta)*scale
//   dK += dS^T Q             dQ += dS K     delta = rowsum(dO * O)
//
// With a cap c the scaled score s counts as z = c tanh(s / c), and dS has 1 - (z / c)^2 as a
// factor. Sinks count in lse and O alone.
//
// The gradient of relative biases is summed by distance while a task runs, and by bucket at its
// end; the tasks' sums are added in their order when all are done.
//
// Scores are kept in the layout of packed float32 B panels, so that there P and dS are operands as
// they stand and the transposed dK^T = Q^T dS, dV^T = dO^T P need no repacking of them. A tile of
// bfloat16 packs them rounded.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/kernels/cpu/linalg/attention/attention_bias.h"
#include "core/kernels/cpu/linalg/attention/attention_common.h"

namespace snug::kernels::cpu {
namespace {

struct Shape {
  Shape(const AttentionArgs& args, const Tile& product)
      : group(args.num_heads / args.num_kv_heads),
        tile(round_up(64, product.mr)),
        keys(round_up(args.head_dim <= 128 ? 128 : 64, product.nr)),
        dim_rows(round_up(args.head_dim, product.mr)),
        dim_cols(round_up(args.head_dim, product.nr)),
        depth(product.packed_depth(args.head_dim)),
        tile_depth(product.packed_depth(tile)) {}
  int64_t group, tile, keys;
  int64_t dim_rows, dim_cols;  // head dimension padded to whole register tiles
  int64_t depth, tile_depth;   // floats of a line of head_dim and of a line of `tile` in a panel
};

// One thread's scratch. Names ending in _a and _b are panels packed as left and right operand; the
// comment gives the matrix they hold.
struct Workspace {
  float *k_by_dim_b, *v_by_dim_b;  // K^T, V^T: (D, keys)
  float* k_b;                      // K: (keys, D)
  float *q_a, *d_out_a;            // Q, dO: (tile, D)
  float *q_t_a, *d_out_t_a;        // Q^T, dO^T: (D, tile)
  float *scores, *d_scores;        // by panel of keys: (tile, nr)
  float *scores_b, *d_scores_b;    // (tile, keys); the same memory where scores are panels already
  float* d_scores_a;               // (tile, keys)
  float *dk_t, *dv_t;              // sums, (D, keys) row-major
  float* d_bias;                   // (group, distances)
  float* staging;                  // (keys, nr)
  uint16_t* rounded;               // a panel of scores

  Workspace(Carver& carver, const AttentionArgs& args, const Kernels& kernels, const Shape& shape,
            int64_t distances) {
    const Tile& product = product_tile(args, kernels);
    auto take = [&](int64_t lines, int64_t depth) {
      return carver.take<float>(lines * depth + kPackSlack);
    };
    k_by_dim_b = take(shape.keys, shape.depth), v_by_dim_b = take(shape.keys, shape.depth);
    k_b = take(shape.dim_cols, product.packed_depth(shape.keys));
    q_a = take(shape.tile, shape.depth), d_out_a = take(shape.tile, shape.depth);
    q_t_a = take(shape.dim_rows, shape.tile_depth);
    d_out_t_a = take(shape.dim_rows, shape.tile_depth);
    scores = take(shape.tile, shape.keys), d_scores = take(shape.tile, shape.keys);
    const bool rounds = product.per_float > 1;
    scores_b = rounds ? take(shape.keys, shape.tile_depth) : scores;
    d_scores_b = rounds ? take(shape.keys, shape.tile_depth) : d_scores;
    d_scores_a = take(product.mr, product.packed_depth(shape.keys));
    dk_t = take(shape.dim_rows, shape.keys), dv_t = take(shape.dim_rows, shape.keys);
    d_bias = carver.take<float>(shape.group * distances);
    staging = take(shape.keys, kernels.tile.nr);
    rounded = carver.take<uint16_t>(rounds ? shape.tile * product.nr : 0);
  }
};

// What all threads share.
struct Shared {
  float* delta;      // (H, N)
  float* dq;         // (N, H, D) float32 sums: dq itself, or scratch where it has two bytes
  int32_t* tickets;  // per segment and tile of queries: blocks of keys already added to dq
  int64_t num_tickets;
  RelativeBias bias;
  float* d_bias;  // per task: (group, buckets)

  Shared(Carver& carver, const AttentionArgs& args, const Tile& product, const Shape& shape)
      : delta(carver.take<float>(args.num_heads * args.num_tokens)),
        dq(args.type == Scalar::F32
               ? nullptr
               : carver.take<float>(args.num_tokens * args.num_heads * args.head_dim)),
        // At most one partial tile a document beside the whole ones.
        num_tickets((args.num_tokens / shape.tile + args.num_documents) * args.num_kv_heads),
        bias(carver, args.bias, args.num_heads, shape.tile + product.nr) {
    tickets = carver.take<int32_t>(num_tickets);
    const int64_t most_tasks =
        (num_keys_of(args) / shape.keys + args.num_documents) * args.num_kv_heads;
    d_bias = carver.take<float>(most_tasks * shape.group * args.bias.num_buckets);
  }
};

struct Task {
  Segment segment;
  Range keys;
  int64_t first_ticket;  // of the segment's tile 0
  int64_t number;
};

class KeyBlock {
 public:
  KeyBlock(const AttentionBackwardArgs& args, const Kernels& kernels, const Shape& shape,
           const Shared& shared, const Workspace& work, const Task& task)
      : args_(args),
        forward_(args.forward),
        kernels_(kernels),
        tile_(product_tile(args.forward, kernels)),
        shape_(shape),
        shared_(shared),
        work_(work),
        task_(task),
        count_(task.keys.end - task.keys.begin) {}

  void run() const {
    pack_keys();
    std::fill_n(work_.dk_t, shape_.dim_rows * shape_.keys, 0.f);
    std::fill_n(work_.dv_t, shape_.dim_rows * shape_.keys, 0.f);
    std::fill_n(work_.d_bias, shape_.group * shared_.bias.width(), 0.f);
    const int64_t num_queries = task_.segment.num_queries;
    const Range seeing = seeing_queries(forward_, task_.segment, task_.keys.begin, task_.keys.end);
    for (int64_t tile = seeing.begin / shape_.tile; tile * shape_.tile < seeing.end; ++tile) {
      const Range queries{tile * shape_.tile, std::min(num_queries, (tile + 1) * shape_.tile)};
      for (int64_t head = 0; head < shape_.group; ++head) {
        pack_queries(queries, query_head(head));
        compute_scores(queries, head);
        add_key_gradients(queries);
        if (head == 0) await_turn(tile, queries);
        add_query_gradients(queries, query_head(head));
      }
      const std::atomic_ref ticket(shared_.tickets[task_.first_ticket + tile]);
      ticket.fetch_add(1, std::memory_order_release);
      ticket.notify_all();
    }
    store_key_gradients(work_.dk_t, args_.dk);
    store_key_gradients(work_.dv_t, args_.dv);
    if (args_.d_bias != nullptr) sum_bias_gradients();
  }

 private:
  int64_t query_head(int64_t head) const { return task_.segment.kv_head * shape_.group + head; }

  void pack_keys() const {
    const int64_t token = task_.segment.first_key + task_.keys.begin, dim = forward_.head_dim;
    const HeadRows k(forward_.k, forward_.type, forward_.k_stride, token, task_.segment.kv_head,
                     dim);
    const HeadRows v(forward_.v, forward_.type, forward_.v_stride, token, task_.segment.kv_head,
                     dim);
    tile_.pack_b(k.tokens_as_lines(count_, count_, dim, work_.k_by_dim_b));
    tile_.pack_b(v.tokens_as_lines(count_, count_, dim, work_.v_by_dim_b));
    tile_.pack_b(k.dims_as_lines(count_, dim, work_.k_b));
  }

  void pack_queries(Range queries, int64_t head) const {
    const int64_t token = task_.segment.first_query + queries.begin, dim = forward_.head_dim;
    const int64_t rows = queries.end - queries.begin;
    const HeadRows q(forward_.q, forward_.type, forward_.q_stride, token, head, dim);
    const HeadRows d_out(args_.d_out, forward_.type, forward_.num_heads * dim, token, head, dim);
    tile_.pack_a(q.tokens_as_lines(rows, rows, dim, work_.q_a));
    tile_.pack_a(q.dims_as_lines(rows, dim, work_.q_t_a));
    tile_.pack_a(d_out.tokens_as_lines(rows, rows, dim, work_.d_out_a));
    tile_.pack_a(d_out.dims_as_lines(rows, dim, work_.d_out_t_a));
  }

  // Rows of the tile that see the panel of keys at `key`, cut at whole register tiles.
  Range rows_seeing(Range queries, int64_t key) const {
    const int64_t first = task_.keys.begin + key;
    const Range seen =
        seeing_queries(forward_, task_.segment, first, std::min(task_.keys.end, first + tile_.nr));
    const int64_t rows = queries.end - queries.begin;
    const int64_t begin = std::clamp<int64_t>(seen.begin - queries.begin, 0, rows);
    const int64_t end = std::clamp<int64_t>(seen.end - queries.begin, begin, rows);
    if (begin == end) return {};
    return {begin / tile_.mr * tile_.mr, std::min(rows, round_up(end, tile_.mr))};
  }

  // Keys of the block that the panel of rows at `row` sees, cut at whole register tiles.
  Range keys_seen(Range queries, int64_t row) const {
    const int64_t first = queries.begin + row;
    const Range seen =
        visible_keys(forward_, task_.segment, first, std::min(queries.end, first + tile_.mr));
    const int64_t begin = std::clamp<int64_t>(seen.begin - task_.keys.begin, 0, count_);
    const int64_t end = std::clamp<int64_t>(seen.end - task_.keys.begin, begin, count_);
    if (begin == end) return {};
    return {begin / tile_.nr * tile_.nr, std::min(count_, round_up(end, tile_.nr))};
  }

  // Probabilities and score gradients of one head's tile, panel by panel of keys.
  void compute_scores(Range queries, int64_t head) const {
    for (int64_t key = 0; key < count_; key += tile_.nr) {
      const Range rows = rows_seeing(queries, key);
      if (rows.begin == rows.end) continue;
      float* scores = work_.scores + key * shape_.tile;
      float* gradients = work_.d_scores + key * shape_.tile;
      for (int64_t row = rows.begin; row < rows.end; row += tile_.mr) {
        tile_.multiply(shape_.depth, work_.q_a + row * shape_.depth,
                       work_.k_by_dim_b + key * shape_.depth, scores + row * tile_.nr, tile_.nr,
                       1.f, false);
        tile_.multiply(shape_.depth, work_.d_out_a + row * shape_.depth,
                       work_.v_by_dim_b + key * shape_.depth, gradients + row * tile_.nr, tile_.nr,
                       1.f, false);
      }
      finish_scores(queries.begin + rows.begin, rows, key, head);
      if (tile_.per_float == 1) continue;
      pack_panel(scores, rows, key, work_.scores_b);
      pack_panel(gradients, rows, key, work_.d_scores_b);
    }
  }

  // For a tile of bfloat16: packs rows of a panel of scores into the panel that multiplies from
  // the right.
  void pack_panel(const float* panel, Range rows, int64_t key, float* packed) const {
    pack_scores(kernels_, tile_, Operand::B, panel + rows.begin * tile_.nr, tile_.nr,
                rows.end - rows.begin, tile_.nr, work_.rounded,
                packed + key * shape_.tile_depth + rows.begin / tile_.per_float * tile_.nr);
  }

  void finish_scores(int64_t query, Range rows, int64_t key, int64_t head) const {
    const int64_t token = task_.segment.first_query + query;
    const int64_t place = query_head(head) * forward_.num_tokens + token;
    constexpr int64_t unlimited = int64_t{1} << 30;
    const int64_t distance = query + task_.segment.shift - (task_.keys.begin + key);
    const int64_t window = forward_.sliding_window > 0 ? forward_.sliding_window : unlimited;
    const int64_t offset = key * shape_.tile + rows.begin * tile_.nr;
    ScoreGradientArgs args{.scores = work_.scores + offset,
                           .d_probabilities = work_.d_scores + offset,
                           .rows = rows.end - rows.begin,
                           .columns = std::min<int64_t>(tile_.nr, count_ - key),
                           .begin = distance - window + 1,
                           .end = distance + (forward_.causal ? 1 : window),
                           .lse = forward_.lse + place,
                           .delta = shared_.delta + place,
                           .scale = forward_.scale,
                           .cap = forward_.score_cap};
    if (const RelativeBias& bias = shared_.bias; bias.present()) {
      const int64_t run = bias.place(-distance, rows.end - rows.begin - 1, tile_.nr);
      args.bias = bias.row(query_head(head)) + run;
      if (args_.d_bias != nullptr) args.d_bias = work_.d_bias + head * bias.width() + run;
    }
    if (forward_.dropout.probability > 0) {
      args.drop = drop_of(forward_, query_head(head), token, task_.keys.begin + key);
      args.kept_scale = forward_.dropout.scale();
    }
    kernels_.score_gradients(args);
  }

  void add_key_gradients(Range queries) const {
    const int64_t lines = tile_.packed_depth(queries.end - queries.begin);  // of Q^T and dO^T
    for (int64_t key = 0; key < count_; key += tile_.nr) {
      const Range rows = rows_seeing(queries, key);
      if (rows.begin == rows.end) continue;
      const int64_t depth = tile_.packed_depth(rows.end - rows.begin);
      const int64_t first = rows.begin / tile_.per_float;
      const int64_t right = key * shape_.tile_depth + first * tile_.nr;
      for (int64_t d = 0; d < shape_.dim_rows; d += tile_.mr) {
        const int64_t left = d * lines + first * tile_.mr, sums = d * shape_.keys + key;
        tile_.multiply(depth, work_.d_out_t_a + left, work_.scores_b + right, work_.dv_t + sums,
                       shape_.keys, 1.f, true);
        tile_.multiply(depth, work_.q_t_a + left, work_.d_scores_b + right, work_.dk_t + sums,
                       shape_.keys, 1.f, true);
      }
    }
  }

  // Until the blocks of keys before this one have been added; the first one starts from zero.
  void await_turn(int64_t tile, Range queries) const {
    const int64_t first = visible_keys(forward_, task_.segment, queries.begin, queries.end).begin;
    const int64_t turn = task_.keys.begin / shape_.keys - first / shape_.keys;
    const std::atomic_ref ticket(shared_.tickets[task_.first_ticket + tile]);
    for (int32_t now; (now = ticket.load(std::memory_order_acquire)) != turn;) ticket.wait(now);
    if (turn > 0) return;
    for (int64_t token = queries.begin; token < queries.end; ++token) {
      std::fill_n(dq_at(token, query_head(0)), shape_.group * forward_.head_dim, 0.f);
    }
  }

  float* dq_at(int64_t query, int64_t head) const {
    const int64_t token = task_.segment.first_query + query;
    return shared_.dq + (token * forward_.num_heads + head) * forward_.head_dim;
  }

  void add_query_gradients(Range queries, int64_t head) const {
    for (int64_t row = 0; row < queries.end - queries.begin; row += tile_.mr) {
      const Range keys = keys_seen(queries, row);
      if (keys.begin == keys.end) continue;
      const int64_t rows = std::min<int64_t>(tile_.mr, queries.end - queries.begin - row);
      for (int64_t key = keys.begin; key < keys.end; key += tile_.nr) {
        pack_scores(kernels_, tile_, Operand::A,
                    work_.d_scores + key * shape_.tile + row * tile_.nr, tile_.nr, rows,
                    std::min<int64_t>(tile_.nr, keys.end - key), work_.rounded,
                    work_.d_scores_a + (key - keys.begin) / tile_.per_float * tile_.mr);
      }
      add_query_rows(dq_at(queries.begin + row, head), rows, keys);
    }
  }

  void add_query_rows(float* dq, int64_t rows, Range keys) const {
    const int64_t stride = forward_.num_heads * forward_.head_dim;
    for (int64_t d = 0; d < forward_.head_dim; d += tile_.nr) {
      const int64_t cols = std::min<int64_t>(tile_.nr, forward_.head_dim - d);
      const float* k =
          work_.k_b + d * tile_.packed_depth(count_) + keys.begin / tile_.per_float * tile_.nr;
      const int64_t depth = tile_.packed_depth(keys.end - keys.begin);
      if (rows == tile_.mr && cols == tile_.nr) {
        tile_.multiply(depth, work_.d_scores_a, k, dq + d, stride, 1.f, true);
        continue;
      }
      alignas(64) float sums[kMaxTileFloats];
      tile_.multiply(depth, work_.d_scores_a, k, sums, tile_.nr, 1.f, false);
      kernels_.store({.source = sums,
                      .source_stride = tile_.nr,
                      .rows = rows,
                      .cols = cols,
                      .c = dq + d,
                      .c_stride = stride,
                      .accumulate = true});
    }
  }

  // (D, keys) sums to (keys, D) rows of the result.
  void store_key_gradients(const float* sums, void* result) const {
    const int64_t dim = forward_.head_dim, stride = forward_.num_kv_heads * dim;
    const int64_t token = task_.segment.first_key + task_.keys.begin;
    const int64_t place = token * stride + task_.segment.kv_head * dim;
    for (int64_t d = 0; d < dim; d += kernels_.tile.nr) {
      const int64_t cols = std::min<int64_t>(kernels_.tile.nr, dim - d);
      kernels_.tile.pack_b(
          {sums + d * shape_.keys, Scalar::F32, shape_.keys, 1, cols, cols, count_, work_.staging});
      kernels_.store({.source = work_.staging,
                      .source_stride = kernels_.tile.nr,
                      .rows = count_,
                      .cols = cols,
                      .c = static_cast<char*>(result) + (place + d) * scalar_bytes(forward_.type),
                      .type = forward_.type,
                      .c_stride = stride});
    }
  }

  void sum_bias_gradients() const {
    const int64_t buckets = forward_.bias.num_buckets;
    for (int64_t head = 0; head < shape_.group; ++head) {
      shared_.bias.sum_buckets(work_.d_bias + head * shared_.bias.width(),
                               shared_.d_bias + (task_.number * shape_.group + head) * buckets);
    }
  }

  const AttentionBackwardArgs& args_;
  const AttentionArgs& forward_;
  const Kernels& kernels_;
  const Tile& tile_;
  const Shape& shape_;
  const Shared& shared_;
  const Workspace& work_;
  const Task& task_;
  const int64_t count_;
};

std::vector<Task> tasks_of(const AttentionArgs& args, const Shape& shape) {
  std::vector<Segment> segments = segments_of(args);
  std::stable_sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
    return a.num_queries * a.num_keys > b.num_queries * b.num_keys;
  });
  std::vector<Task> tasks;
  int64_t ticket = 0;
  for (const Segment& segment : segments) {
    for (int64_t begin = 0; begin < segment.num_keys; begin += shape.keys) {
      const Range keys{begin, std::min(segment.num_keys, begin + shape.keys)};
      tasks.push_back({segment, keys, ticket, int64_t(tasks.size())});
    }
    ticket += ceil_div(segment.num_queries, shape.tile);
  }
  return tasks;
}

void compute_delta(const AttentionBackwardArgs& args, const Kernels& kernels, float* delta) {
  const AttentionArgs& f = args.forward;
  const int64_t bytes = f.head_dim * scalar_bytes(f.type);
#pragma omp for schedule(guided)
  for (int64_t token = 0; token < f.num_tokens; ++token) {
    for (int64_t head = 0; head < f.num_heads; ++head) {
      const int64_t place = (token * f.num_heads + head) * bytes;
      delta[head * f.num_tokens + token] =
          kernels.row_dot(static_cast<const char*>(f.out) + place,
                          static_cast<const char*>(args.d_out) + place, f.type, f.head_dim);
    }
  }
}

// (buckets, H) of what tasks have summed, in their order.
void join_bias_gradients(const AttentionBackwardArgs& args, const Shape& shape,
                         const std::vector<Task>& tasks, const float* sums) {
  const AttentionArgs& f = args.forward;
  const int64_t buckets = f.bias.num_buckets;
  const float back = 1 / f.scale;  // tasks summed gradients of scores before they were scaled
#pragma omp for schedule(static)
  for (int64_t head = 0; head < f.num_heads; ++head) {
    for (int64_t b = 0; b < buckets; ++b) args.d_bias[b * f.num_heads + head] = 0;
    for (const Task& task : tasks) {
      if (task.segment.kv_head != head / shape.group) continue;
      const float* own = sums + (task.number * shape.group + head % shape.group) * buckets;
      for (int64_t b = 0; b < buckets; ++b) args.d_bias[b * f.num_heads + head] += own[b] * back;
    }
  }
}

// A sink's probability is exp(sink - lse), and its value zero.
void sum_sink_gradients(const AttentionBackwardArgs& args, const float* delta) {
  const AttentionArgs& f = args.forward;
#pragma omp for schedule(static)
  for (int64_t head = 0; head < f.num_heads; ++head) {
    double sum = 0;
    for (int64_t i = head * f.num_tokens; i < (head + 1) * f.num_tokens; ++i)
      sum -= std::exp(f.sinks[head] - f.lse[i]) * delta[i];
    args.d_sinks[head] = static_cast<float>(sum);
  }
}

void round_query_gradients(const AttentionBackwardArgs& args, const Kernels& kernels,
                           const float* sums) {
  const AttentionArgs& f = args.forward;
  const int64_t width = f.num_heads * f.head_dim;
#pragma omp for schedule(guided)
  for (int64_t token = 0; token < f.num_tokens; ++token) {
    kernels.store({.source = sums + token * width,
                   .rows = 1,
                   .cols = width,
                   .c = static_cast<char*>(args.dq) + token * width * scalar_bytes(f.type),
                   .type = f.type});
  }
}

}  // namespace

int64_t attention_backward_workspace_bytes(const AttentionArgs& args) {
  const Kernels& kernels = active_kernels();
  const Tile& tile = product_tile(args, kernels);
  const Shape shape(args, tile);
  Carver carver(nullptr), own(nullptr);
  const Shared shared(carver, args, tile, shape);
  Workspace(own, args, kernels, shape, shared.bias.width());
  return carver.used() + own.used() * resolve_threads(args.num_threads);
}

void attention_backward(const AttentionBackwardArgs& args, void* workspace) {
  const AttentionArgs& forward = args.forward;
  check_attention(forward);
  const Kernels& kernels = active_kernels();
  const Tile& tile = product_tile(forward, kernels);
  const Shape shape(forward, tile);
  Carver carver(workspace);
  Shared shared(carver, forward, tile, shape);
  if (forward.type == Scalar::F32) shared.dq = static_cast<float*>(args.dq);
  std::fill_n(shared.tickets, shared.num_tickets, 0);
  const std::vector<Task> tasks = tasks_of(forward, shape);
  std::vector<Workspace> work;
  const int threads = resolve_threads(forward.num_threads);
  for (int t = 0; t < threads; ++t) {
    work.emplace_back(carver, forward, kernels, shape, shared.bias.width());
  }
  std::atomic<size_t> next = 0;  // handed out in order, which the tickets rely on
#pragma omp parallel num_threads(threads)
  {
    const TileScope scope(tile);
    shared.bias.fill(kernels);
    compute_delta(args, kernels, shared.delta);
    if (args.d_sinks != nullptr) sum_sink_gradients(args, shared.delta);
    for (size_t t = next.fetch_add(1); t < tasks.size(); t = next.fetch_add(1)) {
      KeyBlock(args, kernels, shape, shared, work[size_t(omp_get_thread_num())], tasks[t]).run();
    }
#pragma omp barrier
    if (forward.type != Scalar::F32) round_query_gradients(args, kernels, shared.dq);
    if (args.d_bias != nullptr) join_bias_gradients(args, shape, tasks, shared.d_bias);
  }
}

}  // namespace snug::kernels::cpu
