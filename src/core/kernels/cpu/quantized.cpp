// Blocks are shared out over threads; each block's codes and scale are its own bytes.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/quantized.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "core/kernels/cpu/four_bit_coder.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/dynamic_map.h"

namespace snug::kernels::cpu {
namespace {

// torch.sum of float32 as one thread adds it up: four vectors of eight lanes side by side; each in
// short runs that are added into longer ones, in four levels; then the four, the vectors left over,
// the elements left over, and the lanes one by one.
class SumInTorchOrder {
 public:
  static float of(const float* x, int64_t count) {
    const int64_t vectors = count / kSumLanes, rows = vectors / kSide;
    Level total = SumInTorchOrder(x, rows).total_;
    Vector sum = total[0];
    for (int64_t v = rows * kSide; v < vectors; ++v) add(sum, x + v * kSumLanes);
    for (int64_t side = 1; side < kSide; ++side) add(sum, total[side].data());
    float result = 0;
    for (int64_t i = vectors * kSumLanes; i < count; ++i) result += x[i];
    for (const float lane : sum) result += lane;
    return result;
  }

 private:
  static constexpr int64_t kSumLanes = 8, kSide = 4, kLevels = 4;
  using Vector = std::array<float, kSumLanes>;
  using Level = std::array<Vector, kSide>;

  SumInTorchOrder(const float* x, int64_t rows) {
    const int64_t power = std::max<int64_t>(4, ceil_log2(rows) / kLevels);
    const int64_t step = int64_t{1} << power;
    std::array<Level, kLevels> levels{};
    int64_t row = 0;
    while (row + step <= rows) {
      for (const int64_t end = row + step; row < end; ++row) add(levels[0], x, row);
      for (int64_t level = 1; level < kLevels; ++level) {
        for (int64_t side = 0; side < kSide; ++side) {
          add(levels[level][side], levels[level - 1][side].data());
        }
        levels[level - 1] = {};
        if ((row & ((step - 1) << (level * power))) != 0) break;
      }
    }
    for (; row < rows; ++row) add(levels[0], x, row);
    for (int64_t level = 1; level < kLevels; ++level) {
      for (int64_t side = 0; side < kSide; ++side) {
        add(levels[0][side], levels[level][side].data());
      }
    }
    total_ = levels[0];
  }

  static int64_t ceil_log2(int64_t x) {
    int64_t power = 0;
    while ((int64_t{1} << power) < x) ++power;
    return power;
  }
  static void add(Vector& sum, const float* x) {
    for (int64_t i = 0; i < kSumLanes; ++i) sum[i] += x[i];
  }
  static void add(Level& sums, const float* x, int64_t row) {
    for (int64_t side = 0; side < kSide; ++side) {
      add(sums[side], x + (row * kSide + side) * kSumLanes);
    }
  }

  Level total_{};
};

// The code of the map's value next to the middle of each of 65536 steps from -1 to 1.
const std::vector<uint8_t>& codes_of_steps() {
  static const std::vector<uint8_t> codes = [] {
    const float* values = signed_dynamic_map().values;
    std::vector<uint8_t> result(65536);
    int code = 0;
    for (int step = 0; step < 65536; ++step) {
      const double middle = step / 65535.0 * 2 - 1;
      while (code < 255 && (double{values[code]} + values[code + 1]) / 2 < middle) ++code;
      result[step] = static_cast<uint8_t>(code);
    }
    return result;
  }();
  return codes;
}

// The step that a number falls in: (x + 1) / 2 * 65535 + 1/2, the last two operations rounded once.
uint16_t step_of(float x) {
  if (x != x) return 0;
  const float share = (std::clamp(x, -1.0f, 1.0f) + 1.0f) * 0.5f;
  return static_cast<uint16_t>(static_cast<float>(double{share} * 65535.0 + 0.5));
}

void quantize_scale_block(const float* scales, int64_t count, float mean, uint8_t* codes,
                          float* absmax) {
  *absmax = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(scales[i] - mean);
    if (magnitude > *absmax) *absmax = magnitude;
  }
  std::fill_n(codes, count, uint8_t{0});
  if (*absmax == 0) return;
  const std::vector<uint8_t>& code_of_step = codes_of_steps();
  const float inverse = 1.0f / *absmax;
  for (int64_t i = 0; i < count; ++i)
    codes[i] = code_of_step[step_of((scales[i] - mean) * inverse)];
}

}  // namespace

Quantizer::Quantizer(QuantizedFormat format, int64_t rows, int64_t cols, void* bytes,
                     int num_threads)
    : format_(format),
      layout_(quantized_layout(format, rows, cols)),
      elements_(rows * cols),
      block_(traits(format).block(cols)),
      bytes_(static_cast<uint8_t*>(bytes)),
      num_threads_(num_threads) {
  if (traits(format).nested) {
    unquantized_scales_.resize(static_cast<size_t>(layout_.num_scales));
    scales_ = unquantized_scales_.data();
  } else {
    scales_ = reinterpret_cast<float*>(bytes_ + layout_.scales);
  }
  // What lies between the parts is 0, so that the same weight is always the same bytes.
  for (const int64_t end : {layout_.scales, layout_.nested_scales, layout_.mean, layout_.bytes}) {
    const int64_t padding = std::min(end, kPartAlignment);
    std::memset(bytes_ + end - padding, 0, static_cast<size_t>(padding));
  }
}

