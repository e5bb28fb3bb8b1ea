// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "core/ops/device/carried.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/elementwise.h"
#include "core/ops/linear/expert_weights.h"
#include "core/ops/linear/linear.h"
#include "core/ops/linear/row_room.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMostRows = 1024;  // at once, of one expert

// Null: an expert with a fused gate has no second layer.
std::array<const Projection*, 3> places_of(const Expert& expert) {
  return {&expert.gate, expert.up ? &*expert.up : nullptr, &expert.down};
}

template <class Body>
void for_each_layer(const Expert& expert, const Body& body) {
  for (const Projection* layer : places_of(expert))
    if (layer != nullptr) body(*layer);
}

thread_local ExpertWeights* weights_source = nullptr;

struct Mixture {
  // Whether gates and ups stay for the backward. All ranks' routes might be of this rank's experts,
  // and so would be too many to keep room for.
  bool keeps_rows() const { return !routes.others_last; }
  std::vector<Expert> experts;
  SortedRoutes routes;
  Gate gate;
  ExpertWeights* source = nullptr;  // null: all are on the device
};

// R routes, sorted by expert.
struct Rows {
  at::Tensor tokens;                // (R) int32
  at::Tensor weights;               // (R, 1)
  at::Tensor gate, up;              // (R, F), or (R, 2 F) and none
  std::array<at::Tensor, 3> inner;  // (R, r): x·Aᵀ of the adapters of gate, up and down, if any

  int64_t count() const { return tokens.size(0); }
  Rows narrow(int64_t begin, int64_t count) const {
    Rows part = *this;
    for (at::Tensor* x : {&part.tokens, &part.weights, &part.gate, &part.up, &part.inner[0],
                          &part.inner[1], &part.inner[2]})
      if (x->defined()) *x = x->narrow(0, begin, count);
    return part;
  }
  // (R, F) each
  at::Tensor gates() const { return up.defined() ? gate : gate.narrow(1, 0, gate.size(1) / 2); }
  at::Tensor ups() const {
    return up.defined() ? up : gate.narrow(1, gate.size(1) / 2, gate.size(1) / 2);
  }
};

// The widest rank among the experts' adapters of each layer; 0: none.
std::array<int64_t, 3> widest_ranks(const std::vector<Expert>& experts) {
  std::array<int64_t, 3> widest{};
  for (const Expert& expert : experts)
    for (size_t i = 0; i < widest.size(); ++i)
      if (const Projection* layer = places_of(expert)[i]; layer != nullptr && layer->adapter)
        widest[i] = std::max(widest[i], layer->adapter->a.size(0));
  return widest;
}

// With room for all but tokens and weights.
Rows with_room(Rows rows, const std::vector<Expert>& experts, const at::TensorOptions& options) {
  const int64_t features = experts.front().gate.out_features(), count = rows.count();
  rows.gate = at::empty({count, features}, options);
  if (experts.front().up) rows.up = at::empty({count, features}, options);
  const std::array<int64_t, 3> ranks = widest_ranks(experts);
  for (size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i] > 0) rows.inner[i] = at::empty({count, ranks[i]}, options);
  return rows;
}

// Rows of a piece: with the room that all rows have, or with their own.
Rows rows_of_piece(Rows rows, const Mixture& mixture, const at::TensorOptions& options) {
  return mixture.keeps_rows() ? rows : with_room(std::move(rows), mixture.experts, options);
}

at::Tensor inner_of(const Projection& layer, const at::Tensor& inner) {
  return layer.adapter ? inner.narrow(1, 0, layer.adapter->a.size(0)) : at::Tensor();
}

void multiply(const Projection& layer, const at::Tensor& x, const at::Tensor& out,
              const at::Tensor& inner, int64_t first) {
  Projector projector(layer, x.scalar_type());
  projector.start_at(first);
  at::Tensor low;
  projector.forward_into(out, x, &low);
  if (low.defined()) inner_of(layer, inner).copy_(low);
}

