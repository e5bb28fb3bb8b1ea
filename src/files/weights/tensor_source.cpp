// SPDX-License-Identifier: Apache-2.0
#include "files/weights/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "files/weights/byte_reader.h"
#include "files/weights/convert.h"

namespace snug::files {
namespace {

// Elements per chunk when converting through a buffer; a multiple of every block size.
constexpr int64_t kStretch = 4096;
// Below this a second thread costs more than it saves.
constexpr int64_t kElementsPerThread = int64_t{1} << 20;
constexpr int64_t kMaxThreads = 16;

std::byte* advance(void* out, DType type, int64_t elements) {
  return static_cast<std::byte*>(out) + bytes_for(type, elements);
}

// Reads any range of a quantized tensor: whole blocks directly, an incomplete one through a buffer.
void read_blocks(DType from, const std::byte* tensor, DType target, std::byte* out, int64_t begin,
                 int64_t count) {
  const int64_t block = layout(from).block_elements;
  std::array<float, 256> whole;
  while (count > 0) {
    const int64_t skip = begin % block;
    const std::byte* in = tensor + bytes_for(from, begin - skip);
    int64_t part = count / block * block;
    if (skip == 0 && part > 0) {
      convert(from, in, target, out, part);
    } else {
      part = std::min(count, block - skip);
      dequantize(from, in, whole.data(), block);
      convert(DType::F32, whole.data() + skip, target, out, part);
    }
    out = advance(out, target, part);
    begin += part;
    count -= part;
  }
}

// Copies `count` elements of a strided tensor, from row-major position `begin` on, to contiguous
// memory.
template <class Element>
void gather(const std::byte* tensor, const std::vector<int64_t>& shape,
            const std::vector<int64_t>& strides, int64_t begin, int64_t count, std::byte* out) {
  const int64_t columns = shape.back(), step = strides.back();
  while (count > 0) {
    int64_t row = begin / columns, column = begin % columns;
    const int64_t part = std::min(count, columns - column);
    int64_t offset = column * step;
    for (size_t d = shape.size() - 1; d-- > 0; row /= shape[d])
      offset += row % shape[d] * strides[d];
    const std::byte* in = tensor + offset * static_cast<int64_t>(sizeof(Element));
    for (int64_t i = 0; i < part; ++i, out += sizeof(Element))
      std::memcpy(out, in + i * step * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
    begin += part;
    count -= part;
  }
}

void gather_any(const TensorInfo& tensor, const std::byte* start,
                const std::vector<int64_t>& strides, int64_t begin, int64_t count, std::byte* out) {
  switch (layout(tensor.dtype).block_bytes) {
    case 1:
      return gather<uint8_t>(start, tensor.shape, strides, begin, count, out);
    case 2:
      return gather<uint16_t>(start, tensor.shape, strides, begin, count, out);
    case 4:
      return gather<uint32_t>(start, tensor.shape, strides, begin, count, out);
    default:
      return gather<uint64_t>(start, tensor.shape, strides, begin, count, out);
  }
}

void read_strided(const TensorInfo& tensor, const std::byte* start,
                  const std::vector<int64_t>& strides, DType target, std::byte* out, int64_t begin,
                  int64_t count) {
  alignas(8) std::array<std::byte, kStretch * 8> buffer;
  for (int64_t part = 0; count > 0; begin += part, count -= part) {
    part = std::min(count, kStretch);
    gather_any(tensor, start, strides, begin, part, buffer.data());
    convert(tensor.dtype, buffer.data(), target, out, part);
    out = advance(out, target, part);
  }
}

// Works out whole rows, so many at once that scales which rows share are looked up seldom.
void read_packed(const PackedValues& values, const TensorInfo& tensor, DType target, std::byte* out,
                 int64_t begin, int64_t count) {
  constexpr int64_t kAtOnce = int64_t{1} << 16;
  const int64_t cols = tensor.shape.back();
  const int64_t end = begin + count, most = std::max<int64_t>(1, kAtOnce / cols);
  std::vector<float> rows;
  std::vector<std::byte> rounded;
  for (int64_t row = begin / cols; row * cols < end; row += most) {
    const int64_t num_rows = std::min(most, (end + cols - 1) / cols - row);
    rows.resize(static_cast<size_t>(num_rows * cols));
    values.read_rows(row, num_rows, rows.data());
    const int64_t from = std::max(begin, row * cols), to = std::min(end, (row + num_rows) * cols);
    const float* wanted = rows.data() + (from - row * cols);
    rounded.resize(static_cast<size_t>(bytes_for(tensor.dtype, to - from)));
    convert(DType::F32, wanted, tensor.dtype, rounded.data(), to - from);
    convert(tensor.dtype, rounded.data(), target, out, to - from);
    out = advance(out, target, to - from);
  }
}

// The bytes from a tensor's first element to its last, holes included.
size_t extent_bytes(const TensorInfo& tensor, const std::vector<int64_t>& strides) {
  if (strides.empty() || tensor.nbytes == 0) return static_cast<size_t>(tensor.nbytes);
  int64_t last = 0;
  for (size_t d = 0; d < strides.size(); ++d) last += (tensor.shape[d] - 1) * strides[d];
  return static_cast<size_t>((last + 1) * layout(tensor.dtype).block_bytes);
}

UserError damaged(const MappedFile& file, const std::string& what) {
  return UserError(
      "{}: {} is not as it was written, by the checksums in {}: a disk or a copy damaged the file. "
      "`snug verify {}` lists all damage. Restore the file from a copy, or, if it was changed on "
      "purpose, delete {}",
      file.path().string(), what, kChecksumsName, file.path().parent_path().string(),
      kChecksumsName);
}

}  // namespace

TensorSource::TensorSource(std::string label, std::vector<MappedFile> files,
                           std::vector<PlacedTensor> tensors, Compare compare)
    : label_(std::move(label)), files_(std::move(files)) {
  infos_.reserve(tensors.size());
  placements_.reserve(tensors.size());
  for (PlacedTensor& tensor : tensors) {
    infos_.push_back(std::move(tensor.info));
    placements_.push_back({tensor.file, tensor.offset, std::move(tensor.strides)});
  }
  index();
  for (size_t i = 0; i < files_.size(); ++i) {
    checks_.push_back(compare == Compare::Yes ? find_check(files_[i].path()) : nullptr);
    check_size_and_header(i);
  }
}

void TensorSource::index() {
  index_of_.clear();
  for (size_t i = 0; i < infos_.size(); ++i)
    if (!index_of_.emplace(infos_[i].name, i).second)
      throw UserError("{}: tensor \"{}\" occurs twice; the file is damaged, fetch it again", label_,
                      printable(infos_[i].name));
}

// The header lies before the first tensor; in a .pth also behind the last, where the zip's own
// checks are.
void TensorSource::check_size_and_header(size_t file) const {
  const MappedFile& mapped = files_[file];
  FileCheck* check = checks_[file].get();
  if (check == nullptr) return;
  if (mapped.bytes().size() != check->expected_bytes())
    throw UserError(
        "{} has {} bytes instead of {}; restore it from a copy, or delete {} beside it if it was "
        "replaced on purpose",
        mapped.path().string(), mapped.bytes().size(), check->expected_bytes(), kChecksumsName);
  size_t header = mapped.bytes().size();
  for (const Placement& where : placements_)
    if (where.file == file) header = std::min(header, where.offset);
  if (check->find_damage(mapped.bytes(), 0, header)) throw damaged(mapped, "its header");
}

void TensorSource::check(const TensorInfo& tensor, const Extent& bytes) const {
  const MappedFile& mapped = files_[bytes.file];
  FileCheck* check = checks_[bytes.file].get();
  if (check == nullptr) return;
  if (check->find_damage(mapped.bytes(), bytes.begin, bytes.end))
    throw damaged(mapped, fmt::format("\"{}\" or its neighbours", tensor.name));
}

std::vector<TensorSource::Extent> TensorSource::extents(const TensorInfo& tensor,
                                                        const Placement& where) const {
  if (where.joined != nullptr) return where.joined->parts;
  return {{where.file, where.offset, where.offset + extent_bytes(tensor, where.strides)}};
}

PackedPart TensorSource::part(const TensorInfo& tensor) const {
  const Placement& where = placement(tensor);
  if (!where.strides.empty())
    throw UserError("{}: the rows of \"{}\" do not lie one after another; save the model anew",
                    label_, printable(tensor.name));
  return {tensor, start(where)};
}

const PackedValues* TensorSource::packed(const TensorInfo& tensor) const {
  const Placement& where = placement(tensor);
  return where.joined == nullptr ? nullptr : where.joined->values.get();
}

void TensorSource::join(std::vector<JoinedTensor> joined, const std::set<std::string>& dropped) {
  std::set<std::string_view> gone(dropped.begin(), dropped.end());
  std::vector<TensorInfo> infos;
  std::vector<Placement> placements;
  for (JoinedTensor& one : joined) {
    std::vector<Extent> parts;
    one.info.nbytes = 0;
    for (const std::string& name : one.parts) {
      const TensorInfo* info = find(name);
      SNUG_CHECK(info != nullptr, "{} has no tensor \"{}\"", label_, name);
      for (const Extent& extent : extents(*info, placement(*info))) parts.push_back(extent);
      one.info.nbytes += info->nbytes;
      gone.insert(name);
    }
    const Extent& codes = parts.front();
    placements.push_back({codes.file, codes.begin, {}});
    placements.back().joined =
        std::make_shared<const Joined>(Joined{std::move(one.values), std::move(parts)});
    infos.push_back(std::move(one.info));
  }
  for (size_t i = 0; i < infos_.size(); ++i) {
    if (gone.contains(infos_[i].name)) continue;
    infos.push_back(infos_[i]);
    placements.push_back(placements_[i]);
  }
  infos_ = std::move(infos);
  placements_ = std::move(placements);
  index();
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto found = index_of_.find(name);
  return found == index_of_.end() ? nullptr : &infos_[found->second];
}

void TensorSource::add_mean_rows(const TensorInfo& tensor, int64_t rows) {
  const auto index = static_cast<size_t>(&tensor - infos_.data());
  TensorInfo& info = infos_.at(index);
  Placement& where = placements_[index];
  SNUG_CHECK(!info.shape.empty() && info.shape[0] > 0, "\"{}\" has no rows", info.name);
  if (rows <= info.shape[0]) return;
  if (!where.strides.empty())
    throw UserError(
        "{}: the rows of \"{}\" do not lie one after another; write the model anew with "
        "snug convert first",
        label_, info.name);
  if (where.mean == nullptr) {
    where.mean = std::make_shared<MeanRow>();
    where.mean->stored_elements = info.num_elements();
    where.mean->columns = info.num_elements() / info.shape[0];
  }
  info.shape[0] = rows;
}

void TensorSource::read_mean_rows(const TensorInfo& tensor, MeanRow& mean, DType target,
                                  std::byte* out, int64_t begin, int64_t count) const {
  std::call_once(mean.once, [&] {
    const int64_t rows = mean.stored_elements / mean.columns;
    const int64_t at_once = std::max<int64_t>(1, kElementsPerThread / mean.columns);
    std::vector<double> sums(static_cast<size_t>(mean.columns));
    std::vector<float> some(static_cast<size_t>(at_once * mean.columns));
    for (int64_t row = 0; row < rows; row += at_once) {
      const int64_t elements = std::min(at_once, rows - row) * mean.columns;
      read(tensor, DType::F32, some.data(), row * mean.columns, elements);
      for (int64_t i = 0; i < elements; ++i)
        sums[static_cast<size_t>(i % mean.columns)] += some[static_cast<size_t>(i)];
    }
    for (const double sum : sums)
      mean.values.push_back(static_cast<float>(sum / static_cast<double>(rows)));
  });
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = mean.values[static_cast<size_t>((begin + i) % mean.columns)];
  convert(DType::F32, reinterpret_cast<const std::byte*>(values.data()), target, out, count);
}

const TensorSource::Placement& TensorSource::placement(const TensorInfo& tensor) const {
  const auto found = index_of_.find(tensor.name);
  SNUG_CHECK(found != index_of_.end(), "{} has no tensor \"{}\"", label_, tensor.name);
  return placements_[found->second];
}

const std::byte* TensorSource::start(const Placement& where) const {
  return files_[where.file].bytes().data() + where.offset;
}

void TensorSource::read(const TensorInfo& tensor, DType target, void* out) const {
  read(tensor, target, out, 0, tensor.num_elements());
}

void TensorSource::read(const TensorInfo& tensor, DType target, void* out, int64_t begin,
                        int64_t count) const {
  const Placement& where = placement(tensor);
  const int64_t elements = tensor.num_elements(), block = layout(target).block_elements;
  SNUG_CHECK(begin >= 0 && count >= 0 && count <= elements && begin <= elements - count,
             "elements {} to {} of \"{}\", which has {}", begin, begin + count, tensor.name,
             elements);
  SNUG_CHECK(
      can_convert(tensor.dtype, target) && (where.joined == nullptr || !is_quantized(target)),
      "\"{}\" is {} and cannot be converted to {}", tensor.name, name(tensor.dtype), name(target));
  SNUG_CHECK(begin % block == 0 && count % block == 0, "\"{}\" must be read in whole blocks",
             tensor.name);
  if (where.mean != nullptr && begin + count > where.mean->stored_elements) {
    const int64_t stored = std::max<int64_t>(0, where.mean->stored_elements - begin);
    if (stored > 0) read(tensor, target, out, begin, stored);
    return read_mean_rows(tensor, *where.mean, target, advance(out, target, stored), begin + stored,
                          count - stored);
  }
  if (where.strides.empty() && count > 0 && where.joined == nullptr) {
    const int64_t whole = layout(tensor.dtype).block_elements;
    const int64_t stored = where.mean != nullptr ? where.mean->stored_elements : elements;
    const int64_t end = std::min(stored, (begin + count + whole - 1) / whole * whole);
    const auto at = [&](int64_t element) {
      return where.offset + static_cast<size_t>(bytes_for(tensor.dtype, element));
    };
    check(tensor, {where.file, at(begin / whole * whole), at(end)});
  } else {
    verify(tensor);
  }
  const int64_t processors = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const int64_t threads =
      std::clamp<int64_t>(count / kElementsPerThread, 1, std::min(processors, kMaxThreads));
  const int64_t share = (count / threads + kStretch - 1) / kStretch * kStretch;
  auto* bytes = static_cast<std::byte*>(out);
  std::vector<std::jthread> helpers;
  int64_t first = 0;
  for (int64_t i = 1; i < threads; ++i, first += share)
    helpers.emplace_back([&, first] {
      read_span(tensor, where, target, advance(bytes, target, first), begin + first, share);
    });
  read_span(tensor, where, target, advance(bytes, target, first), begin + first, count - first);
}

void TensorSource::read_span(const TensorInfo& tensor, const Placement& where, DType target,
                             std::byte* out, int64_t begin, int64_t count) const {
  if (count == 0) return;
  if (where.joined != nullptr)
    read_packed(*where.joined->values, tensor, target, out, begin, count);
  else if (!where.strides.empty())
    read_strided(tensor, start(where), where.strides, target, out, begin, count);
  else if (is_quantized(tensor.dtype) && target != tensor.dtype)
    read_blocks(tensor.dtype, start(where), target, out, begin, count);
  else
    convert(tensor.dtype, start(where) + bytes_for(tensor.dtype, begin), target, out, count);
}

std::span<const std::byte> TensorSource::raw(const TensorInfo& tensor) const {
  const Placement& where = placement(tensor);
  const bool is_made = where.mean != nullptr || where.joined != nullptr;
  return is_made ? std::span<const std::byte>() : stored(tensor);
}

std::span<const std::byte> TensorSource::stored(const TensorInfo& tensor) const {
  const Placement& where = placement(tensor);
  if (!where.strides.empty() || tensor.nbytes == 0) return {};
  const Extent bytes = extents(tensor, where).front();
  check(tensor, bytes);
  return {start(where), bytes.end - bytes.begin};
}

void TensorSource::verify(const TensorInfo& tensor) const {
  for (const Extent& extent : extents(tensor, placement(tensor))) check(tensor, extent);
}

void TensorSource::release(const TensorInfo& tensor) const {
  for (const auto& [file, begin, end] : extents(tensor, placement(tensor)))
    files_[file].release(begin, end - begin);
}

void TensorSource::expect(const std::vector<const TensorInfo*>& order) {
  std::vector<std::span<const std::byte>> bytes;
  for (const TensorInfo* tensor : order) {
    for (const auto& [file, begin, end] : extents(*tensor, placement(*tensor)))
      bytes.push_back(files_[file].bytes().subspan(begin, end - begin));
  }
  ahead_ = std::make_unique<ReadAhead>(std::move(bytes));
}

void TensorSource::read_ahead(const TensorInfo& tensor) {
  if (ahead_ != nullptr) ahead_->before_reading(start(placement(tensor)));
}

int64_t TensorSource::total_bytes() const {
  int64_t total = 0;
  for (const TensorInfo& tensor : infos_) total += tensor.nbytes;
  return total;
}

std::vector<std::string> TensorSource::names_between(size_t begin, size_t end) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < infos_.size(); ++i) {
    const std::vector<Extent> own = extents(infos_[i], placements_[i]);
    const bool is_hit = std::ranges::any_of(
        own, [&](const Extent& e) { return e.file == 0 && e.begin < end && e.end > begin; });
    if (is_hit) names.push_back(infos_[i].name);
  }
  return names;
}

std::string TensorSource::describe() const {
  const std::string files = files_.size() > 1 ? fmt::format("{} files, ", files_.size()) : "";
  return fmt::format("{} ({}{} tensor{}, {})", label_, files, infos_.size(),
                     infos_.size() == 1 ? "" : "s", format_bytes(total_bytes()));
}

TensorSource::Parts TensorSource::take_apart(std::unique_ptr<TensorSource> source) {
  Parts parts{std::move(source->files_), {}};
  for (size_t i = 0; i < source->infos_.size(); ++i) {
    Placement& where = source->placements_[i];
    parts.tensors.push_back(
        {std::move(source->infos_[i]), where.file, where.offset, std::move(where.strides)});
  }
  return parts;
}

}  // namespace snug::files
