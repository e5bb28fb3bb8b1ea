// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "kernels/cpu/cross_entropy.h"
#include "memory/guards.h"
#include "ops/cuda.h"
#include "ops/device.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/matmul.h"
#include "ops/pictures.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows whose float32 logits are about 64 MiB: enough that adding to the weight's gradient, once per
// chunk, is small beside the products; small beside the activations of any real batch. Without a
// gradient nothing is added and fewer will do: a validation, which may have more targets than any
// micro-batch that is trained on, needs no more memory than training does.
int64_t rows_per_chunk(int64_t vocabulary, bool training) {
  const int64_t most = training ? std::numeric_limits<int64_t>::max() : 64;
  return std::clamp<int64_t>(64 * kMiB / (vocabulary * 4) / 16 * 16, 16, most);
}

struct Chunk {
  at::Tensor x;        // (C, D)
  at::Tensor targets;  // (C)
  at::Tensor rows;     // (C): which they are, where x is a copy of rows that were picked
};

Chunk chunk_of(const at::Tensor& x, const at::Tensor& targets, const CountedRows& counted,
               int64_t begin, int64_t end) {
  if (!counted.rows.defined()) return {x.slice(0, begin, end), targets.slice(0, begin, end), {}};
  const at::Tensor rows = counted.rows.slice(0, begin, end);
  const at::Tensor picked = at::empty({end - begin, x.size(1)}, x.options().requires_grad(false));
  look_up(picked, rows, x.contiguous(), {});
  return {picked, counted.targets.slice(0, begin, end), rows};
}

// Where `d_logits` is defined, the gradient goes into it; it may be the logits themselves.
kernels::cpu::CrossEntropy arguments(const at::Tensor& logits, const Chunk& chunk,
                                     const CrossEntropyOptions& options, const at::Tensor& d_logits,
                                     const std::optional<VocabularyPart>& part) {
  return {.rows = logits.size(0),
          .vocabulary = logits.size(1),
          .logits = write_pointer<float>(logits),
          .targets = read_pointer<int32_t>(chunk.targets),
          .ignore_index = static_cast<int32_t>(options.ignore_index),
          .scale = static_cast<float>(options.scale),
          .label_smoothing = static_cast<float>(options.label_smoothing),
          .z_loss = static_cast<float>(options.z_loss),
          .need_gradient = d_logits.defined(),
          .gradient = d_logits.is_same(logits) ? nullptr : write_pointer(d_logits),
          .gradient_type = to_scalar(d_logits.defined() ? d_logits.scalar_type() : at::kFloat),
          .first = part ? part->first : 0,
          .whole_vocabulary = part ? part->whole : 0};
}

// Adds the chunks' losses up where they are computed: on the host, or in the device's memory,
// so that nothing waits.
class LossSum {
 public:
  explicit LossSum(const at::Tensor& x) {
    if (kernel_device(x) == at::kCUDA)
      on_device_ = at::zeros({cuda::kCrossEntropyTotals}, x.options().dtype(at::kDouble));
  }

  // The loss of a chunk's logits (C, V).
  void add(const at::Tensor& logits, const kernels::cpu::CrossEntropy& args) {
    if (on_device_.defined())
      with_workspace(logits, cuda::cross_entropy_workspace_bytes(args.rows), [&](void* scratch) {
        cuda::cross_entropy(args, on_device_.mutable_data_ptr<double>(), scratch);
      });
    else if (!logits.is_meta())
      on_host_ += kernels::cpu::cross_entropy(args).loss_sum;
  }

  // The same of a part of their columns.
  void add_part(const at::Tensor& logits, const kernels::cpu::CrossEntropy& args,
                dist::Group& group) {
    const bool on_device = on_device_.defined();
    const int64_t scratch_bytes = on_device
                                      ? cuda::cross_entropy_workspace_bytes(args.rows)
                                      : kernels::cpu::cross_entropy_part_scratch_bytes(args.rows);
    const at::Tensor scratch = at::empty({scratch_bytes}, logits.options().dtype(at::kByte));
    const at::Tensor all = sums_of_all(logits, group);
    const at::Tensor own = all.select(0, group.rank());
    if (!logits.is_meta() && on_device)
      cuda::cross_entropy_part_sums(args, write_sums(own));
    else if (!logits.is_meta())
      kernels::cpu::cross_entropy_part_sums(args, write_sums(own), scratch.mutable_data_ptr());
    group.wait(group.all_gather(all, own));
    if (!logits.is_meta() && on_device)
      cuda::cross_entropy_of_parts(args, write_sums(all), group.size(),
                                   on_device_.mutable_data_ptr<double>(),
                                   scratch.mutable_data_ptr());
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
    return at::empty({group.size(), logits.size(0), kernels::cpu::kPartSums},
                     logits.options().dtype(at::kDouble));
  }
  static kernels::cpu::CrossEntropyPartSums* write_sums(const at::Tensor& sums) {
    return reinterpret_cast<kernels::cpu::CrossEntropyPartSums*>(sums.mutable_data_ptr<double>());
  }

