// SPDX-License-Identifier: Apache-2.0
#include "files/weights/gguf/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/byte_reader.h"
#include "files/weights/gguf/gguf.h"

namespace snug::files {
namespace {

// Entries of a GGUF file: a row of sums of squares, and how many there were of each.
const std::string kSums = ".in_sum2", kCounts = ".counts";
constexpr const char* kRemedy = "make the file again with llama-imatrix";

void add_entry(ImportanceMatrix& matrix, std::string_view name, std::vector<float> columns) {
  const bool sound =
      std::ranges::all_of(columns, [](float value) { return value >= 0 && std::isfinite(value); });
  if (!sound)
    throw UserError(
        "{}: the entry {} holds values that are negative or no finite numbers, and these are means "
        "of squares; {}",
        matrix.label, printable(name), kRemedy);
  if (!matrix.columns.emplace(name, std::move(columns)).second)
    throw UserError("{}: the entry {} occurs twice; {}", matrix.label, printable(name), kRemedy);
}

// `sums` of `count` squares each.
std::vector<float> means(std::vector<float> sums, float count) {
  for (float& sum : sums) sum /= count;
  return sums;
}

std::vector<float> floats_of(const TensorSource& file, const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  file.read(tensor, DType::F32, values.data());
  return values;
}

// Tensors NAME.in_sum2, a row for each expert, and NAME.counts. Where nothing was counted all
// columns matter alike.
void read_gguf(const std::filesystem::path& path, ImportanceMatrix& matrix) {
  const auto file = GgufFile::open(path);
  for (const TensorInfo& tensor : file->tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    const TensorInfo* counts = file->find(name + kCounts);
    if (counts == nullptr || counts->num_elements() != 1 || tensor.num_elements() == 0)
      throw UserError(
          "{}: the entry {} is not one row of sums with one count, which is all that a matrix "
          "without experts has; {}",
          matrix.label, printable(name), kRemedy);
    std::vector<float> sums = floats_of(*file, tensor);
    const float count = floats_of(*file, *counts).front();
    if (count > 0)
      sums = means(std::move(sums), count);
    else
      std::ranges::fill(sums, 1.0F);
    add_entry(matrix, name, std::move(sums));
  }
}

// A number of entries; each a name, the number of calls, and a sum for each column. What comes
// after them says which text it was.
void read_dat(const MappedFile& file, ImportanceMatrix& matrix) {
  constexpr size_t kLeastEntry = 4 + 1 + 4 + 4 + 4;
  ByteReader reader(file.bytes(), matrix.label);
  const auto length_of = [&](const char* what, uint64_t unit) {
    const auto count = reader.number<int32_t>(what);
    if (count < 1 || static_cast<uint64_t>(count) > reader.remaining() / unit)
      throw UserError(
          "{}: {} is {} at byte {}, with {} bytes left: this is no importance matrix, or it is "
          "damaged; {}",
          matrix.label, what, count, reader.position() - 4, reader.remaining(), kRemedy);
    return static_cast<uint64_t>(count);
  };
  const uint64_t num_entries = length_of("the number of entries", kLeastEntry);
  for (uint64_t i = 0; i < num_entries; ++i) {
    const std::string name(reader.text(length_of("the length of a name", 1), "a name"));
    const auto num_calls = reader.number<int32_t>("the number of calls");
    std::vector<float> sums(length_of("the number of columns", sizeof(float)));
    const auto bytes = reader.take(sums.size() * sizeof(float), "an entry's values");
    std::memcpy(sums.data(), bytes.data(), bytes.size());
    if (num_calls > 0) sums = means(std::move(sums), static_cast<float>(num_calls));
    add_entry(matrix, name, std::move(sums));
  }
}

}  // namespace

const float* ImportanceMatrix::find(const TensorInfo& tensor) const {
  const auto found = columns.find(tensor.name);
  if (found == columns.end()) return nullptr;
  if (std::ssize(found->second) != tensor.shape.back())
    throw UserError(
        "{}: the entry {} has {} columns, but the model's tensor has {}; the importance matrix is "
        "that of another model",
        label, tensor.name, found->second.size(), tensor.shape.back());
  return found->second.data();
}

ImportanceMatrix read_importance(const std::filesystem::path& path) {
  const MappedFile file(path);
  ImportanceMatrix matrix{.label = path.string()};
  if (as_text(file.bytes()).starts_with("GGUF"))
    read_gguf(path, matrix);
  else
    read_dat(file, matrix);
  if (matrix.columns.empty())
    throw UserError("{}: this GGUF file has no tensors NAME.in_sum2, so it is no importance matrix",
                    matrix.label);
  return matrix;
}

void write_importance(const ImportanceMatrix& matrix, const std::filesystem::path& path) {
  GgufWriter out(path);
  out.set_text("general.type", "imatrix");
  out.set_texts("imatrix.datasets", {matrix.label});
  out.set_u32("imatrix.chunk_count", 1);
  out.set_u32("imatrix.chunk_size", 1);
  std::vector<TensorInfo> tensors;
  for (const auto& [name, columns] : matrix.columns) {
    tensors.push_back(make_tensor_info(name + kSums, DType::F32, {1, std::ssize(columns)}));
    tensors.push_back(make_tensor_info(name + kCounts, DType::F32, {1, 1}));
  }
  out.declare(tensors);
  const std::vector<float> one{1};
  for (const auto& [name, columns] : matrix.columns) {
    out.write(name + kSums, std::as_bytes(std::span(columns)));
    out.write(name + kCounts, std::as_bytes(std::span(one)));
  }
  out.finish();
}

}  // namespace snug::files
