// SPDX-License-Identifier: Apache-2.0
#include "engine/export/file_tensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/weights/gguf/mix.h"
#include "models/family.h"

namespace snug::engine {
namespace {

// A tensor of the file, put together from its parameters.
at::Tensor value_of(const FilePart& part, const ParameterReader& read) {
  at::Tensor value = read(*part.parameter).detach().narrow(0, part.first_row, part.num_rows);
  value = (part.type ? value.to(*part.type) : value).contiguous();
  if (part.place.added != 0) value = value.add(part.place.added);
  value = models::in_order(part.place.order, value);
  return part.place.transposed ? value.t().contiguous() : value;
}

}  // namespace

FileTensors arrange(models::Model& model, models::Layout layout,
                    std::optional<at::ScalarType> type) {
  if (layout != models::Layout::HuggingFace && !model.labels().empty())
    throw UserError(
        "a model that scores documents is written as a Hugging Face directory (--to hf) only: GGUF "
        "and LitGPT files are of language models");
  FileTensors result;
  std::vector<std::string> order;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->is_added()) continue;
    const models::Placement place = model.placement(layout, *parameter);
    const bool stays_float =
        parameter->constant || (layout == models::Layout::Gguf &&
                                files::stays_float32(place.tensor, parameter->shape.size()));
    const int64_t rows = parameter->whole_shape()[0] / (place.second_half.empty() ? 1 : 2);
    const auto add = [&](const std::string& tensor, int64_t first_row) {
      auto& parts = result.parts[tensor];
      if (parts.empty()) order.push_back(tensor);
      // Units list q, k, v in the order in which they are fused.
      parts.push_back(
          {parameter, stays_float ? std::optional(at::kFloat) : type, place, first_row, rows});
    };
    add(place.tensor, 0);
    if (!place.second_half.empty()) add(place.second_half, rows);
  }
  for (const std::string& name : order) {
    const auto& parts = result.parts[name];
    const FilePart& first = parts.front();
    std::vector<int64_t> shape =
        first.place.shape.empty() ? first.parameter->whole_shape() : first.place.shape;
    if (first.place.shape.empty()) shape[0] = first.num_rows;
    if (first.place.stacked == 0)
      for (size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i].num_rows;
    if (first.place.transposed) std::ranges::reverse(shape);
    if (first.place.stacked > 0) shape.insert(shape.begin(), first.place.stacked);
    result.infos.push_back(files::make_tensor_info(
        name, checkpoint::dtype_of(first.type.value_or(at::kFloat)), shape));
  }
  return result;
}

at::Tensor value_of(const std::vector<FilePart>& parts, const ParameterReader& read) {
  at::Tensor first = value_of(parts.front(), read);
  if (parts.size() == 1) return first;
  if (const int64_t count = parts.front().place.stacked; count > 0) {
    // One by one: together they may be gigabytes.
    std::vector<int64_t> shape = first.sizes().vec();
    shape.insert(shape.begin(), count);
    at::Tensor stack = at::empty(shape, first.options());
    stack.select(0, parts.front().place.index).copy_(std::exchange(first, {}));
    for (size_t i = 1; i < parts.size(); ++i)
      stack.select(0, parts[i].place.index).copy_(value_of(parts[i], read));
    return stack;
  }
  // Into place one by one: those of all experts may be gigabytes.
  std::vector<int64_t> shape = first.sizes().vec();
  shape[0] = 0;
  for (const FilePart& part : parts) shape[0] += part.num_rows;
  at::Tensor whole = at::empty(shape, first.options());
  int64_t row = first.size(0);
  whole.narrow(0, 0, row).copy_(std::exchange(first, {}));
  for (size_t i = 1; i < parts.size(); row += parts[i++].num_rows)
    whole.narrow(0, row, parts[i].num_rows).copy_(value_of(parts[i], read));
  return whole;
}

files::TensorBytes byte_source(const FileTensors& tensors, const ParameterReader& read) {
  return [&tensors, read, held = at::Tensor()](const files::TensorInfo& info) mutable {
    held.reset();
    held = value_of(tensors.parts.at(info.name), read);
    return checkpoint::bytes_of(held);
  };
}

}  // namespace snug::engine
