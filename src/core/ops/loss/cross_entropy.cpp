// SPDX-License-Identifier: Apache-2.0
#include "core/ops/loss/cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "core/kernels/cross_entropy.h"
#include "core/memory/guards.h"
#include "core/ops/device/carried.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/linear/linear.h"
#include "core/ops/linear/matmul.h"
#include "core/ops/pictures.h"
#include "core/ops/shared_rows.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Bytes of an inner chunk's float32 logits. On a cpu the addition to the weight's gradient per
// chunk is cheap compared with the products, and the logits are small compared with a real batch's
// activations. A GPU needs more rows per product.
constexpr int64_t kLogitBytes = 64 * kMiB, kGpuLogitBytes = 256 * kMiB;
constexpr int64_t kFewestGpuRows = 256;
// Fewer rows without a gradient, so that validation, which may have more targets than any training
// micro-batch, needs no more memory than training.
constexpr int64_t kUntrainedRows = 64, kUntrainedGpuRows = 128;
// Rows of an outer chunk on a GPU. Each outer chunk reads and writes the weight's whole gradient:
// 8192 rows of Qwen2.5-1.5B's head in chunks of 96 would move 80 GB, which takes an H100 24 ms
// against 12 ms for the products at peak speed, and round 86 times.
constexpr int64_t kPieceRows = 2048;

// What is taken or given of each row, (N) float32; undefined: nothing.
struct ByRow {
  at::Tensor scale;  // of its gradient
  at::Tensor loss;   // is filled in
};

at::Tensor slice_of(const at::Tensor& t, int64_t begin, int64_t end) {
  return t.defined() ? t.slice(0, begin, end) : at::Tensor();
}

// The rows of x (N, …) that `rows` names.
at::Tensor picked(const at::Tensor& x, const at::Tensor& rows) {
  const at::Tensor all = x.contiguous();
  at::Tensor result = at::empty({rows.size(0), x.numel() / std::max<int64_t>(1, x.size(0))},
                                x.options().requires_grad(false));
  look_up(result, rows, all.view({x.size(0), -1}), {});
  return result;
}

struct Chunk {
  at::Tensor x;        // (C, D)
  at::Tensor targets;  // (C)
  at::Tensor teacher;  // (C, 2 K); undefined: none
  ByRow by_row;        // (C) each
  at::Tensor rows;     // (C): which they are, where the others are copies of rows that were picked

  Chunk stretch(int64_t begin, int64_t end) const {
    return {x.slice(0, begin, end),
            targets.slice(0, begin, end),
            slice_of(teacher, begin, end),
            {slice_of(by_row.scale, begin, end), slice_of(by_row.loss, begin, end)},
            {}};
  }
  int64_t top_k() const { return teacher.defined() ? teacher.size(1) / 2 : 0; }
};

Chunk chunk_of(const Chunk& all, const CountedRows& counted, int64_t begin, int64_t end) {
  if (!counted.rows.defined()) return all.stretch(begin, end);
  const at::Tensor rows = counted.rows.slice(0, begin, end);
  const auto& [scale, loss] = all.by_row;
  return {picked(all.x, rows),
          counted.targets.slice(0, begin, end),
          all.teacher.defined() ? picked(all.teacher, rows) : at::Tensor(),
          {scale.defined() ? picked(scale, rows).view({-1}) : at::Tensor(),
           loss.defined() ? at::empty({end - begin}, loss.options()) : at::Tensor()},
          rows};
}

