// A task is a document and a key head; its value heads come one after the other, each from the
// document's first chunk to its last, for the states, and back, for the gradients. So the scratch
// holds the states of one head alone, and the gradients of q and k are summed over the heads in
// their order.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/kernels/cpu/delta_rule/chunks.h"

namespace snug::kernels::cpu {
namespace delta_rule {
namespace {

// One thread's scratch. Names ending in _left and _right are packed operands; the comment gives the
// matrix they hold.
struct BackwardScratch {
  BackwardScratch(Carver& carver, const DeltaRuleSizes& sizes, const Tile& tile)
      : chunk(carver, sizes, tile) {
    const Lengths lengths(sizes, tile);
    const int64_t dv = sizes.value_dim, count = lengths.most_chunks;
    state_floats = lengths.key_rows * lengths.value_cols;
    e_floats = lengths.tokens * lengths.value_cols;
    key_floats = lengths.tokens * lengths.key_cols;
    states = carver.take<float>(count * state_floats), e = carver.take<float>(count * e_floats);
    dq = carver.take<float>(count * key_floats), dk = carver.take<float>(count * key_floats);
    d_state = carver.take<float>(state_floats);
    for (float** panels : {&d_out, &dr, &scaled}) *panels = carver.take<float>(e_floats);
    for (float** left : {&d_out_left, &dr_left, &u_left}) {
      *left = take_panels(carver, lengths.tokens, dv);
    }
    q_t_left = take_panels(carver, lengths.key_rows, sizes.chunk);
    q_right = take_panels(carver, lengths.key_cols, sizes.chunk);
    k_right = take_panels(carver, lengths.key_cols, sizes.chunk);
    u_t_right = take_panels(carver, lengths.scores, dv);
    state_t_right = take_panels(carver, lengths.key_cols, dv);
    d_state_t_right = take_panels(carver, lengths.key_cols, dv);
    dp = carver.take<float>(lengths.tokens * lengths.scores);
    dx = carver.take<float>(lengths.tokens * lengths.scores);
    key_rows = carver.take<float>(key_floats);
    columns = carver.take<float>(lengths.scores);
    db = carver.take<float>(sizes.chunk), dots = carver.take<float>(sizes.chunk);
  }
  ChunkScratch chunk;
  int64_t state_floats, e_floats, key_floats;
  float* states;                           // a document's chunks: S before each, (dk, dv) panels
  float* e;                                // and E, (tokens, dv) panels
  float *dq, *dk;                          // and the sums for Q and K, (tokens, dk)
  float* d_state;                          // (dk, dv) panels
  float *d_out, *dr, *scaled;              // (tokens, dv) panels; dU and Z become dR
  float *d_out_left, *dr_left, *u_left;    // dO, dR, U: (tokens, dv)
  float* q_t_left;                         // Q': (dk, tokens)
  float *q_right, *k_right;                // Q, K: (tokens, dk)
  float* u_t_right;                        // U': (dv, tokens)
  float *state_t_right, *d_state_t_right;  // S', dS': (dv, dk)
  float *dp, *dx;                          // scores
  float* key_rows;                         // (tokens, dk): a share of dQ or dK
  float *columns, *db, *dots;              // (C)
};

class BackwardTask {
 public:
  BackwardTask(const DeltaRuleBackward& args, const Kernels& kernels,
               const BackwardScratch& scratch, const HeadTask& task)
      : args_(args),
        sizes_(args.forward.sizes),
        kernels_(kernels),
        products_(kernels.tile),
        work_(scratch),
        chunk_(scratch.chunk),
        states_(args.forward, kernels, scratch.chunk, Reads::State),
        scores_(args.forward, kernels, scratch.chunk, Reads::StateAndQueries),
        task_(task),
        num_chunks_(ceil_div(task.num_tokens, sizes_.chunk)) {}

  void run() const {
    const int64_t group = sizes_.num_value_heads / sizes_.num_key_heads;
    std::fill_n(work_.dq, num_chunks_ * work_.key_floats, 0.f);
    std::fill_n(work_.dk, num_chunks_ * work_.key_floats, 0.f);
    for (int64_t i = 0; i < group; ++i) {
      compute_states(task_.head * group + i);
      std::fill_n(work_.d_state, work_.state_floats, 0.f);
      for (int64_t c = num_chunks_ - 1; c >= 0; --c) compute_gradients(c, task_.head * group + i);
    }
    for (int64_t c = 0; c < num_chunks_; ++c) store_key_gradients(c);
  }

