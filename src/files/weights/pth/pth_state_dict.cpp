// SPDX-License-Identifier: Apache-2.0
#include "files/weights/pth/pth_state_dict.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "files/weights/byte_reader.h"

namespace snug::files {
namespace {

using Kind = PickleValue::Kind;

constexpr int kMaxNesting = 4;

bool holds_tensors(const Pickle& pickle, const PickleValue& dict) {
  for (size_t i = 1; i < dict.items.size(); i += 2)
    if (pickle[dict.items[i]].kind == Kind::Tensor) return true;
  return false;
}

const PickleValue* member(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue &name = pickle[dict.items[i]], &value = pickle[dict.items[i + 1]];
    if (name.kind == Kind::Text && name.text == key && value.kind == Kind::Dict) return &value;
  }
  return nullptr;
}

std::string show_keys(const Pickle& pickle, const PickleValue& dict) {
  constexpr size_t kShown = 8;
  std::string shown;
  for (size_t i = 0; i < dict.items.size() && i < 2 * kShown; i += 2)
    shown += fmt::format("{}\"{}\"", i > 0 ? ", " : "", printable(pickle[dict.items[i]].text, 40));
  return shown.empty() ? "nothing" : shown;
}

const PickleValue& find_state_dict(const Pickle& pickle, const std::string& label) {
  const PickleValue* dict = &pickle[pickle.root];
  for (int depth = 0; depth < kMaxNesting && dict->kind == Kind::Dict; ++depth) {
    if (holds_tensors(pickle, *dict)) return *dict;
    const PickleValue* inner = nullptr;
    for (const char* key : {"model", "state_dict", "model_state_dict", "module"})
      if (inner == nullptr) inner = member(pickle, *dict, key);
    if (inner == nullptr) break;
    dict = inner;
  }
  throw UserError(
      "{}: no state dict found: it must be a dictionary of tensors, at the top or under \"model\", "
      "\"state_dict\", \"model_state_dict\" or \"module\", and the file has {}",
      label, show_keys(pickle, *dict));
}

std::vector<int64_t> integers(const Pickle& pickle, PickleId tuple) {
  std::vector<int64_t> values;
  for (const PickleId id : pickle[tuple].items) {
    if (pickle[id].kind != Kind::Integer || pickle[id].integer < 0)
      throw UserError("its shape or strides are not all whole numbers; the file is damaged");
    values.push_back(pickle[id].integer);
  }
  return values;
}

bool is_row_major(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

// The number of storage elements up to and including the tensor's last element; empty on overflow.
std::optional<int64_t> reach(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                             int64_t offset) {
  int64_t last = offset;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t step = 0;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &step) ||
        __builtin_add_overflow(last, step, &last))
      return {};
  }
  if (last == INT64_MAX) return {};
  return last + 1;
}

PlacedTensor place(const Pickle& pickle, const PickleValue& tensor, std::string name,
                   const Storages& storages) {
  const PickleValue& storage = pickle[tensor.items[0]];
  const std::string key = storage.items.empty()
                              ? std::string(storage.text)
                              : std::to_string(pickle[storage.items.front()].integer);
  const auto found = storages.find(key);
  if (found == storages.end())
    throw UserError("its storage \"{}\" is not in the file; the file is damaged, fetch it again",
                    printable(key, 40));
  PlacedTensor placed;
  placed.strides = integers(pickle, tensor.items[2]);
  placed.info = make_tensor_info(std::move(name), tensor.dtype, integers(pickle, tensor.items[1]));
  const std::vector<int64_t>& shape = placed.info.shape;
  const int64_t width = layout(tensor.dtype).block_bytes;
  if (shape.size() != placed.strides.size() || tensor.integer < 0)
    throw UserError("it has {} sizes, {} strides and offset {}; the file is damaged", shape.size(),
                    placed.strides.size(), tensor.integer);
  const int64_t elements = static_cast<int64_t>(found->second.bytes) / width;
  if (storage.integer > elements)
    throw UserError("its storage claims {} elements and has {}; the file is damaged or truncated",
                    storage.integer, elements);
  const int64_t count = placed.info.num_elements();
  if (count > 0) {
    const auto end = reach(shape, placed.strides, tensor.integer);
    if (!end || *end > storage.integer || count > storage.integer)
      throw UserError(
          "shape {} with strides {} and offset {} exceeds the {} elements of its storage; the "
          "file is damaged",
          show_shape(shape), show_shape(placed.strides), tensor.integer, storage.integer);
    placed.offset = found->second.offset + static_cast<size_t>(tensor.integer * width);
  }
  if (count == 0 || is_row_major(shape, placed.strides)) placed.strides.clear();
  return placed;
}

}  // namespace

std::vector<PlacedTensor> place_state_dict(const Pickle& pickle, const Storages& storages,
                                           const std::string& label) {
  const PickleValue& dict = find_state_dict(pickle, label);
  std::vector<PlacedTensor> tensors;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue &key = pickle[dict.items[i]], &value = pickle[dict.items[i + 1]];
    if (value.kind != Kind::Tensor) continue;
    if (key.kind != Kind::Text || find_invalid_utf8(key.text) != std::string_view::npos)
      throw UserError("{}: a tensor's name \"{}\" is not a valid text; the file is damaged", label,
                      printable(key.text));
    tensors.push_back(
        with_context(fmt::format("{}: tensor \"{}\"", label, printable(key.text)),
                     [&] { return place(pickle, value, std::string(key.text), storages); }));
  }
  return tensors;
}

}  // namespace snug::files
