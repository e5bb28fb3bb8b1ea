// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "files/weights/packed/layouts.h"

namespace snug::files {
namespace {

constexpr size_t kNumCodes = 16, kNumNestedCodes = 256;

// Both steps are rounded to float32, as bitsandbytes rounds them.
class FourBits : public PackedValues {
 public:
  FourBits(BitsAndBytesParts own, int64_t cols) : own_(std::move(own)), cols_(cols) {}

  const BitsAndBytesParts* bits_and_bytes() const override { return &own_; }

  void read_rows(int64_t first, int64_t count, float* out) const override {
    const int64_t end = (first + count) * cols_;
    for (int64_t element = first * cols_; element < end;) {
      const int64_t block = element / own_.block;
      const float scale = scale_of(block);
      for (const int64_t stop = std::min(end, (block + 1) * own_.block); element < stop; ++element)
        *out++ = own_.codes[code_of(element)] * scale;
    }
  }

 private:
  size_t code_of(int64_t element) const {
    const auto both = static_cast<uint8_t>(own_.weight[static_cast<size_t>(element / 2)]);
    return element % 2 == 0 ? both >> 4 : both & 15;
  }

  float scale_of(int64_t block) const {
    if (own_.nested_scales.empty()) return float_at(own_.scales, block);
    const auto code = static_cast<uint8_t>(own_.scales[static_cast<size_t>(block)]);
    const float product =
        own_.nested_codes[code] * float_at(own_.nested_scales, block / own_.nested_block);
    return product + own_.mean;
  }

  static float float_at(std::span<const std::byte> bytes, int64_t index) {
    float value = 0;
    std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof(float), sizeof(float));
    return value;
  }

  BitsAndBytesParts own_;
  int64_t cols_;
};

class EightBits : public PackedValues {
 public:
  EightBits(BitsAndBytesParts own, PackedPart scales)
      : own_(std::move(own)), scales_(std::move(scales)) {}

  const BitsAndBytesParts* bits_and_bytes() const override { return &own_; }

  void read_rows(int64_t first, int64_t count, float* out) const override {
    constexpr float kStep = 7.874015718698502e-3f;  // a 127th
    const auto* codes = reinterpret_cast<const int8_t*>(own_.weight.data()) + first * own_.block;
    for (int64_t row = first; row < first + count; ++row) {
      const float scale = scales_.number(row);
      for (int64_t col = 0; col < own_.block; ++col)
        *out++ = static_cast<float>(*codes++) * scale * kStep;
    }
  }

 private:
  BitsAndBytesParts own_;
  PackedPart scales_;
};

std::span<const std::byte> bytes_of(const PackedPart& part) {
  return {part.bytes, static_cast<size_t>(part.info.nbytes)};
}

std::vector<float> table(const PackedPart& part, size_t size) {
  if (part.info.dtype != DType::F32 || part.info.num_elements() != static_cast<int64_t>(size))
    throw UserError("its table \"{}\" has {} of {} instead of {} of F32", part.shown(),
                    part.info.num_elements(), name(part.info.dtype), size);
  std::vector<float> values(size);
  part.numbers(0, static_cast<int64_t>(size), values.data());
  return values;
}

// The JSON that quantize_4bit's state has beside its tensors.
struct State {
  std::string kind;
  std::vector<int64_t> shape;
  DType dtype = DType::BF16;
  int64_t block = 0, nested_block = 0;
  float mean = 0;
};

std::optional<DType> dtype_named(const std::string& text) {
  if (text == "bfloat16") return DType::BF16;
  if (text == "float16") return DType::F16;
  if (text == "float32") return DType::F32;
  return std::nullopt;
}

State read_state(const ModuleParts& parts) {
  constexpr std::string_view kPrefix = "weight.quant_state.bitsandbytes__";
  constexpr int64_t kMost = 4096;
  const auto found = std::ranges::find_if(
      parts.all(), [&](const auto& part) { return part.first.starts_with(kPrefix); });
  if (found == parts.all().end())
    throw UserError(
        "its tensor {}nf4 (or fp4) is missing; save the model anew with bitsandbytes "
        "0.42 or later",
        kPrefix);
  State state;
  state.kind = found->first.substr(kPrefix.size());
  const PackedPart& text = found->second;
  const auto fault = [&](const std::string& what) {
    return UserError("its quantization state ({}) {}", text.shown(), what);
  };
  if (text.info.nbytes > kMost) throw fault("is no short JSON");
  const auto* letters = reinterpret_cast<const char*>(text.bytes);
  const nlohmann::json json =
      nlohmann::json::parse(letters, letters + text.info.nbytes, nullptr, false);
  if (!json.is_object()) throw fault("is no JSON object");
  const auto whole = [&](const char* key, int64_t otherwise) {
    const auto value = json.find(key);
    if (value == json.end()) return otherwise;
    if (!value->is_number_integer() || *value < 1 || *value > (1 << 20))
      throw fault(fmt::format("has no sensible {}", key));
    return value->get<int64_t>();
  };
  state.block = whole("blocksize", 64);
  state.nested_block = whole("nested_blocksize", 256);
  if (const auto offset = json.find("nested_offset"); offset != json.end() && offset->is_number())
    state.mean = offset->get<float>();
  const auto dtype = json.find("dtype");
  if (dtype != json.end() && dtype->is_string())
    state.dtype = dtype_named(dtype->get<std::string>()).value_or(DType::BF16);
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array() || shape->size() != 2)
    throw fault("has no shape of rows and columns");
  for (const auto& size : *shape) {
    if (!size.is_number_integer() || size < 1) throw fault("has no shape of rows and columns");
    state.shape.push_back(size.get<int64_t>());
  }
  return state;
}

}  // namespace