 private:
  Chunk chunk_at(int64_t c) const {
    const int64_t begin = c * sizes_.chunk;
    return {task_.first_token + begin, std::min(sizes_.chunk, task_.num_tokens - begin)};
  }
  // The state before the first chunk and the gradient of that behind the last are zeros, which
  // need not be multiplied.
  bool is_last(int64_t c) const { return c + 1 == num_chunks_; }
  float* state(int64_t c) const { return work_.states + c * work_.state_floats; }
  float* e(int64_t c) const { return work_.e + c * work_.e_floats; }
  float* dq(int64_t c) const { return work_.dq + c * work_.key_floats; }
  float* dk(int64_t c) const { return work_.dk + c * work_.key_floats; }

  void compute_states(int64_t head) const {
    for (int64_t c = 0; c < num_chunks_; ++c) {
      const Chunk chunk = chunk_at(c);
      states_.load_keys(chunk, task_.head);
      states_.load_scores(chunk, head);
      states_.solve(chunk, head, c == 0 ? nullptr : state(c), e(c));
      if (is_last(c)) return;
      if (c == 0)
        std::fill_n(state(1), work_.state_floats, 0.f);
      else
        std::copy_n(state(c), work_.state_floats, state(c + 1));
      states_.advance(chunk, e(c), state(c + 1));
    }
  }

  void compute_gradients(int64_t c, int64_t head) const {
    const Chunk chunk = chunk_at(c);
    std::fill_n(work_.db, chunk.count, 0.f);
    load(chunk, head);
    compute_residual_gradient(chunk, c, head);
    pack(chunk, c);
    if (c > 0) add_through_state_before(chunk, c);
    if (!is_last(c)) add_through_state_behind(chunk, c);
    add_through_scores(chunk, c);
    store_decay_gradient(chunk, head);
    if (c > 0) step_back(chunk);
  }

  void load(const Chunk& chunk, int64_t head) const {
    const int64_t n = chunk.count, dim = sizes_.key_dim, stride = chunk_.key_stride;
    scores_.load_keys(chunk, task_.head);
    scores_.load_scores(chunk, head);
    products_.left_transposed(chunk_.q_rows, stride, dim, n, work_.q_t_left);
    products_.right(chunk_.q_rows, stride, dim, n, work_.q_right);
    products_.right(chunk_.k_rows, stride, dim, n, work_.k_right);
    loops_.load_rows(rows_of(args_.d_out, sizes_.type, sizes_.num_value_heads * sizes_.value_dim,
                             chunk, head, sizes_.value_dim),
                     chunk_.token_panels(work_.d_out));
  }

  // dR = beta Z and with it dV and dbeta.
  void compute_residual_gradient(const Chunk& chunk, int64_t c, int64_t head) const {
    const ColumnPanels dr = chunk_.token_panels(work_.dr);
    compute_update_gradient(chunk, c, dr);
    const ColumnPanels scaled = chunk_.token_panels(work_.scaled);
    loops_.scale_rows(chunk_.beta, dr, chunk.count, scaled);
    add_transposed_scores(chunk, chunk_.y, right_of(scaled), into(dr), sizes_.value_dim, -1.f);
    loops_.dot_rows(dr, chunk_.token_panels(e(c)), chunk.count, work_.dots);
    for (int64_t i = 0; i < chunk.count; ++i) {
      args_.dbeta[(chunk.first + i) * sizes_.num_value_heads + head] = work_.dots[i];
    }
    loops_.scale_rows(chunk_.beta, dr, chunk.count, dr);
    const int64_t stride = sizes_.num_value_heads * sizes_.value_dim;
    const int64_t begin = chunk.first * stride + head * sizes_.value_dim;
    store_panels(kernels_, dr, chunk.count,
                 static_cast<char*>(args_.dv) + begin * scalar_bytes(sizes_.type), sizes_.type,
                 stride);
  }

  // dU = P' dO + exp(B - b) K dS
  void compute_update_gradient(const Chunk& chunk, int64_t c, const ColumnPanels& du) const {
    if (is_last(c)) {
      std::fill_n(du.data, work_.e_floats, 0.f);
    } else {
      products_.multiply({.rows = chunk.count,
                          .cols = sizes_.value_dim,
                          .depth = sizes_.key_dim,
                          .left = {chunk_.k_left, sizes_.key_dim},
                          .right = right_of(chunk_.state_panels(work_.d_state)),
                          .result = into(du)});
      loops_.scale_rows(chunk_.to_end, du, chunk.count, du);
    }
    add_transposed_scores(chunk, chunk_.p, right_of(chunk_.token_panels(work_.d_out)), into(du),
                          sizes_.value_dim, 1.f);
  }

  // result += alpha scores' right
  void add_transposed_scores(const Chunk& chunk, const float* scores, const Operand& right,
                             const Result& result, int64_t cols, float alpha) const {
    const int64_t n = chunk.count;
    products_.multiply(
        {.rows = n,
         .cols = cols,
         .depth = n,
         .left = products_.left_transposed(scores, chunk_.score_stride, n, n, chunk_.score_left),
         .right = right,
         .result = result,
         .alpha = alpha,
         .add = true,
         .triangles = Triangles::LeftIsUpper});
  }

