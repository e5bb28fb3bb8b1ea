// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/kernel_work.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <tuple>

#include "core/kernels/cuda/delta_rule/layout.h"
#include "core/kernels/cuda/scratch.h"

namespace snug::ops {
namespace {

using kernels::Scalar;

double bytes_of(Scalar type, int64_t count) {
  return static_cast<double>(kernels::scalar_bytes(type)) * static_cast<double>(count);
}
double floats(int64_t count) { return bytes_of(Scalar::F32, count); }

// What follows is of (rows, dim) arrays of activations, and vectors of `dim` weights.
struct NormSize {
  Scalar type, weight_type;
  int64_t rows, dim;

  double array() const { return bytes_of(type, rows * dim); }
  double vector(const void* present) const {
    return present != nullptr ? bytes_of(weight_type, dim) : 0;
  }
  double column(const void* present) const { return present != nullptr ? floats(rows) : 0; }
};
template <class Args>
NormSize size_of(const Args& a) {
  return {a.type, a.weight_type, a.rows, a.dim};
}

// Blocks add the gradients of weights up in shares, as many as the backward kernels have blocks.
constexpr int64_t kShares = 256;

// Those of one type are added up by one launch.
Work with_shares(Work work, int64_t dim, std::initializer_list<kernels::VectorGradient> gradients) {
  std::set<Scalar> types;
  for (const kernels::VectorGradient& gradient : gradients) {
    if (gradient.data == nullptr) continue;
    types.insert(gradient.type);
    const double total = bytes_of(gradient.type, dim);
    work.bytes_written += floats(kShares * dim) + total;
    work.bytes_read += floats(kShares * dim) + (gradient.accumulate ? total : 0);
  }
  work.launches += static_cast<double>(types.size());
  return work;
}

// As tensor_list.cuh cuts lists: a launch for neighbours of one kind, as many as its arguments
// hold.
template <class Tensor, class Kind>
double num_lists(std::span<const Tensor> tensors, int64_t tensor_bytes, const Kind& kind) {
  const int64_t capacity = kernels::cuda::kListBytes / (tensor_bytes + 4);
  double lists = 0;
  int64_t in_list = 0;
  const Tensor* last = nullptr;
  for (const Tensor& t : tensors) {
    if (t.count == 0) continue;
    const bool fits = last != nullptr && kind(*last) == kind(t) && in_list < capacity;
    in_list = fits ? in_list + 1 : 1;
    lists += fits ? 0 : 1;
    last = &t;
  }
  return lists;
}

// With each tensor its random key goes along; for AdamW also whether it is aligned.
template <class Tensor>
constexpr int64_t kKeyedBytes = static_cast<int64_t>(sizeof(Tensor) + sizeof(uint64_t));
constexpr int64_t kFlagBytes = sizeof(uint64_t);

// Weights, or their float32 originals, are read and written, gradients read.
template <class Tensor>
void add_weight(Work& work, const Tensor& t) {
  const double param = bytes_of(t.param_type, t.count);
  const double original = t.master != nullptr ? floats(t.count) : 0;
  work.bytes_read += (original > 0 ? original : param) + bytes_of(t.grad_type, t.count);
  work.bytes_written += param + original;
}

// `states`: arrays of the tensor's size.
template <class Tensor>
Work update_of(const char* name, std::span<const Tensor> tensors, int states,
               int64_t flag_bytes = 0) {
  const auto kind = [](const Tensor& t) {
    return std::tuple(t.param_type, t.grad_type, t.state_type);
  };
  Work work{.name = name, .launches = num_lists(tensors, kKeyedBytes<Tensor> + flag_bytes, kind)};
  for (const Tensor& t : tensors) {
    add_weight(work, t);
    work.bytes_read += bytes_of(t.state_type, t.count) * states;
    work.bytes_written += bytes_of(t.state_type, t.count) * states;
  }
  return work;
}

// Rows of logits are read, and their gradients written.
Work rows_of_loss(const char* name, const kernels::CrossEntropy& a) {
  const Scalar type = a.gradient == nullptr ? Scalar::F32 : a.gradient_type;
  const double losses = 8.0 * static_cast<double>(a.rows);
  return {.name = name,
          .launches = a.rows > 0 ? 2.0 : 0.0,
          .bytes_read = floats(a.rows * a.vocabulary) + losses + 2 * floats(a.rows) +
                        (a.row_scale != nullptr ? floats(a.rows) : 0) +
                        floats(3 * a.rows * a.top_k),
          .bytes_written = (a.need_gradient ? bytes_of(type, a.rows * a.vocabulary) : 0) + losses +
                           (a.row_loss != nullptr ? floats(a.rows) : 0)};
}

}  // namespace

Work kernel_work(const kernels::RmsNormForward& a) {
  const NormSize n = size_of(a);
  const bool adds = a.residual != nullptr;
  return {.name = "rms_norm_forward",
          .bytes_read = n.array() * (adds ? 2 : 1) + n.vector(a.weight),
          .bytes_written = n.array() * (adds ? 2 : 1) + n.column(a.rstd)};
}

Work kernel_work(const kernels::RmsNormBackward& a) {
  const NormSize n = size_of(a);
  const int inputs = 2 + (a.d_residual != nullptr ? 1 : 0);
  const Work rows{.name = "rms_norm_backward",
                  .bytes_read = n.array() * inputs + n.vector(a.weight) + n.column(a.rstd),
                  .bytes_written = n.array()};
  return with_shares(rows, a.dim, {a.dweight});
}

Work kernel_work(const kernels::LayerNormForward& a) {
  const NormSize n = size_of(a);
  const bool adds = a.residual != nullptr;
  return {.name = "layer_norm_forward",
          .launches = a.rows > 0 ? 1.0 : 0.0,
          .bytes_read = n.array() * (adds ? 2 : 1) + n.vector(a.weight) + n.vector(a.bias),
          .bytes_written = n.array() * (adds ? 2 : 1) + n.column(a.mean) + n.column(a.rstd)};
}

Work kernel_work(const kernels::LayerNormBackward& a) {
  const NormSize n = size_of(a);
  const int inputs = 2 + (a.d_residual != nullptr ? 1 : 0);
  const Work rows{
      .name = "layer_norm_backward",
      .bytes_read = n.array() * inputs + n.vector(a.weight) + n.column(a.mean) + n.column(a.rstd),
      .bytes_written = n.array()};
  return with_shares(rows, a.dim, {a.dweight, a.dbias});
}

Work kernel_work(const kernels::RopeApply& a) {
  const int64_t turned = a.rotary_dim == 0 ? a.head_dim : a.rotary_dim;
  const double x = bytes_of(a.type, a.tokens * (a.heads + a.more_heads) * turned);
  return {.name = "rope_apply",
          .launches = x > 0 ? 1.0 : 0.0,
          .bytes_read = x + floats(a.tokens) + floats(std::min(a.tokens, a.max_positions) * turned),
          .bytes_written = x};
}

Work kernel_work(const kernels::ShortConvForward& a) {
  const double array = bytes_of(a.type, a.rows * a.features);
  const int64_t weights = a.features * (a.taps + (a.bias != nullptr ? 1 : 0));
  return {.name = "short_conv_forward",
          .launches = a.rows > 0 ? 1.0 : 0.0,
          .bytes_read = (a.form == kernels::ConvForm::Gates ? 3 : 1) * array +
                        bytes_of(a.weight_type, weights) + floats(a.rows),
          .bytes_written = array};
}

Work kernel_work(const kernels::ShortConvBackward& a) {
  const kernels::ShortConvForward& f = a.forward;
  Work rows = kernel_work(f);
  rows.name = "short_conv_backward";
  rows.launches = 1;
  rows.bytes_read += bytes_of(f.type, f.rows * f.features);
  rows.bytes_written *= f.form == kernels::ConvForm::Gates ? 3 : 1;
  return with_shares(with_shares(rows, f.features * f.taps, {a.dweight}), f.features, {a.dbias});
}

Work kernel_work(const kernels::SumOfRows& a) {
  const double total = bytes_of(a.total.type, a.dim);
  return {.name = "sum_of_rows",
          .launches = a.dim > 0 ? 1.0 : 0.0,
          .bytes_read = bytes_of(a.type, a.rows * a.dim) + (a.total.accumulate ? total : 0),
          .bytes_written = total};
}

Work kernel_work(const kernels::HeadRows& a) {
  Work work{.name = "move_head_rows", .launches = 0};
  for (const kernels::HeadRows::Array& array : a.arrays) {
    if (array.rows == 0) break;
    const int64_t elements = a.documents * array.heads * array.rows * a.dim;
    const double tokens = bytes_of(a.type, elements);
    const bool reads = a.way == kernels::HeadRows::Way::Read;
    const bool adds = a.way == kernels::HeadRows::Way::Add;
    if (elements > 0) work.launches = 1;
    work.bytes_read += reads ? tokens : floats(elements) + (adds ? tokens : 0);
    work.bytes_written += reads ? floats(elements) : tokens;
  }
  return work;
}

Work kernel_work(const kernels::HeadWidths& a) {
  Work work{.name = "change_head_widths", .launches = 0};
  for (const kernels::HeadWidths::Copy& copy : a.copies) {
    if (copy.tokens == 0) break;
    const int64_t heads = copy.tokens * copy.heads;
    work.launches = 1;
    work.bytes_read += bytes_of(a.type, heads * std::min(a.from_dim, a.to_dim));
    work.bytes_written += bytes_of(a.type, heads * a.to_dim);
  }
  return work;
}

Work kernel_work(const kernels::ActivationForward& a) {
  const double x = bytes_of(a.type, a.count);
  return {.name = "activation_forward", .bytes_read = x, .bytes_written = x};
}

Work kernel_work(const kernels::ActivationBackward& a) {
  const double x = bytes_of(a.type, a.count);
  return {.name = "activation_backward",
          .bytes_read = 2 * x,
          .bytes_written = x * (a.y != nullptr ? 2 : 1)};
}

Work kernel_work(const kernels::GatedForward& a) {
  const double x = bytes_of(a.type, a.rows * a.features);
  return {.name = "gated_forward",
          .launches = x > 0 ? 1.0 : 0.0,
          .bytes_read = 2 * x,
          .bytes_written = x};
}

Work kernel_work(const kernels::GatedBackward& a) {
  const double x = bytes_of(a.type, a.rows * a.features);
  return {.name = "gated_backward",
          .launches = x > 0 ? 1.0 : 0.0,
          .bytes_read = 3 * x,
          .bytes_written = x * (a.y != nullptr ? 3 : 2)};
}

Work kernel_work(const kernels::EmbeddingForward& a) {
  const double rows = bytes_of(a.type, a.tokens * a.dim);
  return {.name = "embedding_forward",
          .launches = a.tokens > 0 ? 1.0 : 0.0,
          .bytes_read = rows + floats(a.tokens),
          .bytes_written = rows};
}

// Two kernels of snug's and one that adds partial sums where tokens are many; the sort of the ids
// counts as one launch.
Work kernel_work(const kernels::EmbeddingBackward& a) {
  if (a.tokens == 0) return {.launches = 0};
  const bool has_partials = a.tokens >= 2 * kernels::cuda::kSegment;
  const double gradient = bytes_of(a.grad_type, a.tokens * a.dim);
  return {.name = "embedding_backward",
          .launches = has_partials ? 4.0 : 3.0,
          .bytes_read = bytes_of(a.type, a.tokens * a.dim) + gradient + 4 * floats(a.tokens),
          .bytes_written = gradient + 3 * floats(a.tokens)};
}

Work kernel_work(const kernels::CrossEntropy& a) { return rows_of_loss("cross_entropy", a); }

Work kernel_work(const kernels::CrossEntropy& a, Sweep sweep) {
  if (sweep == Sweep::OfParts) return rows_of_loss("cross_entropy_of_parts", a);
  if (sweep == Sweep::TeachersLogits)
    return {.name = "teachers_logits",
            .launches = a.rows > 0 ? 1.0 : 0.0,
            .bytes_read = floats(2 * a.rows * a.top_k),
            .bytes_written = floats(a.rows * a.top_k)};
  return {.name = "cross_entropy_part_sums",
          .launches = a.rows > 0 ? 1.0 : 0.0,
          .bytes_read = floats(a.rows * a.vocabulary) + floats(a.rows),
          .bytes_written = static_cast<double>(a.rows * kernels::kPartSums) * 8};
}

Work kernel_work(const kernels::AttentionScores& a, ScoreSweep sweep) {
  const double x = floats(a.documents * a.heads * a.rows * a.keys);
  const double column = floats(a.documents * a.heads * a.rows);
  const double launches = x > 0 ? 1.0 : 0.0;
  switch (sweep) {
    case ScoreSweep::Softmax:
      return {.name = "attention_softmax",
              .launches = launches,
              .bytes_read = x,
              .bytes_written = x + column};
    case ScoreSweep::Probabilities:
      return {.name = "attention_probabilities",
              .launches = launches,
              .bytes_read = x + column,
              .bytes_written = x};
    case ScoreSweep::Backward:
      return {.name = "attention_scores_backward",
              .launches = launches,
              .bytes_read = 2 * x + 2 * column,
              .bytes_written = x};
    case ScoreSweep::BiasBackward:
      break;
  }
  const double sums = floats(a.num_buckets * a.heads);
  return {.name = "attention_bias_backward",
          .launches = launches,
          .bytes_read = x + sums,
          .bytes_written = sums};
}

Work kernel_work(const kernels::ImagePatches& a) {
  const int64_t count = a.pictures * a.height * a.width * 3;
  return {.name = "image_patches",
          .bytes_read = static_cast<double>(count),
          .bytes_written = bytes_of(a.type, count)};
}

namespace {

// Arrays of the gated delta rule and of Mamba 2's scan; scratch is as if all chunks were full.
struct DeltaArrays {
  explicit DeltaArrays(const kernels::DeltaRuleSizes& sizes)
      : of(sizes), chunk(kernels::cuda::delta::layout_of(sizes, nullptr).chunk) {}