// If `d_logits` is defined, the gradient is written to it; it may be the logits themselves.
kernels::CrossEntropy arguments(const at::Tensor& logits, const Chunk& chunk,
                                const CrossEntropyOptions& options, const at::Tensor& d_logits,
                                const std::optional<VocabularyPart>& part) {
  return {.rows = logits.size(0),
          .vocabulary = logits.size(1),
          .logits = write_pointer<float>(logits),
          .targets = read_pointer<int32_t>(chunk.targets),
          .ignore_index = static_cast<int32_t>(options.ignore_index),
          .scale = static_cast<float>(options.scale * options.form.scale),
          .label_smoothing = static_cast<float>(options.label_smoothing),
          .z_loss = static_cast<float>(options.z_loss),
          .need_gradient = d_logits.defined(),
          .gradient = d_logits.is_same(logits) ? nullptr : write_pointer(d_logits),
          .gradient_type = to_scalar(d_logits.defined() ? d_logits.scalar_type() : at::kFloat),
          .row_loss = write_pointer<float>(chunk.by_row.loss),
          .row_scale = read_pointer<float>(chunk.by_row.scale),
          .top_k = chunk.top_k(),
          .teacher = read_pointer<float>(chunk.teacher),
          .target_weight =
              static_cast<float>(chunk.teacher.defined() ? options.teacher.target_weight : 1),
          .beta = static_cast<float>(options.teacher.beta),
          .first = part ? part->first : 0,
          .whole_vocabulary = part ? part->whole : 0};
}

// Sums the chunks' losses where they are computed, on the host or the device, so that nothing
// waits.
class LossSum {
 public:
  explicit LossSum(const at::Tensor& x) {
    if (kernel_device(x) == at::kCUDA)
      on_device_ = at::zeros({cuda::kCrossEntropyTotals}, x.options().dtype(at::kDouble));
  }

  // The loss of a chunk's logits (C, V).
  void add(const at::Tensor& logits, const kernels::CrossEntropy& args) {
    if (on_device_.defined())
      with_workspace(logits, cuda::cross_entropy_workspace_bytes(args.rows), [&](void* scratch) {
        cuda::cross_entropy(args, write_pointer<double>(on_device_), scratch);
      });
    else if (!logits.is_meta())
      on_host_ += kernels::cpu::cross_entropy(args).loss_sum;
  }

  // The same for part of their columns.
  void add_part(const at::Tensor& logits, const kernels::CrossEntropy& args, dist::Group& group) {
    const bool on_device = on_device_.defined();
    const int64_t scratch_bytes = on_device
                                      ? cuda::cross_entropy_workspace_bytes(args.rows)
                                      : kernels::cpu::cross_entropy_part_scratch_bytes(args.rows);
    const at::Tensor scratch = at::empty({scratch_bytes}, logits.options().dtype(at::kByte));
    const at::Tensor all = sums_of_all(logits, group);
    const at::Tensor own = all.select(0, group.rank());
    if (calls_cuda(logits))
      cuda::cross_entropy_part_sums(args, write_sums(own));
    else if (!logits.is_meta())
      kernels::cpu::cross_entropy_part_sums(args, write_sums(own), scratch.mutable_data_ptr());
    group.wait(group.all_gather(all, own));
    if (calls_cuda(logits))
      cuda::cross_entropy_of_parts(args, write_sums(all), group.size(),
                                   write_pointer<double>(on_device_), write_pointer(scratch));
    else if (!logits.is_meta())
      on_host_ += kernels::cpu::cross_entropy_of_parts(args, write_sums(all), group.size(),
                                                       scratch.const_data_ptr())
                      .loss_sum;
  }

  // (1), float32.
  at::Tensor total(const at::Tensor& x) const {
    if (on_device_.defined()) return on_device_.slice(0, 0, 1).to(at::kFloat);
    at::Tensor result = at::empty({1}, x.options().dtype(at::kFloat).requires_grad(false));
    if (!result.is_meta()) *result.mutable_data_ptr<float>() = static_cast<float>(on_host_);
    return result;
  }

 private:
  // (ranks, C, 4)
  static at::Tensor sums_of_all(const at::Tensor& logits, const dist::Group& group) {
    const memory::CategoryGuard category(memory::Category::Communication);
    return at::empty({group.size(), logits.size(0), kernels::kPartSums},
                     logits.options().dtype(at::kDouble));
  }
  static kernels::CrossEntropyPartSums* write_sums(const at::Tensor& sums) {
    return write_pointer<kernels::CrossEntropyPartSums>(sums);
  }

  double on_host_ = 0;
  at::Tensor on_device_;
};