  // result += scores right
  void add_scores(const Chunk& chunk, const float* scores, const Operand& right,
                  const Result& result) const {
    const int64_t n = chunk.count;
    products_.multiply(
        {.rows = n,
         .cols = sizes_.key_dim,
         .depth = n,
         .left = products_.left(scores, chunk_.score_stride, n, n, chunk_.score_left),
         .right = right,
         .result = result,
         .add = true,
         .triangles = Triangles::LeftIsLower});
  }

  void pack(const Chunk& chunk, int64_t c) const {
    const int64_t n = chunk.count;
    const ColumnPanels u = chunk_.token_panels(chunk_.u);
    loops_.scale_rows(chunk_.beta, chunk_.token_panels(e(c)), n, u);
    products_.left_of_panels(u, n, work_.u_left);
    products_.right_transposed(u, n, work_.u_t_right);
    products_.left_of_panels(chunk_.token_panels(work_.d_out), n, work_.d_out_left);
    products_.left_of_panels(chunk_.token_panels(work_.dr), n, work_.dr_left);
    const int64_t dim = sizes_.key_dim;
    if (c > 0) products_.right_transposed(chunk_.state_panels(state(c)), dim, work_.state_t_right);
    if (!is_last(c))
      products_.right_transposed(chunk_.state_panels(work_.d_state), dim, work_.d_state_t_right);
  }

  // sums += factors * (alpha left right'), by rows; the dots of its rows with those of q or k are
  // what the factors' exponents get.
  void add_share(const Chunk& chunk, const float* left, const float* right, float alpha,
                 const float* factors, const float* rows, float* sums) const {
    const int64_t dv = sizes_.value_dim;
    products_.multiply({.rows = chunk.count,
                        .cols = sizes_.key_dim,
                        .depth = dv,
                        .left = {left, dv},
                        .right = {right, dv},
                        .result = {work_.key_rows, chunk_.key_stride, chunk_.width},
                        .alpha = alpha});
    loops_.add_rows({.x = work_.key_rows,
                     .y = rows,
                     .sums = sums,
                     .stride = chunk_.key_stride,
                     .rows = chunk.count,
                     .dim = sizes_.key_dim,
                     .factors = factors,
                     .dots = work_.dots});
  }

  void add_dots(const Chunk& chunk, float sign) const {
    for (int64_t i = 0; i < chunk.count; ++i) work_.db[i] += sign * work_.dots[i];
  }

  // What reaches q, k and the decays through the state before the chunk.
  void add_through_state_before(const Chunk& chunk, int64_t c) const {
    add_share(chunk, work_.d_out_left, work_.state_t_right, 1.f, chunk_.from_start, chunk_.q_rows,
              dq(c));
    add_dots(chunk, 1.f);
    add_share(chunk, work_.dr_left, work_.state_t_right, -1.f, chunk_.from_start, chunk_.k_rows,
              dk(c));
    add_dots(chunk, 1.f);
  }

  // And through the one behind it.
  void add_through_state_behind(const Chunk& chunk, int64_t c) const {
    add_share(chunk, work_.u_left, work_.d_state_t_right, 1.f, chunk_.to_end, chunk_.k_rows, dk(c));
    add_dots(chunk, -1.f);
    double of_end = c > 0 ? chunk_.from_start[chunk.count - 1] * state_dot(c) : 0;
    for (int64_t i = 0; i < chunk.count; ++i) of_end += work_.dots[i];
    work_.db[chunk.count - 1] += static_cast<float>(of_end);
  }

  // S · dS, a panel at a time.
  double state_dot(int64_t c) const {
    const int64_t floats = chunk_.key_rows * chunk_.width;
    double sum = 0;
    for (int64_t i = 0; i < work_.state_floats; i += floats) {
      sum += kernels_.row_dot(state(c) + i, work_.d_state + i, Scalar::F32, floats);
    }
    return sum;
  }

