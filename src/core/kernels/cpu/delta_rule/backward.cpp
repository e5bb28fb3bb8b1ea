// A task is a document and a value head: from the first chunk to the last for the states, and back
// for the gradients, so that the scratch holds the states of one head alone. Value heads that share
// a key head follow each other in time by a chunk: each adds to what the heads before it have left
// of dq and dk, so that these sums have one order for any number of threads.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

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
    const bool solves = sizes.form == StateForm::Delta;
    const bool shares = sizes.num_value_heads > sizes.num_key_heads;
    const int64_t dv = sizes.value_dim, count = lengths.most_chunks;
    state_floats = lengths.key_rows * lengths.value_cols;
    e_floats = lengths.tokens * lengths.value_cols;
    key_floats = lengths.tokens * lengths.key_cols;
    states = carver.take<float>(count * state_floats);
    e = carver.take<float>((solves ? count : 1) * e_floats);
    for (float** sums : {&group_dq, &group_dk})
      *sums = carver.take<float>(shares ? count * key_floats : 0);
    for (float** sums : {&dq, &dk}) *sums = carver.take<float>(key_floats);
    d_state = carver.take<float>(state_floats);
    for (float** panels : {&d_out, &dr}) *panels = carver.take<float>(e_floats);
    for (float** left : {&d_out_left, &u_left}) *left = take_panels(carver, lengths.tokens, dv);
    scaled = solves ? carver.take<float>(e_floats) : nullptr;
    dr_left = solves ? take_panels(carver, lengths.tokens, dv) : nullptr;
    q_t_left = take_panels(carver, lengths.key_rows, sizes.chunk);
    q_right = take_panels(carver, lengths.key_cols, sizes.chunk);
    k_right = take_panels(carver, lengths.key_cols, sizes.chunk);
    u_t_right = take_panels(carver, lengths.scores, dv);
    state_t_right = take_panels(carver, lengths.key_cols, dv);
    d_state_t_right = take_panels(carver, lengths.key_cols, dv);
    dp = carver.take<float>(lengths.tokens * lengths.scores);
    dx = solves ? carver.take<float>(lengths.tokens * lengths.scores) : nullptr;
    key_rows = carver.take<float>(key_floats);
    columns = carver.take<float>(lengths.scores);
    db = carver.take<float>(sizes.chunk), dots = carver.take<float>(sizes.chunk);
  }
  ChunkScratch chunk;
  int64_t state_floats, e_floats, key_floats;
  float* states;                         // a document's chunks: S before each, (dk, dv) panels
  float* e;                              // and E, (tokens, dv) panels; of a sum one chunk's
  float *group_dq, *group_dk;            // and what the heads of a key head have left, (tokens, dk)
  float *dq, *dk;                        // a head's share of a chunk, (tokens, dk)
  float* d_state;                        // (dk, dv) panels
  float *d_out, *dr, *scaled;            // (tokens, dv) panels; dU and Z become dR
  float *d_out_left, *dr_left, *u_left;  // dO, dR, U: (tokens, dv)
  float* q_t_left;                       // Q': (dk, tokens)
  float *q_right, *k_right;              // Q, K: (tokens, dk)
  float* u_t_right;                      // U': (dv, tokens)
  float *state_t_right, *d_state_t_right;  // S', dS': (dv, dk)
  float *dp, *dx;                          // scores
  float* key_rows;                         // (tokens, dk): part of dQ or dK
  float *columns, *db, *dots;              // (C)
};

// Who may add to the gradients of a key head, and where they lie: in the scratch of any thread.
// There are never more key heads under way than threads, since tasks start in their order.
class Turns {
 public:
  Turns(const std::vector<BackwardScratch>& work, size_t num_tasks, int64_t group)
      : group_(static_cast<size_t>(group)), groups_(num_tasks / group_), next_chunk_(num_tasks) {
    for (const BackwardScratch& own : work) free_.push_back(&own);
    for (auto& next : next_chunk_) next = std::numeric_limits<int64_t>::max();
  }

  bool is_first(size_t task) const { return task % group_ == 0; }
  bool is_last(size_t task) const { return task % group_ == group_ - 1; }