// (C, K) float32: the chunk's logits of the teacher's tokens, over the whole vocabulary.
at::Tensor teachers_logits(const at::Tensor& logits, const kernels::CrossEntropy& args,
                           const std::optional<VocabularyPart>& part) {
  at::Tensor found = at::empty({args.rows, args.top_k}, logits.options());
  if (calls_cuda(logits))
    cuda::teachers_logits(args, write_pointer<float>(found));
  else if (!logits.is_meta())
    kernels::cpu::teachers_logits(args, write_pointer<float>(found));
  if (part) {
    dist::Group& group = *part->share.group;
    group.wait(group.all_reduce(found));
  }
  return found;
}

// A buffer for the gradients of an outer chunk's logits, if products need another type than
// float32; undefined: they overwrite the logits.
at::Tensor room_for_gradients(const Chunk& piece, int64_t columns, const RowCut& cut) {
  const at::ScalarType type = operand_type(piece.x);
  if (type == at::kFloat && cut.piece == cut.stretch) return {};
  return at::empty({piece.x.size(0), columns}, piece.x.options().dtype(type).requires_grad(false));
}

// tanh(product / c) of logits c * tanh(product / c); undefined without a cap. A sum with a factor
// instead of a quotient: a CPU makes tensors of numbers beside tensors, which no plan knows.
at::Tensor tanh_of_cap(const at::Tensor& logits, double cap) {
  return cap == 0 ? at::Tensor() : at::zeros_like(logits).add_(logits, 1 / cap);
}

// From the gradient of capped logits to that of the products, into `d_chunk`. In float32 and
// rounded once: a product of two types would take copies on a CPU.
void undo_cap(at::Tensor d_logits, const at::Tensor& tanh, const at::Tensor& d_chunk) {
  at::tanh_backward_out(d_logits, d_logits, tanh);
  if (!d_chunk.is_same(d_logits)) d_chunk.copy_(d_logits);
}

// The most columns of any rank, since all use the same chunks.
int64_t most_columns(const VocabularyPart& part) {
  const int64_t size = part.share.group->size();
  return (part.whole + size - 1) / size;
}

// What the head and its loss are of.
struct HeadLoss {
  Projection head;
  at::Tensor targets;
  CrossEntropyOptions options;
  std::optional<VocabularyPart> part;
  CountedRows counted;

  int64_t count() const { return targets.size(0); }
  RowCut cut(const at::Tensor& x, bool training) const {
    return options.cut.value_or(cut_rows(x, head, counted.rows.defined() ? counted.count : count(),
                                         part ? most_columns(*part) : head.out_features(),
                                         training));
  }
};

struct Swept {
  at::Tensor loss;  // (1) float32
  at::Tensor d_x;   // undefined if it is not wanted
};

enum class Gradients { None, OfHead, OfHeadAndInput };