// x[index]; libtorch has it for all devices but meta.
at::Tensor select_rows(const at::Tensor& x, const at::Tensor& index) {
  at::Tensor rows = at::empty({index.size(0), x.size(1)}, x.options());
  if (!x.is_meta())
    at::index_select_out(rows, x, 0, index);
  else if (calls_cuda(x))
    note_selected_rows(rows, index);
  return rows;
}

// sum (T, D) float32; a token is there once at most.
void add_rows(at::Tensor sum, const at::Tensor& tokens, const at::Tensor& rows) {
  sum.index_add_(0, tokens, rows.scalar_type() == at::kFloat ? rows : cast(rows, at::kFloat));
}

// Rows of one expert, the first of which is its route `first`.
struct Piece {
  const Expert& expert;
  Gate gate;
  int64_t first = 0;
};

// Fills in gates and ups.
void first_layers(const Piece& piece, const at::Tensor& x, const Rows& rows) {
  const auto& [gate, up, down] = piece.expert;
  const at::Tensor own = select_rows(x, rows.tokens);
  multiply(gate, own, rows.gate, rows.inner[0], piece.first);
  if (up) multiply(*up, own, rows.up, rows.inner[1], piece.first);
}

// (R, D), before weights.
at::Tensor last_layer(const Piece& piece, const Rows& rows) {
  const Projection& down = piece.expert.down;
  at::Tensor y = at::empty({rows.count(), down.out_features()}, rows.gate.options());
  multiply(down, gated(rows.gates(), rows.ups(), piece.gate), y, rows.inner[2], piece.first);
  return y;
}

void forward_piece(const Piece& piece, const at::Tensor& x, const Rows& rows,
                   const at::Tensor& sum) {
  first_layers(piece, x, rows);
  const at::Tensor y = last_layer(piece, rows);
  y.mul_(rows.weights);
  add_rows(sum, rows.tokens, y);
}

// What forward_piece() left in `rows`, again.
void repeat_piece(const Piece& piece, const at::Tensor& x, const Rows& rows) {
  first_layers(piece, x, rows);
  if (piece.expert.down.adapter) last_layer(piece, rows);
}

// What a piece's backward writes.
struct Gradients {
  at::Tensor weights;  // (R, 1) float32
  at::Tensor x;        // (T, D) float32; undefined: nothing needs it
};

// Through the last layer. Returns the gradient of its input (R, F). That of a route's weight is the
// product of the last layer's output with d_out, and so that of its input with the input's
// gradient, before the weight, and of its bias with d_out.
at::Tensor down_backward(const Piece& piece, const Rows& rows, const at::Tensor& d_out,
                         const at::Tensor& d_weights) {
  const Projection& down = piece.expert.down;
  Projector projector(down, d_out.scalar_type());
  projector.start_at(piece.first);
  const at::Tensor d_y = select_rows(d_out, rows.tokens);
  const at::Tensor value = gated(rows.gates(), rows.ups(), piece.gate);
  at::Tensor d_value = at::empty_like(value);
  at::Tensor d_inner = projector.inner_gradient(d_y);
  projector.input_gradient(d_y, d_inner, d_value);
  {
    const at::Tensor products = value * d_value;
    matmul_into(d_weights, products, at::ones({value.size(1), 1}, value.options()),
                Into::Overwrite);
  }
  if (down.bias.defined())
    matmul_into(d_weights, d_y, weight_in(d_y.scalar_type(), down.bias.detach()).view({-1, 1}),
                Into::Accumulate);
  for (at::Tensor* gradient : {&d_value, &d_inner})
    if (gradient->defined()) gradient->mul_(rows.weights);
  d_y.mul_(rows.weights);
  projector.add_own_gradients(d_y, value, inner_of(down, rows.inner[2]), d_inner);
  return d_value;
}

// Whether its backward needs x.
bool reads_input(const Expert& expert) {
  return expert.gate.needs_input() || (expert.up && expert.up->needs_input());
}