  // The sums of the task's key head, once the head before it has added to chunk c.
  const BackwardScratch& wait(size_t task, int64_t c) {
    const BackwardScratch*& sums = groups_[task / group_];
    if (is_first(task)) {
      if (sums == nullptr) sums = take();
      return *sums;
    }
    const std::atomic<int64_t>& before = next_chunk_[task - 1];
    for (int64_t at = before; at > c; at = before) before.wait(at);
    return *sums;
  }
  void pass_on(size_t task, int64_t c) {
    next_chunk_[task] = c;
    next_chunk_[task].notify_all();
    if (c == 0 && is_last(task)) give_back(*groups_[task / group_]);
  }

 private:
  const BackwardScratch* take() {
    const std::lock_guard lock(mutex_);
    const BackwardScratch* sums = free_.back();
    free_.pop_back();
    return sums;
  }
  void give_back(const BackwardScratch& sums) {
    const std::lock_guard lock(mutex_);
    free_.push_back(&sums);
  }

  const size_t group_;
  std::vector<const BackwardScratch*> groups_;    // of each key head under way
  std::vector<std::atomic<int64_t>> next_chunk_;  // of each task, the last it has added to
  std::mutex mutex_;
  std::vector<const BackwardScratch*> free_;
};

class BackwardTask {
 public:
  BackwardTask(const DeltaRuleBackward& args, const Kernels& kernels,
               const BackwardScratch& scratch, const HeadTask& task, size_t number, Turns& turns)
      : args_(args),
        sizes_(args.forward.sizes),
        kernels_(kernels),
        products_(kernels.tile),
        work_(scratch),
        chunk_(scratch.chunk),
        states_(args.forward, kernels, scratch.chunk, Reads::State),
        scores_(args.forward, kernels, scratch.chunk, Reads::StateAndQueries),
        task_(task),
        number_(number),
        turns_(turns),
        num_chunks_(ceil_div(task.num_tokens, sizes_.chunk)) {}