// The losses of all rows, chunk by chunk, and their gradients. `own`: this rank's rows.
Swept sweep_rows(const at::Tensor& own, const HeadLoss& of, const RowCut& cut, const ByRow& by_row,
                 Gradients wanted) {
  const auto& [head, targets, options, part, counted] = of;
  const bool training = wanted != Gradients::None;
  const int64_t rows = of.count();
  const at::Tensor x = part ? GatheredRows(part->share, own, rows).finish() : own;
  Projector projector(head, x.scalar_type());
  const bool d_x_wanted = wanted == Gradients::OfHeadAndInput;
  at::Tensor d_x;
  std::optional<SummedRows> d_x_terms;
  if (d_x_wanted && part)
    d_x = d_x_terms.emplace(part->share, rows, x.size(1), x.options()).terms();
  else if (d_x_wanted)
    d_x = at::empty(x.sizes(), x.options().requires_grad(false));
  if (d_x_wanted && counted.rows.defined()) d_x.zero_();
  LossSum loss(x);
  const int64_t num_taken = counted.rows.defined() ? counted.count : rows;
  std::optional<GradientSums> sums;
  if (training && cut.sums_apart) sums.emplace(head.trained());
  const Chunk all{x, targets, options.teacher.tokens, by_row, {}};
  for (int64_t begin = 0; begin < num_taken; begin += cut.piece) {
    const int64_t end = std::min(begin + cut.piece, num_taken);
    const Chunk piece = chunk_of(all, counted, begin, end);
    at::Tensor d_logits;
    at::Tensor inner;
    for (int64_t from = 0; from < end - begin; from += cut.stretch) {
      const int64_t to = std::min(from + cut.stretch, end - begin);
      const Chunk chunk = piece.stretch(from, to);
      projector.start_at(begin + from);
      const at::Tensor logits = projector.forward(chunk.x, at::kFloat, &inner);
      shape_logits(logits, options.form);
      const at::Tensor tanh = training ? tanh_of_cap(logits, options.form.cap) : at::Tensor();
      // Allocated after the first product, whose scratch may be large.
      if (training && !d_logits.defined())
        d_logits = room_for_gradients(piece, head.out_features(), cut);
      if (training && !d_logits.defined()) d_logits = logits;
      const bool in_place = !training || d_logits.is_same(logits);
      const at::Tensor d_chunk = in_place ? d_logits : d_logits.slice(0, from, to);
      auto args = arguments(logits, chunk, options, tanh.defined() ? logits : d_chunk, part);
      at::Tensor at_teachers;
      if (args.top_k > 0) at_teachers = teachers_logits(logits, args, part);
      args.at_teachers = read_pointer<float>(at_teachers);
      if (part)
        loss.add_part(logits, args, *part->share.group);
      else
        loss.add(logits, args);
      if (tanh.defined()) undo_cap(logits, tanh, d_chunk);
    }
    if (by_row.loss.defined() && piece.rows.defined())
      put_rows(by_row.loss.view({-1, 1}), piece.by_row.loss.view({-1, 1}), piece.rows);
    if (!training) continue;
    projector.start_at(begin);
    const at::Tensor d_inner = projector.add_gradients(d_logits, piece.x, inner);
    if (!d_x_wanted) continue;
    // The copy of the selected rows is no longer needed and takes the gradient.
    const at::Tensor d_piece = piece.rows.defined() ? piece.x : d_x.slice(0, begin, end);
    projector.input_gradient(d_logits, d_inner, d_piece);
    if (piece.rows.defined()) put_rows(d_x, d_piece, piece.rows);
  }
  if (sums) sums->finish();
  if (d_x_terms) {
    d_x = at::Tensor();
    d_x_terms->start();
    d_x = d_x_terms->finish();
  }
  return {loss.total(x), d_x};
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const HeadLoss& of,
                            bool training, const std::optional<at::Tensor>& /*trained*/) {
    const Gradients wanted = !training           ? Gradients::None
                             : x.requires_grad() ? Gradients::OfHeadAndInput
                                                 : Gradients::OfHead;
    ByRow by_row;
    if (of.options.teacher.tokens.defined())
      by_row.loss = at::zeros({of.count()}, x.options().dtype(at::kFloat).requires_grad(false));
    const Swept swept = sweep_rows(x, of, of.cut(x, training), by_row, wanted);
    ctx->saved_data["d_x"] = swept.d_x;
    if (!by_row.loss.defined()) return swept.loss;
    return at::cat({swept.loss, by_row.loss.sum().reshape({1})});
  }

  static variable_list backward(AutogradContext* ctx, variable_list /*ones*/) {
    at::Tensor d_x = ctx->saved_data["d_x"].toTensor();
    ctx->saved_data.clear();
    return {d_x, {}, {}, {}};
  }
};

struct LinearLogProbsFunction : torch::autograd::Function<LinearLogProbsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const HeadLoss& of,
                            bool training, const std::optional<at::Tensor>& /*trained*/) {
    const at::Tensor losses = at::zeros({of.count()}, x.options().dtype(at::kFloat));
    RowCut cut = of.cut(x, training);
    cut.piece = cut.stretch;  // nothing is gained by larger ones without gradients
    sweep_rows(x, of, cut, {.loss = losses}, Gradients::None);
    if (training) {
      carry(ctx, of);
      keep(ctx, {x});
    }
    return losses.neg_();
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const auto& of = carried<HeadLoss>(ctx);
    const at::Tensor scale = at::neg(gradients[0].contiguous());
    const Swept swept =
        sweep_rows(x, of, of.cut(x, true), {.scale = scale},
                   ctx->needs_input_grad(0) ? Gradients::OfHeadAndInput : Gradients::OfHead);
    return {swept.d_x, {}, {}, {}};
  }
};

