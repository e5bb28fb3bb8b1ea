// Writes a language model back into the model of several parts that it belongs to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ScalarType.h>

#include <memory>

#include "engine/export/file_tensors.h"
#include "models/whole_model.h"

namespace snug::engine {

// The tensors of a language model (arrange(), for Hugging Face), by the whole's names and with its
// tensors for all experts.
FileTensors in_whole(const FileTensors& language, const models::WholeModel& whole);

// The other parts' tensors in the order of their files, read one at a time.
class OtherParts {
 public:
  // `type`: of those that another program quantized; others stay as they are. Throws UserError if
  // the files are gone.
  OtherParts(const models::WholeModel& whole, at::ScalarType type);

  const std::vector<files::TensorInfo>& infos() const { return infos_; }
  // Valid until the next call.
  std::span<const std::byte> bytes(const files::TensorInfo& tensor);

 private:
  std::unique_ptr<files::TensorSource> source_;
  std::vector<files::TensorInfo> infos_;
  std::vector<std::byte> held_;
};

}  // namespace snug::engine