  void run() const {
    compute_states();
    std::fill_n(work_.d_state, work_.state_floats, 0.f);
    for (int64_t c = num_chunks_ - 1; c >= 0; --c) {
      compute_gradients(c);
      add_to_group(c);
    }
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
  // Of a sum E is V, which is loaded again.
  float* e(int64_t c) const { return work_.e + (solves() ? c : 0) * work_.e_floats; }
  bool solves() const { return sizes_.form == StateForm::Delta; }
  int64_t head() const { return task_.first_head; }

  void compute_states() const {
    const int64_t count = solves() ? num_chunks_ : num_chunks_ - 1;
    for (int64_t c = 0; c < count; ++c) {
      const Chunk chunk = chunk_at(c);
      states_.load_keys(chunk, task_.key_head);
      states_.load_scores(chunk, head());
      states_.solve(chunk, head(), c == 0 ? nullptr : state(c), e(c));
      if (is_last(c)) return;
      if (c == 0)
        std::fill_n(state(1), work_.state_floats, 0.f);
      else
        std::copy_n(state(c), work_.state_floats, state(c + 1));
      states_.advance(chunk, e(c), state(c + 1));
    }
  }

  void compute_gradients(int64_t c) const {
    const Chunk chunk = chunk_at(c);
    std::fill_n(work_.db, chunk.count, 0.f);
    for (float* sums : {work_.dq, work_.dk}) std::fill_n(sums, work_.key_floats, 0.f);
    load(chunk, c);
    compute_residual_gradient(chunk, c);
    pack(chunk, c);
    if (c > 0) add_through_state_before(chunk);
    if (!is_last(c)) add_through_state_behind(chunk, c);
    add_through_scores(chunk);
    store_decay_gradient(chunk);
    if (c > 0) step_back(chunk);
  }

  void load(const Chunk& chunk, int64_t c) const {
    const int64_t n = chunk.count, dim = sizes_.key_dim, stride = chunk_.key_stride;
    scores_.load_keys(chunk, task_.key_head);
    scores_.load_scores(chunk, head());
    if (!solves()) scores_.solve(chunk, head(), nullptr, e(c));
    products_.left_transposed(chunk_.q_rows, stride, dim, n, work_.q_t_left);
    products_.right(chunk_.q_rows, stride, dim, n, work_.q_right);
    products_.right(chunk_.k_rows, stride, dim, n, work_.k_right);
    loops_.load_rows(rows_of(args_.d_out, sizes_.type, sizes_.num_value_heads * sizes_.value_dim,
                             chunk, head(), sizes_.value_dim),
                     chunk_.token_panels(work_.d_out));
  }

  // dR = beta Z and with it dV, dbeta and dd.
  void compute_residual_gradient(const Chunk& chunk, int64_t c) const {
    const ColumnPanels dr = chunk_.token_panels(work_.dr), of_e = chunk_.token_panels(e(c));
    const ColumnPanels d_out = chunk_.token_panels(work_.d_out);
    compute_update_gradient(chunk, c, dr);
    if (solves()) {
      const ColumnPanels scaled = chunk_.token_panels(work_.scaled);
      loops_.scale_rows(chunk_.beta, dr, chunk.count, scaled);
      add_transposed_scores(chunk, chunk_.y, right_of(scaled), into(dr), sizes_.value_dim, -1.f);
    }
    store_dots(chunk, dr, of_e, args_.dbeta);
    loops_.scale_rows(chunk_.beta, dr, chunk.count, dr);
    if (const float* skip = args_.forward.skip; skip != nullptr) {
      store_dots(chunk, d_out, of_e, args_.dskip);
      loops_.add_panels(skip[head()], d_out, chunk.count, dr);
    }
    const int64_t stride = sizes_.num_value_heads * sizes_.value_dim;
    const int64_t begin = chunk.first * stride + head() * sizes_.value_dim;
    store_panels(kernels_, dr, chunk.count,
                 static_cast<char*>(args_.dv) + begin * scalar_bytes(sizes_.type), sizes_.type,
                 stride);
  }

  // x_i · y_i for each token.
  void store_dots(const Chunk& chunk, const ColumnPanels& x, const ColumnPanels& y,
                  float* to) const {
    loops_.dot_rows(x, y, chunk.count, work_.dots);
    for (int64_t i = 0; i < chunk.count; ++i)
      to[(chunk.first + i) * sizes_.num_value_heads + head()] = work_.dots[i];
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
    if (solves()) products_.left_of_panels(chunk_.token_panels(work_.dr), n, work_.dr_left);
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
  void add_through_state_before(const Chunk& chunk) const {
    add_share(chunk, work_.d_out_left, work_.state_t_right, 1.f, chunk_.from_start, chunk_.q_rows,
              work_.dq);
    add_dots(chunk, 1.f);
    if (!solves()) return;
    add_share(chunk, work_.dr_left, work_.state_t_right, -1.f, chunk_.from_start, chunk_.k_rows,
              work_.dk);
    add_dots(chunk, 1.f);
  }

  // And through the one behind it.
  void add_through_state_behind(const Chunk& chunk, int64_t c) const {
    add_share(chunk, work_.u_left, work_.d_state_t_right, 1.f, chunk_.to_end, chunk_.k_rows,
              work_.dk);
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
  void add_through_scores(const Chunk& chunk) const {
    const int64_t n = chunk.count;
    multiply_by_updates(chunk, work_.d_out_left, 1.f, work_.dp);
    if (solves()) multiply_by_updates(chunk, work_.dr_left, -1.f, work_.dx);
    loops_.score_gradients({.decay = chunk_.square(chunk_.decay),
                            .p = chunk_.square(chunk_.p),
                            .x = chunk_.square(chunk_.x),
                            .dp = chunk_.square(work_.dp),
                            .dx = chunk_.square(work_.dx),
                            .rows = n,
                            .columns = work_.columns,
                            .db = work_.db});
    const Operand q{work_.q_right, n}, k{work_.k_right, n};
    const Result dq{work_.dq, chunk_.key_stride, chunk_.width};
    const Result dk{work_.dk, chunk_.key_stride, chunk_.width};
    add_scores(chunk, work_.dp, k, dq);
    if (solves()) add_scores(chunk, work_.dx, k, dk);
    add_transposed_scores(chunk, work_.dp, q, dk, sizes_.key_dim, 1.f);
    if (solves()) add_transposed_scores(chunk, work_.dx, k, dk, sizes_.key_dim, 1.f);
  }

  // scores = alpha left U'
  void multiply_by_updates(const Chunk& chunk, const float* left, float alpha,
                           float* scores) const {
    const int64_t n = chunk.count, dv = sizes_.value_dim;
    products_.multiply({.rows = n,
                        .cols = n,
                        .depth = dv,
                        .left = {left, dv},
                        .right = {work_.u_t_right, dv},
                        .result = chunk_.scores_into(scores),
                        .alpha = alpha,
                        .triangles = Triangles::ResultIsLower});
  }

  void store_decay_gradient(const Chunk& chunk) const {
    double sum = 0;
    for (int64_t i = chunk.count - 1; i >= 0; --i) {
      sum += work_.db[i];
      args_.dg[(chunk.first + i) * sizes_.num_value_heads + head()] = static_cast<float>(sum);
    }
  }

  // dS = exp(B) dS + Q' (exp(b) dO) - K' (exp(b) dR)
  void step_back(const Chunk& chunk) const {
    kernels_.row_scale(work_.d_state, work_.state_floats, chunk_.from_start[chunk.count - 1]);
    add_to_state(chunk, work_.q_t_left, work_.d_out, 1.f);
    if (solves()) add_to_state(chunk, chunk_.k_t_left, work_.dr, -1.f);
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

  // Adds a chunk's dq and dk to those of the heads before, and stores them behind the last head.
  void add_to_group(int64_t c) const {
    if (sizes_.num_value_heads > sizes_.num_key_heads) {
      const BackwardScratch& group = turns_.wait(number_, c);
      const int64_t begin = c * work_.key_floats;
      add_in_turn(work_.dq, group.group_dq + begin);
      add_in_turn(work_.dk, group.group_dk + begin);
      turns_.pass_on(number_, c);
    }
    if (turns_.is_last(number_)) store_key_gradients(chunk_at(c));
  }

  void add_in_turn(float* own, float* sums) const {
    if (!turns_.is_first(number_))
      loops_.add_panels(1.f, chunk_.key_panel(sums), chunk_.tokens, chunk_.key_panel(own));
    if (!turns_.is_last(number_)) std::copy_n(own, work_.key_floats, sums);
  }

  void store_key_gradients(const Chunk& chunk) const {
    const DeltaRuleForward& forward = args_.forward;
    const float scale = 1.f / std::sqrt(static_cast<float>(sizes_.key_dim));
    store_key_gradient(chunk, forward.q, forward.q_stride, scale, work_.dq, args_.dq);
    store_key_gradient(chunk, forward.k, forward.k_stride, 1.f, work_.dk, args_.dk);
  }

  void store_key_gradient(const Chunk& chunk, const void* x, int64_t stride, float factor,
                          float* sums, void* dx) const {
    const int64_t dim = sizes_.key_dim, dx_stride = sizes_.num_key_heads * dim;
    const int64_t begin = chunk.first * dx_stride + task_.key_head * dim;
    void* to = static_cast<char*>(dx) + begin * scalar_bytes(sizes_.type);
    if (solves())
      loops_.unit_rows_backward(rows_of(x, sizes_.type, stride, chunk, task_.key_head, dim), factor,
                                sums, chunk_.key_stride, to, dx_stride);
    else
      store_panels(kernels_, chunk_.key_panel(sums), chunk.count, to, sizes_.type, dx_stride);
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
  const size_t number_;
  Turns& turns_;
  const int64_t num_chunks_;
};

}  // namespace
}  // namespace delta_rule

int64_t delta_rule_backward_workspace_bytes(const DeltaRuleForward& args) {
  return delta_rule::workspace_bytes<delta_rule::BackwardScratch>(args);
}

void delta_rule_backward(const DeltaRuleBackward& args, void* workspace) {
  using namespace delta_rule;  // NOLINT(google-build-using-namespace): this file's own
  const DeltaRuleForward& forward = args.forward;
  const DeltaRuleSizes& sizes = forward.sizes;
  check_delta_rule(forward);
  const auto work = scratch_of_threads<BackwardScratch>(forward, workspace);
  const auto tasks = head_tasks(forward, 1);
  Turns turns(work, tasks.size(), sizes.num_value_heads / sizes.num_key_heads);
  each_task(tasks.size(), work, [&](size_t number, const BackwardScratch& own) {
    BackwardTask(args, active_kernels(), own, tasks[number], number, turns).run();
  });
}

}  // namespace snug::kernels::cpu