// Overwrites gate and up.
void backward_piece(const Piece& piece, const at::Tensor& x, const at::Tensor& d_out,
                    const Rows& rows, const Gradients& gradients) {
  gated_backward_in_place(down_backward(piece, rows, d_out, gradients.weights), rows.gates(),
                          rows.ups(), piece.gate);
  const Expert& expert = piece.expert;
  at::Tensor own, d_own;
  if (reads_input(expert)) own = select_rows(x, rows.tokens);
  if (gradients.x.defined()) d_own = at::empty({rows.count(), d_out.size(1)}, d_out.options());
  const auto through = [&](const Projection& layer, const at::Tensor& d, const at::Tensor& inner,
                           Into into) {
    Projector projector(layer, d.scalar_type());
    projector.start_at(piece.first);
    const at::Tensor d_inner = projector.add_gradients(d, own, inner_of(layer, inner));
    if (d_own.defined()) projector.input_gradient(d, d_inner, d_own, into);
  };
  through(expert.gate, rows.gate, rows.inner[0], Into::Overwrite);
  if (expert.up) through(*expert.up, rows.up, rows.inner[1], Into::Accumulate);
  if (d_own.defined()) add_rows(gradients.x, rows.tokens, d_own);
}

// One pass over the experts that have tokens; on meta, where no one knows them, over all.
class PassOverExperts {
 public:
  // Ends what it began where there is no memory to begin it with: the other constructor is done.
  PassOverExperts(const Mixture& mixture, bool is_meta) : PassOverExperts(mixture) {
    const std::vector<int64_t>& begins = mixture.routes.begins;
    for (size_t e = 0; e < mixture.experts.size(); ++e)
      if (is_meta || begins[e] < begins[e + 1]) order_.push_back(e);
    if (mixture_.source != nullptr) mixture_.source->begin(order_);
  }
  ~PassOverExperts() {
    if (mixture_.source != nullptr) mixture_.source->end();
  }
  PassOverExperts(const PassOverExperts&) = delete;
  PassOverExperts& operator=(const PassOverExperts&) = delete;

  // body(piece, its rows' begin among all, their number)
  template <class Body>
  void for_each_piece(const Body& body) const {
    const std::vector<int64_t>& begins = mixture_.routes.begins;
    for (const size_t e : order_) {
      if (mixture_.source != nullptr) mixture_.source->next();
      for (int64_t begin = begins[e]; begin < begins[e + 1]; begin += kMostRows)
        body(Piece{mixture_.experts[e], mixture_.gate, begin - begins[e]}, begin,
             std::min(kMostRows, begins[e + 1] - begin));
    }
  }

 private:
  explicit PassOverExperts(const Mixture& mixture) : mixture_(mixture) {}

  const Mixture& mixture_;
  std::vector<size_t> order_;
};

// --- the room that pieces need at most ---

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  at::Tensor twin = at::empty(tensor.sizes(), tensor.options().device(at::kMeta));
  if (!tensor.requires_grad()) return twin;
  twin.set_requires_grad(true);
  twin.mutable_grad() = at::empty_like(twin, twin.options());
  return twin;
}

Projection on_meta(const Projection& layer) {
  Projection twin = layer;
  twin.weight.data = on_meta(layer.weight.data);
  twin.bias = on_meta(layer.bias);
  if (!layer.adapter) return twin;
  twin.adapter->a = on_meta(layer.adapter->a);
  twin.adapter->b = on_meta(layer.adapter->b);
  twin.adapter->magnitude = on_meta(layer.adapter->magnitude);
  return twin;
}

// All of a layer that the room depends on.
void describe(const Projection& layer, std::vector<int64_t>& key) {
  const auto add = [&key](const at::Tensor& tensor) {
    key.push_back(!tensor.defined() ? -1
                                    : 2 * static_cast<int64_t>(tensor.scalar_type()) +
                                          static_cast<int64_t>(tensor.requires_grad()));
  };
  key.insert(key.end(), {layer.in_features(), layer.out_features(),
                         layer.weight.format ? static_cast<int64_t>(*layer.weight.format) : -1});
  add(layer.weight.data);
  add(layer.bias);
  if (!layer.adapter) return;
  const LowRank& adapter = *layer.adapter;
  for (const at::Tensor& tensor : {adapter.a, adapter.b, adapter.magnitude}) add(tensor);
  key.insert(key.end(), {adapter.a.size(0), static_cast<int64_t>(adapter.dropout > 0)});
}

