// The tensors of a file to be written, each with the parameters that it is made of.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/export/export.h"
#include "files/weights/dtype.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/model.h"

namespace snug::engine {

struct FilePart {
  const nn::Parameter* parameter;
  std::optional<at::ScalarType> type;  // none: as it was read
  models::Placement place;
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

// In file order.
struct FileTensors {
  std::vector<files::TensorInfo> infos;
  std::map<std::string, std::vector<FilePart>> parts;
};

// The tensors of a model in `layout`, as `type`; none: as they are read. Vectors of GGUF files and
// their like are float32.
FileTensors arrange(models::Model& model, models::Layout layout,
                    std::optional<at::ScalarType> type);

// A tensor's value, put together from its parameters.
at::Tensor value_of(const std::vector<FilePart>& parts, const ParameterReader& read);

// Reads one file tensor at a time; the span is valid until the next call.
files::TensorBytes byte_source(const FileTensors& tensors, const ParameterReader& read);

}  // namespace snug::engine