  double on_host_ = 0;
  at::Tensor on_device_;
};

// Where the gradient of the logits goes: over them, unless products want another type.
at::Tensor gradient_of(const at::Tensor& logits, const at::Tensor& x) {
  const at::ScalarType type = operand_type(x);
  return type == at::kFloat ? logits : at::empty(logits.sizes(), logits.options().dtype(type));
}

// Of any rank: all go through the same chunks.
int64_t most_columns(const VocabularyPart& part) {
  const int64_t size = part.share.group->size();
  return (part.whole + size - 1) / size;
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& own, const Projection& head,
                            const at::Tensor& targets, const CrossEntropyOptions& options,
                            const std::optional<VocabularyPart>& part, const CountedRows& counted,
                            bool training, const std::optional<at::Tensor>& /*trained*/) {
    const int64_t rows = targets.size(0);
    const at::Tensor x = part ? GatheredRows(part->share, own, rows).finish() : own;
    Projector projector(head, x.scalar_type());
    const bool d_x_wanted = training && own.requires_grad();
    at::Tensor d_x;
    std::optional<SummedRows> d_x_terms;
    if (d_x_wanted && part)
      d_x = d_x_terms.emplace(part->share, rows, x.size(1), x.options()).terms();
    else if (d_x_wanted)
      d_x = at::empty(x.sizes(), x.options().requires_grad(false));
    if (d_x_wanted && counted.rows.defined()) d_x.zero_();
    LossSum loss(x);
    const int64_t step = rows_per_chunk(part ? most_columns(*part) : head.out_features(), training);
    const int64_t num_taken = counted.rows.defined() ? counted.count : rows;
    for (int64_t begin = 0; begin < num_taken; begin += step) {
      const int64_t end = std::min(begin + step, num_taken);
      const Chunk chunk = chunk_of(x, targets, counted, begin, end);
      projector.start_at(begin);
      at::Tensor inner;
      const at::Tensor logits = projector.forward(chunk.x, at::kFloat, &inner);
      const at::Tensor d_logits = training ? gradient_of(logits, chunk.x) : at::Tensor();
      const auto args = arguments(logits, chunk, options, d_logits, part);
      if (part)
        loss.add_part(logits, args, *part->share.group);
      else
        loss.add(logits, args);
      if (!training) continue;
      const at::Tensor d_inner = projector.add_gradients(d_logits, chunk.x, inner);
      if (!d_x_wanted) continue;
      // Picked rows have been read: their copy takes the gradient.
      const at::Tensor d_chunk = chunk.rows.defined() ? chunk.x : d_x.slice(0, begin, end);
      projector.input_gradient(d_logits, d_inner, d_chunk);
      if (chunk.rows.defined()) put_rows(d_x, d_chunk, chunk.rows);
    }
    if (d_x_terms) {
      d_x = at::Tensor();
      d_x_terms->start();
      d_x = d_x_terms->finish();
    }
    ctx->saved_data["d_x"] = d_x;
    return loss.total(x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list /*ones*/) {
    at::Tensor d_x = ctx->saved_data["d_x"].toTensor();
    ctx->saved_data.clear();
    return {d_x, {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const Projection& head,
                                const at::Tensor& targets, const CrossEntropyOptions& options,
                                const std::optional<VocabularyPart>& part,
                                const CountedRows& counted) {
  SNUG_CHECK(part || x.size(0) == targets.size(0), "{} rows and {} targets", x.size(0),
             targets.size(0));
  SNUG_CHECK(!counted.rows.defined() || (counted.rows.size(0) == targets.size(0) &&
                                         counted.count > 0 && counted.count <= targets.size(0)),
             "{} of {} rows picked", counted.count, targets.size(0));
  SNUG_CHECK(!counted.rows.defined() || !head.adapter || head.adapter->dropout == 0,
             "rows picked for a head with dropout");
  return LinearCrossEntropyFunction::apply(x, head, targets, options, part, counted,
                                           at::GradMode::is_enabled(), head.any_trained());
}

}  // namespace snug::ops