enum class Direction { Forward, Backward, BackwardToInput };

// What a piece of `count` rows of this expert needs for as long as it is computed, of the widest
// that the layer's experts may have.
int64_t piece_room(const Expert& expert, const Mixture& mixture, const at::Tensor& x, int64_t count,
                   Direction direction) {
  Rehearsal rehearsal(kernel_device(x), count);
  const auto on = x.options().device(at::kMeta);
  const Expert twin{on_meta(expert.gate),
                    expert.up ? std::optional(on_meta(*expert.up)) : std::nullopt,
                    on_meta(expert.down)};
  Rows rows{.tokens = at::empty({count}, on.dtype(at::kInt)), .weights = at::empty({count, 1}, on)};
  if (mixture.keeps_rows()) rows = with_room(rows, mixture.experts, on);
  const at::Tensor tokens = at::empty(x.sizes(), on),
                   sum = at::empty(x.sizes(), on.dtype(at::kFloat));
  const at::Tensor d_weights = at::empty({count, 1}, on.dtype(at::kFloat));
  const Piece piece{twin, mixture.gate};
  rehearsal.begin();
  rows = rows_of_piece(rows, mixture, on);
  if (direction == Direction::Forward) {
    forward_piece(piece, tokens, rows, sum);
  } else {
    if (!mixture.keeps_rows()) repeat_piece(piece, tokens, rows);
    backward_piece(piece, tokens, tokens, rows,
                   {d_weights, direction == Direction::Backward ? at::Tensor() : sum});
  }
  return rehearsal.peak();
}

// The most that any piece may need. Layers and experts are mostly alike: each kind is rehearsed
// once.
int64_t room_for(const Mixture& mixture, const at::Tensor& x, Direction direction) {
  thread_local std::map<std::vector<int64_t>, int64_t> known;
  const int64_t count = std::min(kMostRows, x.size(0));
  const std::array<int64_t, 3> widest = widest_ranks(mixture.experts);
  int64_t most = 0;
  for (const Expert& expert : mixture.experts) {
    std::vector<int64_t> key(widest.begin(), widest.end());
    key.insert(key.end(),
               {count, static_cast<int64_t>(direction), static_cast<int64_t>(kernel_device(x)),
                static_cast<int64_t>(x.scalar_type()), static_cast<int64_t>(mixture.keeps_rows())});
    for_each_layer(expert, [&](const Projection& layer) { describe(layer, key); });
    auto found = known.find(key);
    if (found == known.end())
      found = known.emplace(key, piece_room(expert, mixture, x, count, direction)).first;
    most = std::max(most, found->second);
  }
  return most;
}

// Allocated, and freed at once.
void take_room(const Mixture& mixture, const at::Tensor& x, Direction direction) {
  at::empty({room_for(mixture, x, direction)}, x.options().dtype(at::kByte));
}

// --- as one operator ---

