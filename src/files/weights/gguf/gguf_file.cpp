// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "files/weights/byte_reader.h"
#include "files/weights/gguf/gguf.h"

namespace snug::files {
namespace {

template <class T>
T load(std::span<const std::byte> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

bool is_integer(GgufType type) {
  return type <= GgufType::I32 || type == GgufType::U64 || type == GgufType::I64;
}

bool is_number(GgufType type) {
  return is_integer(type) || type == GgufType::F32 || type == GgufType::F64;
}

// Values beyond 63 bits give an empty result.
std::optional<int64_t> integer_at(GgufType type, std::span<const std::byte> bytes, uint64_t index) {
  switch (type) {
    case GgufType::U8:
      return load<uint8_t>(bytes, index);
    case GgufType::I8:
      return load<int8_t>(bytes, index);
    case GgufType::U16:
      return load<uint16_t>(bytes, index);
    case GgufType::I16:
      return load<int16_t>(bytes, index);
    case GgufType::U32:
      return load<uint32_t>(bytes, index);
    case GgufType::I32:
      return load<int32_t>(bytes, index);
    case GgufType::I64:
      return load<int64_t>(bytes, index);
    default:
      break;
  }
  const auto value = load<uint64_t>(bytes, index);
  if (value > INT64_MAX) return {};
  return static_cast<int64_t>(value);
}

double number_at(GgufType type, std::span<const std::byte> bytes, uint64_t index) {
  if (type == GgufType::F32) return load<float>(bytes, index);
  if (type == GgufType::F64) return load<double>(bytes, index);
  if (type == GgufType::U64) return static_cast<double>(load<uint64_t>(bytes, index));
  return static_cast<double>(*integer_at(type, bytes, index));
}

std::string show_element(GgufType type, std::span<const std::byte> bytes, uint64_t index) {
  if (type == GgufType::Bool) return load<uint8_t>(bytes, index) != 0 ? "true" : "false";
  if (type == GgufType::U64) return fmt::format("{}", load<uint64_t>(bytes, index));
  if (is_integer(type)) return fmt::format("{}", *integer_at(type, bytes, index));
  if (type == GgufType::F32) return fmt::format("{}", load<float>(bytes, index));
  return fmt::format("{}", load<double>(bytes, index));
}

std::string show_array(const GgufValue& value) {
  constexpr uint64_t kShown = 4;
  if (value.element == GgufType::Array) return fmt::format("[arrays] ({})", value.count);
  std::string shown;
  for (uint64_t i = 0; i < std::min(value.count, kShown); ++i) {
    if (i > 0) shown += ", ";
    shown += value.element == GgufType::Text ? '"' + printable(value.texts[i], 40) + '"'
                                             : show_element(value.element, value.bytes, i);
  }
  return value.count > kShown ? fmt::format("[{}, …] ({})", shown, value.count)
                              : fmt::format("[{}]", shown);
}

[[noreturn]] void refuse(const std::string& file, std::string_view key, const GgufValue& value,
                         const char* wanted) {
  throw UserError(
      "{}: metadata key \"{}\" = {} should be {}; the file is damaged or made by a "
      "faulty converter",
      file, key, GgufFile::show(value), wanted);
}

}  // namespace

const GgufValue* GgufFile::find_value(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

bool GgufFile::has(std::string_view key) const { return find_value(key) != nullptr; }

bool GgufFile::is_array(std::string_view key) const {
  const GgufValue* value = find_value(key);
  return value != nullptr && value->type == GgufType::Array;
}

const GgufValue& GgufFile::required(std::string_view key) const {
  if (const GgufValue* value = find_value(key)) return *value;
  std::vector<std::string> keys;
  for (const auto& [known, _] : metadata_) keys.push_back(known);
  const std::string near = nearest_name(key, keys);
  throw UserError("{}: metadata key \"{}\" is missing{}; the file may be of another kind of model",
                  label(), key,
                  near.empty() ? "" : fmt::format(" (there is \"{}\")", printable(near)));
}

int64_t GgufFile::integer(std::string_view key, std::optional<int64_t> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const GgufValue& value = required(key);
  if (!is_integer(value.type)) refuse(label(), key, value, "an integer");
  const auto found = integer_at(value.type, value.bytes, 0);
  if (!found) refuse(label(), key, value, "an integer of at most 63 bits");
  return *found;
}

double GgufFile::number(std::string_view key, std::optional<double> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const GgufValue& value = required(key);
  if (!is_number(value.type)) refuse(label(), key, value, "a number");
  return number_at(value.type, value.bytes, 0);
}

double GgufFile::short_number(std::string_view key) const {
  return std::stod(fmt::format("{:.6g}", number(key)));
}

std::string GgufFile::text(std::string_view key, std::optional<std::string> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const GgufValue& value = required(key);
  if (value.type != GgufType::Text) refuse(label(), key, value, "a text");
  return std::string(as_text(value.bytes));
}

bool GgufFile::boolean(std::string_view key, std::optional<bool> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const GgufValue& value = required(key);
  if (value.type != GgufType::Bool) refuse(label(), key, value, "true or false");
  return load<uint8_t>(value.bytes, 0) != 0;
}

const std::vector<std::string>& GgufFile::texts(std::string_view key) const {
  const GgufValue& value = required(key);
  if (value.type != GgufType::Array || (value.element != GgufType::Text && value.count > 0))
    refuse(label(), key, value, "an array of texts");
  return value.texts;
}

std::vector<float> GgufFile::numbers(std::string_view key) const {
  const GgufValue& value = required(key);
  if (value.type != GgufType::Array || !is_number(value.element))
    refuse(label(), key, value, "an array of numbers");
  std::vector<float> numbers(value.count);
  for (uint64_t i = 0; i < value.count; ++i)
    numbers[i] = static_cast<float>(number_at(value.element, value.bytes, i));
  return numbers;
}

std::vector<int32_t> GgufFile::integers(std::string_view key) const {
  const GgufValue& value = required(key);
  if (value.type != GgufType::Array || !is_integer(value.element))
    refuse(label(), key, value, "an array of integers");
  std::vector<int32_t> integers(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const auto found = integer_at(value.element, value.bytes, i);
    if (!found || *found < INT32_MIN || *found > INT32_MAX)
      refuse(label(), key, value, "an array of 32-bit integers");
    integers[i] = static_cast<int32_t>(*found);
  }
  return integers;
}

std::string GgufFile::show(const GgufValue& value) {
  if (value.type == GgufType::Array) return show_array(value);
  if (value.type == GgufType::Text) return '"' + printable(as_text(value.bytes)) + '"';
  return show_element(value.type, value.bytes, 0);
}

namespace {

constexpr std::array<std::pair<uint32_t, DType>, 19> kRead = {{
    {0, DType::F32},   {1, DType::F16},   {2, DType::Q4_0},  {3, DType::Q4_1},   {6, DType::Q5_0},
    {7, DType::Q5_1},  {8, DType::Q8_0},  {10, DType::Q2_K}, {11, DType::Q3_K},  {12, DType::Q4_K},
    {13, DType::Q5_K}, {14, DType::Q6_K}, {24, DType::I8},   {25, DType::I16},   {26, DType::I32},
    {27, DType::I64},  {28, DType::F64},  {30, DType::BF16}, {39, DType::MXFP4},
}};

constexpr std::array<std::pair<uint32_t, const char*>, 15> kRefused = {{
    {9, "Q8_1"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {20, "IQ4_NL"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS"},
    {29, "IQ1_M"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {40, "NVFP4"},
    {41, "Q1_0"},
}};

}  // namespace

std::unique_ptr<GgufFile> GgufFile::join(std::unique_ptr<GgufFile> file,
                                         std::unique_ptr<GgufFile> other) {
  const std::string label = file->label() + " and " + other->label();
  Metadata metadata = std::move(file->metadata_);
  Parts all = take_apart(std::move(file)), more = take_apart(std::move(other));
  for (PlacedTensor& tensor : more.tensors) {
    tensor.file += all.files.size();
    all.tensors.push_back(std::move(tensor));
  }
  std::ranges::move(more.files, std::back_inserter(all.files));
  auto joined =
      std::unique_ptr<GgufFile>(new GgufFile(label, std::move(all.files), std::move(all.tensors)));
  joined->metadata_ = std::move(metadata);  // of bytes that stay mapped
  return joined;
}

namespace {
constexpr std::string_view kPicturesPrefix = "mmproj-";
}

bool is_pictures_tensor(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("mm.");
}

std::filesystem::path pictures_file(const std::filesystem::path& language) {
  return language.parent_path() / (std::string(kPicturesPrefix) + language.filename().string());
}

bool names_pictures_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(kPicturesPrefix) && path.extension() == ".gguf";
}

uint64_t scalar_bytes(GgufType type) {
  constexpr std::array<uint8_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes.at(static_cast<size_t>(type));
}

DType dtype_of_ggml(uint32_t number) {
  for (const auto& [known, type] : kRead)
    if (known == number) return type;
  for (const auto& [known, name] : kRefused)
    if (known == number)
      throw UserError(
          "its type {} is not supported; use a file quantized as Q8_0, Q4_0 to Q5_1, "
          "Q2_K to Q6_K or MXFP4, or one in F16, BF16 or F32",
          name);
  throw UserError("its type number {} is unknown; the file is damaged or newer than this program",
                  number);
}

uint32_t ggml_number(DType type) {
  for (const auto& [number, known] : kRead)
    if (known == type) return number;
  throw InternalError(fmt::format("GGUF has no type {}", name(type)));
}

}  // namespace snug::files
