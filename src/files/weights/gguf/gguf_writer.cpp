// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "files/weights/gguf/gguf.h"

namespace snug::files {
namespace {

constexpr uint32_t kGgufVersion = 3;

template <class T>
void put(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_gguf_text(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

template <class T>
void put_array(std::string& out, GgufType element, std::span<const T> values) {
  put(out, element);
  put(out, uint64_t{values.size()});
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

uint64_t align(uint64_t position) {
  return (position + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

}  // namespace

void GgufWriter::begin_entry(std::string_view key, GgufType type) {
  SNUG_CHECK(keys_.emplace(key).second, "metadata key \"{}\" is set twice", key);
  put_gguf_text(entries_, key);
  put(entries_, type);
}

void GgufWriter::set_u32(std::string_view key, uint32_t value) {
  begin_entry(key, GgufType::U32);
  put(entries_, value);
}

void GgufWriter::set_i32(std::string_view key, int32_t value) {
  begin_entry(key, GgufType::I32);
  put(entries_, value);
}

void GgufWriter::set_u64(std::string_view key, uint64_t value) {
  begin_entry(key, GgufType::U64);
  put(entries_, value);
}

void GgufWriter::set_f32(std::string_view key, float value) {
  begin_entry(key, GgufType::F32);
  put(entries_, value);
}

void GgufWriter::set_bool(std::string_view key, bool value) {
  begin_entry(key, GgufType::Bool);
  put(entries_, static_cast<uint8_t>(value));
}

void GgufWriter::set_text(std::string_view key, std::string_view value) {
  begin_entry(key, GgufType::Text);
  put_gguf_text(entries_, value);
}

void GgufWriter::set_texts(std::string_view key, const std::vector<std::string>& values) {
  begin_entry(key, GgufType::Array);
  put(entries_, GgufType::Text);
  put(entries_, uint64_t{values.size()});
  for (const std::string& value : values) put_gguf_text(entries_, value);
}

void GgufWriter::set_f32s(std::string_view key, std::span<const float> values) {
  begin_entry(key, GgufType::Array);
  put_array(entries_, GgufType::F32, values);
}

void GgufWriter::set_i32s(std::string_view key, std::span<const int32_t> values) {
  begin_entry(key, GgufType::Array);
  put_array(entries_, GgufType::I32, values);
}

void GgufWriter::copy(std::string_view key, const GgufValue& value) {
  begin_entry(key, value.type);
  if (value.type == GgufType::Array) {
    put(entries_, value.element);
    put(entries_, value.count);
  } else if (value.type == GgufType::Text) {
    put(entries_, uint64_t{value.bytes.size()});
  }
  entries_.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
}

void GgufWriter::declare(const std::vector<TensorInfo>& tensors) {
  std::string header = "GGUF";
  put(header, kGgufVersion);
  put(header, uint64_t{tensors.size()});
  put(header, uint64_t{keys_.size()});
  header += entries_;
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    slots_.declare(tensor, offset);
    put_gguf_text(header, tensor.name);
    put(header, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) put(header, tensor.shape[i]);
    put(header, ggml_number(tensor.dtype));
    put(header, offset);
    offset = align(offset + static_cast<uint64_t>(tensor.nbytes));
  }
  header.resize(align(header.size()), '\0');
  slots_.begin_at(header.size());
  file_.reserve(header.size() + offset);
  file_.append(header);
}

void GgufWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  slots_.write(file_, name, bytes);
}

void GgufWriter::finish() {
  slots_.check_complete();
  file_.finish();
}

}  // namespace snug::files