void Quantizer::add(const void* elements, Scalar type, int64_t count) {
  const auto waiting = static_cast<int64_t>(waiting_.size());
  SNUG_CHECK(taken_ + waiting + count <= elements_, "{} elements after {} of a weight of {}", count,
             taken_ + waiting, elements_);
  const char* from = static_cast<const char*>(elements);
  const auto widen = [&](int64_t number) {  // the next elements join those that wait
    const size_t old = waiting_.size();
    waiting_.resize(old + static_cast<size_t>(number));
    SNUG_FOR_ISA(cast_range)(from, type, waiting_.data() + old, Scalar::F32, 0, number);
    from += number * scalar_bytes(type);
    count -= number;
  };
  if (waiting > 0) {
    widen(std::min(count, block_ - waiting));
    if (static_cast<int64_t>(waiting_.size()) < block_) return;
    quantize_blocks(waiting_.data(), Scalar::F32, 1);
    waiting_.clear();
  }
  const int64_t blocks = block_ > 0 ? count / block_ : 0;
  quantize_blocks(from, type, blocks);
  from += blocks * block_ * scalar_bytes(type);
  count -= blocks * block_;
  if (count > 0) widen(count);
}

void Quantizer::quantize_blocks(const void* elements, Scalar type, int64_t blocks) {
  const int64_t first = block_ > 0 ? taken_ / block_ : 0;
  taken_ += blocks * block_;
  if (!traits(format_).four_bits()) {
    const Int8Rows rows{.elements = elements,
                        .type = type,
                        .cols = block_,
                        .codes = reinterpret_cast<int8_t*>(bytes_) + first * block_,
                        .scales = scales_ + first};
    const auto range = SNUG_FOR_ISA(quantize_int8_rows);
    parallel_ranges(blocks, block_, num_threads_,
                    [&](int64_t begin, int64_t end) { range(rows, begin, end); });
    return;
  }
  const FourBitBlocks list{.elements = elements,
                           .type = type,
                           .coder = &coder_of(format_),
                           .codes = bytes_ + first * kWeightBlock / 2,
                           .scales = scales_ + first};
  const auto range = SNUG_FOR_ISA(quantize_4bit_blocks);
  parallel_ranges(blocks, kWeightBlock, num_threads_,
                  [&](int64_t begin, int64_t end) { range(list, begin, end); });
}

// Fewer than 64 elements. Their scale is never 0, and they are divided by it.
void Quantizer::quantize_last_block() {
  const FourBitCoder& coder = coder_of(format_);
  float absmax = 0;
  for (const float x : waiting_) {
    const float magnitude = std::abs(x);
    if (magnitude > absmax || magnitude != magnitude) absmax = magnitude;
  }
  if (absmax < 1e-38f) absmax = 1e-38f;
  scales_[taken_ / kWeightBlock] = absmax;
  if (waiting_.size() % 2 != 0) waiting_.push_back(0);
  const auto code = [&](float x) {
    // Where the scale is infinity or NaN, so may the quotient be NaN, which is above all borders.
    const float scaled = x / absmax;
    int rank = 0;
    while (rank < 15 && !(scaled <= coder.borders[rank])) ++rank;
    return coder.code_of_rank[rank];
  };
  uint8_t* codes = bytes_ + taken_ / 2;
  for (size_t i = 0; i < waiting_.size(); i += 2) {
    *codes++ = static_cast<uint8_t>(code(waiting_[i]) << 4 | code(waiting_[i + 1]));
  }
}

void Quantizer::quantize_scales() {
  const float* scales = unquantized_scales_.data();
  const int64_t count = layout_.num_scales;
  const float mean = SumInTorchOrder::of(scales, count) / static_cast<float>(count);
  std::memcpy(bytes_ + layout_.mean, &mean, sizeof mean);
  uint8_t* codes = bytes_ + layout_.scales;
  auto* nested = reinterpret_cast<float*>(bytes_ + layout_.nested_scales);
  parallel_ranges(layout_.num_nested_scales, kScaleBlock, num_threads_,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      const int64_t at = b * kScaleBlock;
                      quantize_scale_block(scales + at, std::min(kScaleBlock, count - at), mean,
                                           codes + at, nested + b);
                    }
                  });
}

void Quantizer::finish() {
  const auto waiting = static_cast<int64_t>(waiting_.size());
  SNUG_CHECK(taken_ + waiting == elements_, "{} of a weight's {} elements came", taken_ + waiting,
             elements_);
  if (waiting > 0) quantize_last_block();
  if (traits(format_).nested && elements_ > 0) quantize_scales();
  waiting_ = {};
  unquantized_scales_ = {};
}

void dequantize(const QuantizedMatrix& weight, int64_t begin, int64_t count, void* out, Scalar type,
                int num_threads) {
  const int64_t elements = weight.rows * weight.cols;
  SNUG_CHECK(begin >= 0 && count >= 0 && begin + count <= elements,
             "elements {} to {} of a weight of {}", begin, begin + count, elements);
  const auto kernel = active_kernels().dequantize;
  parallel_ranges(count, 1, num_threads, [&](int64_t first, int64_t last) {
    kernel({.weight = &weight,
            .first = begin + first,
            .count = last - first,
            .out = static_cast<char*>(out) + first * scalar_bytes(type),
            .type = type});
  });
}

}  // namespace snug::kernels::cpu
