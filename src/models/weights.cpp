// A checkpoint's tensors into a model's parameters, quantized on the way where they are to be.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/error.h"
#include "kernels/cpu/quantized.h"
#include "models/family.h"
#include "ops/device.h"

namespace snug::models {
namespace {

formats::DType dtype_of(at::ScalarType type) {
  if (type == at::kFloat) return formats::DType::F32;
  return type == at::kBFloat16 ? formats::DType::BF16 : formats::DType::F16;
}

// From GGUF's order of rows within a head (pairs) to ours (halves): ours[j] = theirs[2j],
// ours[d/2 + j] = theirs[2j + 1]. In place over a contiguous (heads * d, columns).
void split_pairs(const at::Tensor& value, int64_t heads) {
  const at::Tensor flat = value.detach();
  const int64_t d = flat.size(0) / heads;
  const int64_t columns = flat.numel() / flat.size(0);
  flat.copy_(flat.view({heads, d / 2, 2, columns}).transpose(1, 2).contiguous().view_as(flat));
}

void check_shape(const formats::TensorInfo& found, const nn::Parameter& parameter,
                 const Placement& place, const Checkpoint& checkpoint) {
  const int64_t columns = std::accumulate(parameter.shape.begin() + 1, parameter.shape.end(),
                                          int64_t{1}, std::multiplies<>());
  const int64_t found_columns = found.shape.empty()
                                    ? 1
                                    : std::accumulate(found.shape.begin() + 1, found.shape.end(),
                                                      int64_t{1}, std::multiplies<>());
  const bool whole = place.row_begin == 0 && found.shape == parameter.shape;
  const bool slice =
      !found.shape.empty() && found.shape.size() == parameter.shape.size() &&
      found_columns == columns && place.row_begin + parameter.shape[0] <= found.shape[0] &&
      checkpoint.layout == Layout::LitGpt && place.tensor.find("qkv") != std::string::npos;
  if (!whole && !slice)
    throw UserError("{}: tensor {} has shape {}, the config asks for {}", checkpoint.path.string(),
                    place.tensor, formats::show_shape(found.shape),
                    formats::show_shape(parameter.shape));
}

// Where a parameter's elements are in the checkpoint's files.
struct Found {
  const formats::TensorInfo& tensor;
  Placement place;
  int64_t begin = 0, count = 0;  // elements of the tensor, row by row
};

Found find(const Checkpoint& checkpoint, const nn::Parameter& parameter) {
  Placement place = checkpoint.model->placement(checkpoint.layout, parameter);
  const formats::TensorInfo* tensor = checkpoint.tensors->find(place.tensor);
  if (tensor == nullptr)
    throw UserError("{}: tensor {} is missing from {}", checkpoint.path.string(), place.tensor,
                    checkpoint.tensors->describe());
  check_shape(*tensor, parameter, place, checkpoint);
  const int64_t count = parameter.num_elements();
  const int64_t begin = place.row_begin * (count / parameter.shape[0]);
  return {*tensor, std::move(place), begin, count};
}

// Into host memory of a floating type.
void read_into(const at::Tensor& host, const Checkpoint& checkpoint, const Found& found) {
  checkpoint.tensors->read(found.tensor, dtype_of(host.scalar_type()), host.mutable_data_ptr(),
                           found.begin, found.count);
  checkpoint.tensors->release(found.tensor);
  if (found.place.paired_heads > 0) split_pairs(host, found.place.paired_heads);
}

// Quantizes the elements as they come from the file: straight from its pages where those hold the
// type that is asked for, else a stretch at a time.
void quantize_from(const Checkpoint& checkpoint, const Found& found, at::ScalarType type,
                   kernels::cpu::Quantizer& quantizer) {
  const formats::DType wanted = dtype_of(type);
  const auto scalar = ops::to_scalar(type);
  const std::span<const std::byte> raw = checkpoint.tensors->raw(found.tensor);
  if (found.place.paired_heads > 0) {
    const at::Tensor whole = at::empty({found.tensor.shape}, at::TensorOptions().dtype(type));
    read_into(whole, checkpoint, found);
    quantizer.add(whole.const_data_ptr(), scalar, found.count);
  } else if (!raw.empty() && found.tensor.dtype == wanted) {
    quantizer.add(raw.data() + formats::bytes_for(wanted, found.begin), scalar, found.count);
    checkpoint.tensors->release(found.tensor);
  } else {
    constexpr int64_t kStretch = int64_t{1} << 22;
    const at::Tensor part = at::empty({kStretch}, at::TensorOptions().dtype(type));
    for (int64_t done = 0; done < found.count; done += kStretch) {
      const int64_t count = std::min(kStretch, found.count - done);
      checkpoint.tensors->read(found.tensor, wanted, part.mutable_data_ptr(), found.begin + done,
                               count);
      quantizer.add(part.const_data_ptr(), scalar, count);
    }
    checkpoint.tensors->release(found.tensor);
  }
  quantizer.finish();
}

void load(const nn::Parameter& parameter, const Checkpoint& checkpoint) {
  const Found found = find(checkpoint, parameter);
  const at::Tensor& value = parameter.kept();
  // For a value in a device's memory the file is read beside it, one tensor at a time.
  const at::Tensor host =
      value.is_cpu() ? value : at::empty(value.sizes(), at::TensorOptions().dtype(value.dtype()));
  if (parameter.quantization) {
    kernels::cpu::Quantizer quantizer(parameter.quantization->format, parameter.shape[0],
                                      parameter.shape[1], host.mutable_data_ptr());
    quantize_from(checkpoint, found, parameter.quantization->source, quantizer);
  } else {
    read_into(host, checkpoint, found);
  }
  if (!value.is_cpu()) value.detach().copy_(host);
}

}  // namespace

at::Tensor join_pairs(const at::Tensor& value, int64_t heads) {
  const int64_t d = value.size(0) / heads;
  const int64_t columns = value.numel() / value.size(0);
  return value.view({heads, 2, d / 2, columns}).transpose(1, 2).contiguous().view_as(value);
}

void load_weights(Checkpoint& checkpoint) {
  for (const nn::Parameter* parameter : checkpoint.model->parameters())
    if (!parameter->added && !parameter->kept().is_meta()) load(*parameter, checkpoint);
}

at::Tensor read_parameter(const Checkpoint& checkpoint, const nn::Parameter& parameter,
                          at::ScalarType type) {
  at::Tensor value = at::empty(parameter.shape, at::TensorOptions().dtype(type));
  read_into(value, checkpoint, find(checkpoint, parameter));
  return value;
}

}  // namespace snug::models
