// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/quantized_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "core/kernels/dynamic_map.h"
#include "core/kernels/optimizers.h"
#include "core/optim/optimizer.h"

namespace snug::checkpoint {
namespace {

constexpr int64_t kBlock = kernels::kQuantizedBlock;
constexpr int64_t kDecodedAtATime = 256 * kBlock;

int64_t num_blocks(int64_t elements) { return (elements + kBlock - 1) / kBlock; }

// The inverse of box_name().
std::optional<PieceOf> parse_box(std::string_view text, const std::vector<int64_t>& whole_shape) {
  PieceOf piece = PieceOf::whole(whole_shape);
  const char *next = text.data(), *end = text.data() + text.size();
  const auto skip = [&](char c) { return next != end && *next++ == c; };
  const auto number = [&](int64_t& value) {
    const auto [stop, fault] = std::from_chars(next, end, value);
    next = stop;
    return fault == std::errc();
  };
  for (size_t d = 0; d < whole_shape.size(); ++d) {
    Span& range = piece.box[d];
    if (!skip('[') || !number(range.begin) || !skip(':') || !number(range.end) || !skip(']') ||
        range.begin < 0 || range.begin >= range.end || range.end > whole_shape[d])
      return std::nullopt;
  }
  piece.range = {0, piece.box_elements()};
  return next == end ? std::optional(piece) : std::nullopt;
}

uint8_t nearest_code(const float* map, float value) {
  const float* above = std::lower_bound(map, map + 256, value);
  if (above == map + 256) return 255;
  if (above == map || *above - value < value - *(above - 1))
    return static_cast<uint8_t>(above - map);
  return static_cast<uint8_t>(above - map - 1);
}

// Encodes one block and returns its scale.
float encode(const float* map, const float* values, int64_t count, uint8_t* codes) {
  float scale = 0;
  for (int64_t i = 0; i < count; ++i) scale = std::max(scale, std::abs(values[i]));
  for (int64_t i = 0; i < count; ++i)
    codes[i] = nearest_code(map, scale == 0 ? 0 : values[i] / scale);
  return scale;
}

}  // namespace

std::string box_name(const PieceOf& piece) {
  std::string name = "@";
  for (const Span& range : piece.box) name += fmt::format("[{}:{}]", range.begin, range.end);
  return name;
}

QuantizedState::QuantizedState(StoredTensors& files, const StoredTensor& codes, bool is_signed)
    : files_(files),
      codes_(codes),
      map_(is_signed ? kernels::signed_dynamic_map().values
                     : kernels::unsigned_dynamic_map().values) {}

std::optional<QuantizedState> QuantizedState::find(StoredTensors& files, const std::string& name,
                                                   const PieceOf& piece) {
  const StoredTensor* codes = files.find(Contents::Optimizer, name);
  if (codes == nullptr || codes->dtype != files::DType::U8 ||
      files::count_elements(codes->whole_shape) != piece.whole_elements())
    return std::nullopt;
  // The second moment is never negative.
  QuantizedState state(files, *codes, !name.ends_with("_sq"));
  const std::string scales = name + std::string(optim::kBlockStateSuffix);
  const StoredTensor* whole = files.find(Contents::Optimizer, scales);
  if (whole != nullptr && !state.add(*whole, PieceOf::whole(codes->whole_shape)))
    return std::nullopt;
  for (const StoredTensor* boxed : files.beginning_with(Contents::Optimizer, scales + "@")) {
    const auto box =
        parse_box(std::string_view(boxed->name).substr(scales.size() + 1), codes->whole_shape);
    if (!box || !state.add(*boxed, *box)) return std::nullopt;
  }
  return state.covers_all() ? std::optional(std::move(state)) : std::nullopt;
}

bool QuantizedState::add(const StoredTensor& scales, PieceOf box) {
  const int64_t count = files::count_elements(scales.whole_shape);
  if (scales.dtype != files::DType::F32 || count != num_blocks(box.box_elements())) return false;
  Blocks& blocks = blocks_.emplace_back(Blocks{std::move(box), std::vector<float>(count)});
  files_.read(scales, PieceOf::whole(scales.whole_shape), files::DType::F32, blocks.scales.data());
  return true;
}

bool QuantizedState::covers_all() const {
  Tiling tiling;
  for (size_t i = 0; i < blocks_.size(); ++i) tiling.add(blocks_[i].box, i);
  return tiling.is_complete();
}

void QuantizedState::decode(const PieceOf& piece, std::vector<uint8_t>& codes,
                            std::vector<float>& values) {
  const int64_t total = piece.num_elements();
  codes.resize(static_cast<size_t>(total));
  values.resize(static_cast<size_t>(total));
  files_.read(codes_, piece, files::DType::U8, codes.data());
  for (int64_t done = 0; done < total;) {
    const Run run = run_from(piece, done);
    std::optional<Run> found;
    const Blocks* from = nullptr;
    for (auto blocks = blocks_.begin(); !found; ++blocks) {
      SNUG_CHECK(blocks != blocks_.end(), "{}: element {} has no scale", codes_.name, run.in_whole);
      found = run_at(blocks->box, run.in_whole);
      from = &*blocks;
    }
    const int64_t to_end_of_block = kBlock - found->in_piece % kBlock;
    const int64_t count = std::min({run.count, found->count, to_end_of_block});
    const float scale = from->scales[static_cast<size_t>(found->in_piece / kBlock)];
    for (int64_t i = done; i < done + count; ++i)
      values[static_cast<size_t>(i)] = scale == 0 ? 0 : map_[codes[static_cast<size_t>(i)]] * scale;
    done += count;
  }
}

void QuantizedState::read(const PieceOf& piece, uint8_t* codes, float* scales) {
  std::vector<uint8_t> stored;
  std::vector<float> values;
  for (int64_t begin = 0; begin < piece.num_elements(); begin += kDecodedAtATime) {
    PieceOf part = piece;
    part.range.begin += begin;
    part.range.end = std::min(part.range.begin + kDecodedAtATime, piece.range.end);
    decode(part, stored, values);
    for (int64_t i = 0; i < part.num_elements(); i += kBlock)
      scales[(begin + i) / kBlock] = encode(
          map_, values.data() + i, std::min(kBlock, part.num_elements() - i), codes + begin + i);
  }
}

}  // namespace snug::checkpoint