struct ExpertsFunction : torch::autograd::Function<ExpertsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weights,
                            const std::shared_ptr<const Mixture>& mixture,
                            const std::optional<at::Tensor>& /*trained*/) {
    const SortedRoutes& routes = mixture->routes;
    Rows all{.tokens = routes.tokens,
             .weights = select_rows(weights.reshape({-1, 1}), routes.places)};
    if (mixture->keeps_rows()) all = with_room(all, mixture->experts, x.options());
    const at::Tensor sum = at::zeros(x.sizes(), x.options().dtype(at::kFloat));
    const PassOverExperts pass(*mixture, x.is_meta());
    take_room(*mixture, x, Direction::Forward);
    pass.for_each_piece([&](const Piece& piece, int64_t begin, int64_t count) {
      forward_piece(piece, x, rows_of_piece(all.narrow(begin, count), *mixture, x.options()), sum);
    });
    carry(ctx, mixture);
    const bool reads = !mixture->keeps_rows() || std::ranges::any_of(mixture->experts, reads_input);
    keep(ctx, {reads ? x : at::Tensor(), all.weights, all.gate, all.up, all.inner[0], all.inner[1],
               all.inner[2], routes.tokens, routes.positions});
    return x.scalar_type() == at::kFloat ? sum : cast(sum, x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = grads[0].contiguous();
    const variable_list saved = ctx->get_saved_variables();
    const Mixture& mixture = *carried<std::shared_ptr<const Mixture>>(ctx);
    const Rows all{saved[7], saved[1], saved[2], saved[3], {saved[4], saved[5], saved[6]}};
    const auto floats = d_out.options().dtype(at::kFloat);
    Gradients gradients{.weights = mixture.routes.others_last
                                       ? at::zeros({all.count(), 1}, floats)
                                       : at::empty({all.count(), 1}, floats)};
    if (ctx->needs_input_grad(0)) gradients.x = at::zeros(d_out.sizes(), floats);
    const PassOverExperts pass(mixture, d_out.is_meta());
    pass.for_each_piece([&](const Piece& piece, int64_t begin, int64_t count) {
      const Rows rows = rows_of_piece(all.narrow(begin, count), mixture, d_out.options());
      if (!mixture.keeps_rows()) repeat_piece(piece, saved[0], rows);
      backward_piece(piece, saved[0], d_out, rows,
                     {gradients.weights.narrow(0, begin, count), gradients.x});
    });
    finish_gradients(mixture.experts);
    // Now that all gradients are there.
    take_room(mixture, d_out,
              gradients.x.defined() ? Direction::BackwardToInput : Direction::Backward);
    const auto rounded = [&](const at::Tensor& x) {
      return !x.defined() || d_out.scalar_type() == at::kFloat ? x : cast(x, d_out.scalar_type());
    };
    const int64_t k = all.count() / d_out.size(0);
    return {rounded(gradients.x),
            rounded(select_rows(gradients.weights, saved[8])).view({-1, k}),
            {},
            {}};
  }

  // Optimizers, and ranks that sum gradients, want one for every parameter.
  static void finish_gradients(const std::vector<Expert>& experts) {
    for (const Expert& expert : experts)
      for_each_layer(expert, [](const Projection& layer) {
        for (const at::Tensor& parameter : layer.trained())
          if (const GradientBuffer gradient = gradient_buffer(parameter); gradient.fresh)
            fill(gradient.tensor, 0);
      });
  }
};

}  // namespace

ExpertWeightsGuard::ExpertWeightsGuard(ExpertWeights* weights)
    : previous_(std::exchange(weights_source, weights)) {}
ExpertWeightsGuard::~ExpertWeightsGuard() { weights_source = previous_; }

std::optional<at::Tensor> any_trained(const Expert& expert) {
  std::optional<at::Tensor> trained;
  for_each_layer(expert, [&](const Projection& layer) {
    if (!trained) trained = layer.any_trained();
  });
  return trained;
}

at::Tensor expert_mlps(const at::Tensor& x, const at::Tensor& weights, const SortedRoutes& routes,
                       std::vector<Expert> experts, const Gate& gate,
                       std::optional<at::Tensor> trained_elsewhere) {
  std::optional<at::Tensor> trained = std::move(trained_elsewhere);
  for (const Expert& expert : experts) {
    for_each_layer(expert, [&](const Projection& layer) {
      SNUG_CHECK(layer.part.group == nullptr, "an expert's layer shared among ranks");
    });
    if (!trained) trained = any_trained(expert);
  }
  return ExpertsFunction::apply(
      x, weights,
      std::make_shared<const Mixture>(Mixture{std::move(experts), routes, gate, weights_source}),
      trained);
}

}  // namespace snug::ops
