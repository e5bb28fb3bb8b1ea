// GGUF versions 2 and 3: typed metadata, then tensors, often quantized. Shapes are reversed here
// (GGUF lists dimensions from the innermost), so that they read as in PyTorch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/weights/dtype.h"
#include "files/weights/output_file.h"
#include "files/weights/tensor_source.h"

namespace snug::files {

// The numbers are those of the file format.
enum class GgufType : uint32_t {
  U8 = 0,
  I8 = 1,
  U16 = 2,
  I16 = 3,
  U32 = 4,
  I32 = 5,
  F32 = 6,
  Bool = 7,
  Text = 8,
  Array = 9,
  U64 = 10,
  I64 = 11,
  F64 = 12,
};

// A metadata value: its bytes in the file, decoded on demand. Text arrays (vocabularies) are
// decoded once, on opening.
struct GgufValue {
  GgufType type = GgufType::U8;
  GgufType element = GgufType::U8;  // of an array
  uint64_t count = 1;               // of an array
  std::span<const std::byte>
      bytes;                       // payload, without type and count; valid while the file is open
  std::vector<std::string> texts;  // of an array of texts
};

class GgufFile : public TensorSource {
 public:
  static std::unique_ptr<GgufFile> open(const std::filesystem::path& path);

  // The metadata of `file` with the tensors of both files, which have no name in common.
  static std::unique_ptr<GgufFile> join(std::unique_ptr<GgufFile> file,
                                        std::unique_ptr<GgufFile> other);

  // The getters throw UserError with file and key for a value of another type or a missing key
  // without default.
  bool has(std::string_view key) const;
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  double number(std::string_view key, std::optional<double> otherwise = {}) const;
  // One that was a short decimal number before it was float32: 9.99999974e-06 is 1e-5.
  double short_number(std::string_view key) const;
  std::string text(std::string_view key, std::optional<std::string> otherwise = {}) const;
  bool boolean(std::string_view key, std::optional<bool> otherwise = {}) const;
  bool is_array(std::string_view key) const;  // some keys hold one number or one per layer
  const std::vector<std::string>& texts(std::string_view key) const;
  std::vector<float> numbers(std::string_view key) const;
  std::vector<int32_t> integers(std::string_view key) const;

  using Metadata = std::map<std::string, GgufValue, std::less<>>;
  const Metadata& metadata() const { return metadata_; }
  // For listings: `"llama"`, `2048`, `["<unk>", "<s>", …] (32000)`.
  static std::string show(const GgufValue& value);

 private:
  friend class GgufParser;
  using TensorSource::TensorSource;
  const GgufValue* find_value(std::string_view key) const;
  const GgufValue& required(std::string_view key) const;

  Metadata metadata_;
};

// Version 3, little endian, alignment 32. Metadata first, then declare(), then every tensor.
class GgufWriter {
 public:
  explicit GgufWriter(const std::filesystem::path& path) : file_(path) {}

  void set_u32(std::string_view key, uint32_t value);
  void set_i32(std::string_view key, int32_t value);
  void set_u64(std::string_view key, uint64_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_text(std::string_view key, std::string_view value);
  void set_texts(std::string_view key, const std::vector<std::string>& values);
  void set_f32s(std::string_view key, std::span<const float> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void copy(std::string_view key, const GgufValue& value);  // from another file, with its type

  // Any type that GGUF knows.
  void declare(const std::vector<TensorInfo>& tensors);
  void write(std::string_view name,
             std::span<const std::byte> bytes);  // may be called with consecutive chunks
  void finish();

 private:
  void begin_entry(std::string_view key, GgufType type);

  OutputFile file_;
  TensorSlots slots_;
  std::string entries_;  // encoded metadata so far
  std::set<std::string, std::less<>> keys_;
};

inline constexpr uint64_t kGgufAlignment = 32;

// A model that sees pictures is two files: the language model, and beside it the vision model and
// what joins the two, of the architecture "clip".
inline constexpr std::string_view kPicturesArchitecture = "clip";
bool is_pictures_tensor(std::string_view name);
// "models/small.gguf" -> "models/mmproj-small.gguf", as llama.cpp's converter names it.
std::filesystem::path pictures_file(const std::filesystem::path& language);
bool names_pictures_file(const std::filesystem::path& path);

// Bytes of one value; 0 for texts and arrays, which have no fixed size.
uint64_t scalar_bytes(GgufType type);

// Throws UserError for an unknown or unsupported type.
DType dtype_of_ggml(uint32_t number);
// Throws InternalError for a type that GGUF lacks.
uint32_t ggml_number(DType type);

}  // namespace snug::files
