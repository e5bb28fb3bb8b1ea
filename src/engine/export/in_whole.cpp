// SPDX-License-Identifier: Apache-2.0
#include "engine/export/in_whole.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/weights/dtype.h"

namespace snug::engine {

namespace {

// A tensor for all experts, from the parts that the language model has by their numbers in it.
struct Joined {
  files::TensorInfo info;
  std::map<int64_t, std::vector<FilePart>> parts;
};

}  // namespace

FileTensors in_whole(const FileTensors& language, const models::WholeModel& whole) {
  FileTensors result;
  std::map<std::string, Joined> joined;
  for (files::TensorInfo info : language.infos) {
    const std::vector<FilePart>& parts = language.parts.at(info.name);
    const auto found = whole.places.find(info.name);
    if (found == whole.places.end() || found->second.shape.empty()) {
      info.name = found == whole.places.end() ? whole.name_of_new(info.name) : found->second.tensor;
      result.parts[info.name] = parts;
      result.infos.push_back(std::move(info));
      continue;
    }
    const models::WholeModel::Place& place = found->second;
    Joined& all = joined[place.tensor];
    if (all.parts.empty()) {
      all.info = files::make_tensor_info(place.tensor, info.dtype, place.shape);
      result.infos.push_back(all.info);
    }
    all.parts[place.index] = parts;
  }
  for (auto& [name, all] : joined)
    for (auto& [_, parts] : all.parts)
      std::ranges::copy(parts, std::back_inserter(result.parts[name]));
  return result;
}

OtherParts::OtherParts(const models::WholeModel& whole, at::ScalarType type)
    : source_(models::open_others(whole)) {
  for (const files::TensorInfo& tensor : source_->tensors()) {
    const bool is_packed = source_->packed(tensor) != nullptr;
    infos_.push_back(files::make_tensor_info(
        tensor.name, is_packed ? checkpoint::dtype_of(type) : tensor.dtype, tensor.shape));
  }
}

std::span<const std::byte> OtherParts::bytes(const files::TensorInfo& tensor) {
  const files::TensorInfo* stored = source_->find(tensor.name);
  SNUG_CHECK(stored != nullptr, "no tensor {}", tensor.name);
  held_.resize(tensor.nbytes);
  source_->read(*stored, tensor.dtype, held_.data());
  source_->release(*stored);
  return held_;
}

}  // namespace snug::engine