  // What reaches q, k and the decays through P and X.
  void add_through_scores(const Chunk& chunk, int64_t c) const {
    const int64_t n = chunk.count, dv = sizes_.value_dim;
    const Operand u{work_.u_t_right, dv};
    products_.multiply({n,
                        n,
                        dv,
                        {work_.d_out_left, dv},
                        u,
                        chunk_.scores_into(work_.dp),
                        1.f,
                        false,
                        Triangles::ResultIsLower});
    products_.multiply({n,
                        n,
                        dv,
                        {work_.dr_left, dv},
                        u,
                        chunk_.scores_into(work_.dx),
                        -1.f,
                        false,
                        Triangles::ResultIsLower});
    loops_.score_gradients({.decay = chunk_.square(chunk_.decay),
                            .p = chunk_.square(chunk_.p),
                            .x = chunk_.square(chunk_.x),
                            .dp = chunk_.square(work_.dp),
                            .dx = chunk_.square(work_.dx),
                            .rows = n,
                            .columns = work_.columns,
                            .db = work_.db});
    const Operand q{work_.q_right, n}, k{work_.k_right, n};
    const Result dq_rows{dq(c), chunk_.key_stride, chunk_.width};
    const Result dk_rows{dk(c), chunk_.key_stride, chunk_.width};
    add_scores(chunk, work_.dp, k, dq_rows);
    add_scores(chunk, work_.dx, k, dk_rows);
    add_transposed_scores(chunk, work_.dp, q, dk_rows, sizes_.key_dim, 1.f);
    add_transposed_scores(chunk, work_.dx, k, dk_rows, sizes_.key_dim, 1.f);
  }

  void store_decay_gradient(const Chunk& chunk, int64_t head) const {
    double sum = 0;
    for (int64_t i = chunk.count - 1; i >= 0; --i) {
      sum += work_.db[i];
      args_.dg[(chunk.first + i) * sizes_.num_value_heads + head] = static_cast<float>(sum);
    }
  }

  // dS = exp(B) dS + Q' (exp(b) dO) - K' (exp(b) dR)
  void step_back(const Chunk& chunk) const {
    kernels_.row_scale(work_.d_state, work_.state_floats, chunk_.from_start[chunk.count - 1]);
    add_to_state(chunk, work_.q_t_left, work_.d_out, 1.f);
    add_to_state(chunk, chunk_.k_t_left, work_.dr, -1.f);
  }

  void add_to_state(const Chunk& chunk, const float* left, float* values, float alpha) const {
    const ColumnPanels panels = chunk_.token_panels(values);
    loops_.scale_rows(chunk_.from_start, panels, chunk.count, panels);
    products_.multiply({.rows = sizes_.key_dim,
                        .cols = sizes_.value_dim,
                        .depth = chunk.count,
                        .left = {left, chunk.count},
                        .right = right_of(panels),
                        .result = into(chunk_.state_panels(work_.d_state)),
                        .alpha = alpha,
                        .add = true});
  }

  void store_key_gradients(int64_t c) const {
    const DeltaRuleForward& forward = args_.forward;
    const float scale = 1.f / std::sqrt(static_cast<float>(sizes_.key_dim));
    store_unit_gradient(c, forward.q, forward.q_stride, scale, dq(c), args_.dq);
    store_unit_gradient(c, forward.k, forward.k_stride, 1.f, dk(c), args_.dk);
  }

  void store_unit_gradient(int64_t c, const void* x, int64_t stride, float factor,
                           const float* sums, void* dx) const {
    const Chunk chunk = chunk_at(c);
    const int64_t dim = sizes_.key_dim, dx_stride = sizes_.num_key_heads * dim;
    const int64_t begin = chunk.first * dx_stride + task_.head * dim;
    loops_.unit_rows_backward(
        rows_of(x, sizes_.type, stride, chunk, task_.head, dim), factor, sums, chunk_.key_stride,
        static_cast<char*>(dx) + begin * scalar_bytes(sizes_.type), dx_stride);
  }

  const DeltaRuleBackward& args_;
  const DeltaRuleSizes& sizes_;
  const Kernels& kernels_;
  const Products products_;
  const BackwardScratch& work_;
  const ChunkScratch& chunk_;
  const ChunkForward states_, scores_;
  const Loops loops_;
  const HeadTask& task_;
  const int64_t num_chunks_;
};

}  // namespace
}  // namespace delta_rule

int64_t delta_rule_backward_workspace_bytes(const DeltaRuleForward& args) {
  Carver own(nullptr);
  delta_rule::BackwardScratch(own, args.sizes, active_kernels().tile);
  return own.used() * resolve_threads(args.num_threads);
}

void delta_rule_backward(const DeltaRuleBackward& args, void* workspace) {
  using namespace delta_rule;  // NOLINT(google-build-using-namespace): this file's own
  const DeltaRuleForward& forward = args.forward;
  check_delta_rule(forward);
  const Kernels& kernels = active_kernels();
  const int threads = resolve_threads(forward.num_threads);
  const std::vector<HeadTask> tasks = head_tasks(forward, forward.sizes.num_key_heads);
  Carver carver(workspace);
  std::vector<BackwardScratch> work;
  for (int t = 0; t < threads; ++t) work.emplace_back(carver, forward.sizes, kernels.tile);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (size_t t = 0; t < tasks.size(); ++t) {
    const BackwardScratch& own = work[size_t(omp_get_thread_num())];
    BackwardTask(args, kernels, own, tasks[t]).run();
  }
}

}  // namespace snug::kernels::cpu