void check(const at::Tensor& x, const HeadLoss& of) {
  const auto& [head, targets, options, part, counted] = of;
  SNUG_CHECK(part || x.size(0) == targets.size(0), "{} rows and {} targets", x.size(0),
             targets.size(0));
  SNUG_CHECK(!counted.rows.defined() || (counted.rows.size(0) == targets.size(0) &&
                                         counted.count > 0 && counted.count <= targets.size(0)),
             "{} of {} rows selected", counted.count, targets.size(0));
  const at::Tensor& teacher = options.teacher.tokens;
  SNUG_CHECK(!teacher.defined() || (teacher.dim() == 2 && teacher.size(0) == targets.size(0) &&
                                    teacher.size(1) % 2 == 0 && teacher.is_contiguous() &&
                                    teacher.scalar_type() == at::kFloat),
             "a teacher's {} numbers of {} rows", teacher.numel(), targets.size(0));
  SNUG_CHECK(!counted.rows.defined() || !head.adapter || head.adapter->dropout == 0,
             "rows cannot be selected for a head with dropout");
}

}  // namespace

// The 16-bit gradients of an outer chunk's logits take 2 bytes per row and token of the vocabulary.
// Several outer chunks also need 4 bytes per element of the weight, to sum in float32; so all rows
// form one chunk as long as that takes no more memory.
RowCut cut_rows(const at::Tensor& x, const Projection& head, int64_t rows, int64_t columns,
                bool training) {
  const auto rows_of = [&](int64_t bytes, int64_t least, int64_t most) {
    return std::clamp<int64_t>(bytes / (columns * 4) / 16 * 16, least, most);
  };
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  const bool on_gpu = kernel_device(x) == at::kCUDA;
  if (!on_gpu || !training) {
    const int64_t untrained = on_gpu ? kUntrainedGpuRows : kUntrainedRows;
    const int64_t stretch = rows_of(kLogitBytes, 16, training ? kAny : untrained);
    return {stretch, stretch};
  }
  RowCut cut;
  cut.stretch = cut.piece = rows_of(kGpuLogitBytes, kFewestGpuRows, kAny);
  // Float32 gradients overwrite the logits, and an adapter's gradients are small, so one chunk
  // would save nothing.
  if (head.trains_weight() && !head.adapter && operand_type(x) != at::kFloat) {
    const bool is_float = head.weight.data.scalar_type() == at::kFloat;
    const int64_t one_piece = kPieceRows + (is_float ? 0 : 2 * head.in_features());
    cut.piece = rows <= one_piece ? rows : std::max(kPieceRows, cut.stretch);
  }
  cut.sums_apart = rows > cut.piece && head.any_trained().has_value();
  return cut;
}

void shape_logits(const at::Tensor& products, const LogitForm& form) {
  if (form.scale != 1) products.mul_(form.scale);
  if (form.cap > 0) products.div_(form.cap).tanh_().mul_(form.cap);
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const Projection& head,
                                const at::Tensor& targets, const CrossEntropyOptions& options,
                                const std::optional<VocabularyPart>& part,
                                const CountedRows& counted) {
  const HeadLoss of{head, targets, options, part, counted};
  check(x, of);
  return LinearCrossEntropyFunction::apply(x, of, at::GradMode::is_enabled(), head.any_trained());
}

at::Tensor linear_log_probs(const at::Tensor& x, const Projection& head, const at::Tensor& targets,
                            const LogProbsOptions& options,
                            const std::optional<VocabularyPart>& part, const CountedRows& counted) {
  const HeadLoss of{
      head,
      targets,
      {.ignore_index = options.ignore_index, .form = options.form, .cut = options.cut},
      part,
      counted};
  check(x, of);
  return LinearLogProbsFunction::apply(x, of, at::GradMode::is_enabled(), head.any_trained());
}

}  // namespace snug::ops