Unpacked unpack_bits_and_bytes_4(const ModuleParts& parts) {
  const State state = read_state(parts);
  if (state.kind != "nf4" && state.kind != "fp4")
    throw UserError("its 4 bits are of the kind {}; snug reads nf4 and fp4", printable(state.kind));
  const PackedPart &weight = parts["weight"], &scales = parts["weight.absmax"];
  const int64_t elements = count_elements(state.shape);
  const int64_t blocks = (elements + state.block - 1) / state.block;
  const PackedPart* nested = parts.find("weight.nested_absmax");
  // Of any type: bnb_4bit_quant_storage keeps the same bytes as others for FSDP.
  if (weight.info.nbytes != (elements + 1) / 2)
    throw UserError("its state says {}, which is {} bytes; the file has {} of {}",
                    show_shape(state.shape), (elements + 1) / 2, weight.info.nbytes,
                    name(weight.info.dtype));
  const DType of_scales = nested != nullptr ? DType::U8 : DType::F32;
  if (scales.info.dtype != of_scales || scales.info.num_elements() != blocks)
    throw UserError("its absmax has {} of {} instead of {} of {}", scales.info.num_elements(),
                    name(scales.info.dtype), blocks, name(of_scales));
  BitsAndBytesParts own{.kind = state.kind,
                        .codes = table(parts["weight.quant_map"], kNumCodes),
                        .block = state.block,
                        .weight = bytes_of(weight),
                        .scales = bytes_of(scales)};
  if (nested != nullptr) {
    const int64_t wanted = (blocks + state.nested_block - 1) / state.nested_block;
    if (nested->info.dtype != DType::F32 || nested->info.num_elements() != wanted)
      throw UserError("its nested_absmax has {} of {} instead of {} of F32",
                      nested->info.num_elements(), name(nested->info.dtype), wanted);
    own.nested_scales = bytes_of(*nested);
    own.nested_codes = table(parts["weight.nested_quant_map"], kNumNestedCodes);
    own.nested_block = state.nested_block;
    own.mean = state.mean;
  }
  return {state.shape, state.dtype, std::make_shared<FourBits>(std::move(own), state.shape[1])};
}

Unpacked unpack_bits_and_bytes_8(const ModuleParts& parts, const PackingOptions& options) {
  const PackedPart &weight = parts["weight"], &scales = parts["SCB"];
  if (weight.info.shape.size() != 2 || weight.info.dtype != DType::I8 ||
      scales.info.dtype != DType::F32 || scales.info.num_elements() != weight.rows())
    throw UserError("its SCB has {} of {} for a weight of {}; it should have a number of F32 a row",
                    scales.info.num_elements(), name(scales.info.dtype),
                    show_shape(weight.info.shape));
  if (const PackedPart* format = parts.find("weight_format");
      format != nullptr && format->info.num_elements() == 1 && format->number(0) != 0)
    throw UserError(
        "its rows are in an order of a GPU's own (weight_format {}); load the model "
        "with transformers and save it again, which writes them row by row",
        format->number(0));
  BitsAndBytesParts own{.kind = "int8",
                        .block = weight.row_elements(),
                        .weight = bytes_of(weight),
                        .scales = bytes_of(scales)};
  return {weight.info.shape, options.dtype, std::make_shared<EightBits>(std::move(own), scales)};
}

}  // namespace snug::files