  double keys() const { return bytes_of(of.type, of.num_tokens * of.num_key_heads * of.key_dim); }
  double values() const { return bytes_of(of.type, heads() * of.value_dim); }
  double gates() const { return floats(heads()); }
  double square() const { return floats(heads() * chunk); }
  double float_values() const { return floats(heads() * of.value_dim); }
  double states() const { return floats(heads() * of.key_dim * of.value_dim) / double(chunk); }
  // A multiply and an add for each pair of a product, whose depth or width is a chunk, or not.
  double flops(int of_states, int of_keys, int of_values) const {
    const auto dk = double(of.key_dim), dv = double(of.value_dim), c = double(chunk);
    return 2 * double(heads()) * (of_states * dk * dv + c * (of_keys * dk + of_values * dv));
  }
  int64_t heads() const { return of.num_tokens * of.num_value_heads; }
  bool solves() const { return of.form == kernels::StateForm::Delta; }

  const kernels::DeltaRuleSizes& of;
  int64_t chunk;
};

}  // namespace

// What each launch reads counts once for it: keys, gates and scores are read by several.
Work kernel_work(const kernels::DeltaRuleForward& a) {
  const DeltaArrays n(a.sizes);
  const bool has_states = a.final_states != nullptr;
  const int64_t states = has_states ? a.sizes.num_documents * a.sizes.num_value_heads : 0;
  const double squares = n.solves() ? 2 : 1;
  return {.name = "delta_rule_forward",
          .launches = a.sizes.num_documents > 0 ? (a.sizes.max_seqlen > 0 ? 2.0 : 1.0) : 0.0,
          .bytes_read = 4 * n.keys() + n.values() + 5 * n.gates() + squares * n.square(),
          .bytes_written = n.values() + 2 * n.gates() + squares * n.square() +
                           floats(states * a.sizes.key_dim * a.sizes.value_dim),
          .flops = n.solves() ? n.flops(3, 2, 2) : n.flops(2, 1, 1)};
}

Work kernel_work(const kernels::DeltaRuleBackward& a) {
  const DeltaArrays n(a.forward.sizes);
  const bool solves = n.solves();
  // Y and X are read by three, written once each; E is V itself where nothing is solved.
  return {.name = "delta_rule_backward",
          .launches = a.forward.sizes.num_tokens > 0 ? 4.0 : 0.0,
          .bytes_read = 7 * n.keys() + (solves ? 3 : 4) * n.values() + 11 * n.gates() +
                        (solves ? 4 : 2) * n.square() + (solves ? 2 : 1) * n.float_values() +
                        2 * n.states(),
          .bytes_written = 2 * n.keys() + n.values() + 4 * n.gates() +
                           (solves ? 3 : 1) * n.square() + (solves ? 2 : 1) * n.float_values() +
                           2 * n.states(),
          .flops = solves ? n.flops(8, 6, 5) : n.flops(5, 3, 2)};
}

Work kernel_work(const kernels::DeltaRuleStep& a) {
  const int64_t heads = a.num_sequences * a.num_value_heads;
  const double keys = bytes_of(a.type, a.num_sequences * a.num_key_heads * a.key_dim);
  const double values = bytes_of(a.type, heads * a.value_dim);
  const double states = floats(heads * a.key_dim * a.value_dim);
  return {.name = "delta_rule_step",
          .launches = heads > 0 ? 1.0 : 0.0,
          .bytes_read = 2 * keys + values + 2 * floats(heads) + states,
          .bytes_written = values + states};
}

Work kernel_work(const kernels::Dropout& a) {
  const double x = bytes_of(a.type, a.count);
  return {.name = "dropout",
          .launches = a.count > 0 ? 1.0 : 0.0,
          .bytes_read = x * (a.accumulate ? 2 : 1),
          .bytes_written = x};
}

Work kernel_work(const kernels::DequantizeOnDevice& a) {
  const double share = static_cast<double>(a.count) / static_cast<double>(a.rows * a.cols);
  return {
      .name = "dequantize",
      .launches = a.count > 0 ? 1.0 : 0.0,
      .bytes_read = share * static_cast<double>(kernels::quantized_bytes(a.format, a.rows, a.cols)),
      .bytes_written = bytes_of(a.type, a.count)};
}

Work kernel_work(std::span<const kernels::TensorView> tensors) {
  const auto kind = [](const kernels::TensorView& t) { return t.type; };
  Work work{.name = "sum_of_squares",
            .launches = 1 + num_lists(tensors, sizeof(kernels::TensorView), kind),
            .bytes_written = 8};
  for (const kernels::TensorView& t : tensors) work.bytes_read += bytes_of(t.type, t.count);
  return work;
}

Work kernel_work(std::span<const kernels::AdamWTensor> tensors) {
  return update_of("adamw_step", tensors, 2, kFlagBytes);
}

Work kernel_work(std::span<const kernels::AdamW8bitTensor> tensors) {
  using Tensor = kernels::AdamW8bitTensor;
  const auto kind = [](const Tensor& t) { return std::tuple(t.param_type, t.grad_type); };
  Work work{.name = "adamw_8bit_step",
            .launches = num_lists(tensors, kKeyedBytes<Tensor> + kFlagBytes, kind)};
  for (const Tensor& t : tensors) {
    add_weight(work, t);
    const int64_t blocks = (t.count + kernels::kQuantizedBlock - 1) / kernels::kQuantizedBlock;
    const double states = 2 * (static_cast<double>(t.count) + floats(blocks));
    work.bytes_read += states;
    work.bytes_written += states;
  }
  return work;
}

template <int N>
Work kernel_work(std::span<const kernels::ElementTensor<N>> tensors, const char* name) {
  const bool keeps_states = !tensors.empty() && tensors.front().states[0] != nullptr;
  return update_of(name, tensors, keeps_states ? N : 0);
}
template Work kernel_work(std::span<const kernels::ElementTensor<1>>, const char*);
template Work kernel_work(std::span<const kernels::ElementTensor<2>>, const char*);

// Seven kernels, of which four read the gradient and two the weight.
Work kernel_work(const kernels::AdafactorTensor& t) {
  Work work{.name = "adafactor_step", .launches = 7};
  add_weight(work, t);
  const Scalar weight = t.master != nullptr ? Scalar::F32 : t.param_type;
  work.bytes_read += 3 * bytes_of(t.grad_type, t.count) + bytes_of(weight, t.count);
  const double factors = floats((t.row_var != nullptr ? t.rows : 0) + t.cols);
  work.bytes_read += factors;
  work.bytes_written += factors;
  return work;
}

}  // namespace snug::ops
