// SPDX-License-Identifier: Apache-2.0
#include "data/rows/arrow_values.h"

#include "base/files.h"

namespace snug::data {
namespace {

using nlohmann::json;

template <class ListArray>
json list_at(const ListArray& array, int64_t i) {
  json list = json::array();
  for (int64_t k = array.value_offset(i); k < array.value_offset(i + 1); ++k)
    list.push_back(json_at(*array.values(), k));
  return list;
}

json struct_at(const arrow::StructArray& array, int64_t i) {
  json object = json::object();
  for (int k = 0; k < array.num_fields(); ++k)
    object[array.struct_type()->field(k)->name()] = json_at(*array.field(k), i);
  return object;
}

template <class ListArray>
std::optional<std::string> first_of(const ListArray& array, int64_t i) {
  for (int64_t k = array.value_offset(i); k < array.value_offset(i + 1); ++k)
    if (auto text = caption_at(*array.values(), k)) return text;
  return std::nullopt;
}

template <class ListArray>
std::vector<std::string> all_of(const ListArray& array, int64_t i) {
  std::vector<std::string> texts;
  for (int64_t k = array.value_offset(i); k < array.value_offset(i + 1); ++k)
    if (auto text = caption_at(*array.values(), k)) texts.push_back(std::move(*text));
  return texts;
}

bool is_bytes(arrow::Type::type type) {
  return type == arrow::Type::BINARY || type == arrow::Type::LARGE_BINARY;
}

bool is_text(arrow::Type::type type) {
  return type == arrow::Type::STRING || type == arrow::Type::LARGE_STRING;
}

std::optional<std::string_view> view_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  switch (array.type_id()) {
    case arrow::Type::BINARY:
    case arrow::Type::STRING:
      return static_cast<const arrow::BinaryArray&>(array).GetView(i);
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::LARGE_STRING:
      return static_cast<const arrow::LargeBinaryArray&>(array).GetView(i);
    default:
      return std::nullopt;
  }
}

// A column's part that holds bytes and the part that holds paths, whichever are there.
struct PictureParts {
  std::optional<std::string_view> bytes, path;
};

PictureParts parts_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return {};
  if (array.type_id() != arrow::Type::STRUCT)
    return is_bytes(array.type_id()) ? PictureParts{view_at(array, i), {}}
                                     : PictureParts{{}, view_at(array, i)};
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  PictureParts parts;
  if (const auto bytes = fields.GetFieldByName("bytes")) parts.bytes = view_at(*bytes, i);
  if (const auto path = fields.GetFieldByName("path")) parts.path = view_at(*path, i);
  return parts;
}

}  // namespace

json json_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
      return *view_at(array, i);
    case arrow::Type::LIST:
      return list_at(static_cast<const arrow::ListArray&>(array), i);
    case arrow::Type::LARGE_LIST:
      return list_at(static_cast<const arrow::LargeListArray&>(array), i);
    case arrow::Type::STRUCT:
      return struct_at(static_cast<const arrow::StructArray&>(array), i);
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return json_at(*coded.dictionary(), coded.GetValueIndex(i));
    }
    default:
      return 0;
  }
}

bool is_caption_type(const arrow::DataType& type) {
  if (is_text(type.id())) return true;
  if (type.id() == arrow::Type::DICTIONARY)
    return is_text(static_cast<const arrow::DictionaryType&>(type).value_type()->id());
  return (type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST) &&
         is_text(type.field(0)->type()->id());
}

std::optional<std::string> caption_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return std::nullopt;
  if (array.type_id() == arrow::Type::LIST)
    return first_of(static_cast<const arrow::ListArray&>(array), i);
  if (array.type_id() == arrow::Type::LARGE_LIST)
    return first_of(static_cast<const arrow::LargeListArray&>(array), i);
  if (array.type_id() == arrow::Type::DICTIONARY) {
    const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
    return caption_at(*coded.dictionary(), coded.GetValueIndex(i));
  }
  const auto text = view_at(array, i);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

std::vector<std::string> captions_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return {};
  if (array.type_id() == arrow::Type::LIST)
    return all_of(static_cast<const arrow::ListArray&>(array), i);
  if (array.type_id() == arrow::Type::LARGE_LIST)
    return all_of(static_cast<const arrow::LargeListArray&>(array), i);
  std::optional<std::string> only = caption_at(array, i);
  return only ? std::vector<std::string>{std::move(*only)} : std::vector<std::string>();
}

bool is_picture_type(const arrow::DataType& type) {
  if (is_bytes(type.id())) return true;
  if (type.id() != arrow::Type::STRUCT) return false;
  const auto& fields = static_cast<const arrow::StructType&>(type);
  const auto bytes = fields.GetFieldByName("bytes");
  return bytes != nullptr && is_bytes(bytes->type()->id()) &&
         fields.GetFieldByName("path") != nullptr;
}

std::string picture_path_at(const arrow::Array& array, int64_t i) {
  return std::string(parts_at(array, i).path.value_or(""));
}

PictureBytes picture_at(const std::shared_ptr<arrow::Array>& array, int64_t i,
                        const std::filesystem::path& folder) {
  const PictureParts parts = parts_at(*array, i);
  if (parts.bytes) return {std::as_bytes(std::span(*parts.bytes)), array};
  if (!parts.path) throw UserError("there is no picture");
  const auto file = std::make_shared<MappedFile>(folder / *parts.path);
  return {file->bytes(), file};
}

}  // namespace snug::data
