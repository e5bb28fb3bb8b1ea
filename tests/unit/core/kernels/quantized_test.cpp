// Quantized weights against bitsandbytes (tests/oracles/quantization.py), bit for bit, and against
// themselves where elements come in other stretches, from other threads or through other
// instruction sets.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/quantized.h"

#include <cfloat>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/dynamic_map.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace quantized_test {

using Json = nlohmann::json;
using Bytes = std::vector<uint8_t>;

const Json& oracle() {
  static const Json data =
      Json::parse(std::ifstream(SNUG_SOURCE_DIR "/tests/data/kernels/quantization.json"));
  return data;
}

// Numbers of `size` bytes from their hexadecimal digits, highest first.
Bytes from_hex(const std::string& digits, int64_t size) {
  Bytes bytes(digits.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t number = i / size * size, byte = number + size - 1 - i % size;
    bytes[byte] = static_cast<uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

Scalar type_named(const std::string& name) {
  return name == "F32" ? Scalar::F32 : name == "BF16" ? Scalar::BF16 : Scalar::F16;
}

double number_at(const Bytes& bytes, Scalar type, int64_t i) {
  if (type == Scalar::F32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  Array one(type, 1);
  std::memcpy(one.data(), bytes.data() + 2 * i, 2);
  return one[0];
}

// The same bits, or two NaNs, or two zeros (bitsandbytes gives FP4's second zero a sign where rows
// are not whole blocks, and none where they are), or 0 for what is below float32's normal numbers.
void expect_same_numbers(const Bytes& got, const Bytes& expected, Scalar type,
                         const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  const int64_t size = scalar_bytes(type);
  for (int64_t i = 0; i < static_cast<int64_t>(got.size()) / size; ++i) {
    if (std::memcmp(got.data() + i * size, expected.data() + i * size, size) == 0) continue;
    const double g = number_at(got, type, i), e = number_at(expected, type, i);
    if (std::isnan(g) && std::isnan(e)) continue;
    if (e == 0 && std::abs(g) < FLT_MIN) continue;
    FAIL() << what << ": number " << i << " is " << g << ", expected " << e;
  }
}

Bytes part(const Bytes& blob, int64_t begin, int64_t count) {
  return {blob.begin() + begin, blob.begin() + begin + count};
}

struct Stretches {
  int64_t length;
  int threads;
};

Bytes quantize(QuantizedFormat format, int64_t rows, int64_t cols, const Bytes& weight, Scalar type,
               Stretches stretches) {
  // What the bytes held before must not show.
  Bytes blob(quantized_bytes(format, rows, cols) + 64, 0x5a);
  Quantizer quantizer(format, rows, cols, blob.data(), stretches.threads);
  const int64_t elements = rows * cols;
  for (int64_t i = 0; i < elements; i += stretches.length) {
    const int64_t count = std::min(stretches.length, elements - i);
    // Each stretch is a copy of its own: nothing beyond it may be read.
    const Bytes copy = part(weight, i * scalar_bytes(type), count * scalar_bytes(type));
    quantizer.add(copy.data(), type, count);
  }
  quantizer.finish();
  EXPECT_EQ(part(blob, blob.size() - 64, 64), Bytes(64, 0x5a));
  blob.resize(blob.size() - 64);
  return blob;
}

Bytes numbers_of(QuantizedFormat format, int64_t rows, int64_t cols, const Bytes& blob, Scalar type,
                 int64_t begin, int64_t count) {
  Bytes out(count * scalar_bytes(type) + 16, 0x5a);
  dequantize(quantized_matrix(format, rows, cols, blob.data()), begin, count, out.data(), type);
  EXPECT_EQ(part(out, out.size() - 16, 16), Bytes(16, 0x5a));
  out.resize(out.size() - 16);
  return out;
}

void expect_parts(const Bytes& blob, QuantizedFormat format, int64_t rows, int64_t cols,
                  const Json& expected, const std::string& what) {
  const QuantizedLayout layout = quantized_layout(format, rows, cols);
  const Bytes codes = from_hex(expected["codes"], 1);
  EXPECT_EQ(part(blob, 0, codes.size()), codes) << what;
  if (!traits(format).nested) {
    expect_same_numbers(part(blob, layout.scales, 4 * layout.num_scales),
                        from_hex(expected["scales"], 4), Scalar::F32, what + " scales");
    return;
  }
  EXPECT_EQ(part(blob, layout.scales, layout.num_scales), from_hex(expected["scale_codes"], 1))
      << what;
  EXPECT_EQ(part(blob, layout.nested_scales, 4 * layout.num_nested_scales),
            from_hex(expected["nested_scales"], 4))
      << what;
  EXPECT_EQ(part(blob, layout.mean, 4), from_hex(expected["mean"], 4)) << what;
}

// Both halves' choice of instructions.
template <class Body>
void on_every_table(const Body& body) {
  for (const Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
    if (isa > best_isa()) continue;
    const ScopedIsa scoped(isa);
    const ScopedKernels kernels(kernels_for(isa));
    SCOPED_TRACE(isa_name(isa));
    body();
  }
}

constexpr QuantizedFormat kFormats[] = {QuantizedFormat::Nf4, QuantizedFormat::Nf4DoubleQuant,
                                        QuantizedFormat::Fp4, QuantizedFormat::Fp4DoubleQuant,
                                        QuantizedFormat::Int8};

TEST(Quantized, BytesAreThoseOfBitsandbytes) {
  on_every_table([] {
    for (const Json& c : oracle()["cases"]) {
      const int64_t rows = c["rows"], cols = c["cols"];
      const Scalar type = type_named(c["type"]);
      const Bytes weight = from_hex(c["weight"], scalar_bytes(type));
      for (const QuantizedFormat format : kFormats) {
        const char* name = traits(format).name;
        if (!c.contains(name)) continue;
        const std::string what =
            c["what"].get<std::string>() + ", " + c["type"].get<std::string>() + ", " + name;
        for (const Stretches stretches :
             {Stretches{1 << 20, 1}, Stretches{1, 1}, Stretches{50, 2}, Stretches{131, 2}}) {
          const Bytes blob = quantize(format, rows, cols, weight, type, stretches);
          expect_parts(blob, format, rows, cols, c[name], what);
          if (HasFailure()) return;
        }
      }
    }
  });
}

TEST(Quantized, NumbersAreThoseOfBitsandbytes) {
  on_every_table([] {
    for (const Json& c : oracle()["cases"]) {
      const int64_t rows = c["rows"], cols = c["cols"];
      const Scalar type = type_named(c["type"]);
      const Bytes weight = from_hex(c["weight"], scalar_bytes(type));
      for (const QuantizedFormat format : kFormats) {
        const char* name = traits(format).name;
        if (!c.contains(name)) continue;
        const Bytes blob = quantize(format, rows, cols, weight, type, {1 << 20, 1});
        for (const Scalar out : kAllTypes) {
          if (!c[name].contains(name_of(out))) continue;
          const std::string what =
              c["what"].get<std::string>() + ", " + name + " as " + name_of(out);
          expect_same_numbers(numbers_of(format, rows, cols, blob, out, 0, rows * cols),
                              from_hex(c[name][name_of(out)], scalar_bytes(out)), out, what);
          if (HasFailure()) return;
        }
      }
    }
  });
}

TEST(Quantized, ManyScalesAreQuantizedAsBitsandbytesDoes) {
  const Json& expected = oracle()["many_scales"];
  const Bytes scales = from_hex(expected["scales"], 4);
  const auto blocks = static_cast<int64_t>(scales.size()) / 4;
  Bytes weight;
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t i = 0; i < kWeightBlock; ++i) {
      weight.insert(weight.end(), scales.begin() + 4 * b, scales.begin() + 4 * b + 4);
    }
  }
  const QuantizedFormat format = QuantizedFormat::Nf4DoubleQuant;
  for (const int threads : {1, 2, 3}) {
    const Bytes blob = quantize(format, blocks, kWeightBlock, weight, Scalar::F32, {999, threads});
    const QuantizedLayout layout = quantized_layout(format, blocks, kWeightBlock);
    EXPECT_EQ(part(blob, layout.scales, blocks), from_hex(expected["scale_codes"], 1));
    EXPECT_EQ(part(blob, layout.nested_scales, 4 * layout.num_nested_scales),
              from_hex(expected["nested_scales"], 4));
    EXPECT_EQ(part(blob, layout.mean, 4), from_hex(expected["mean"], 4));
  }
}

TEST(Quantized, EveryIsaGivesTheSameBytes) {
  const int64_t rows = 37, cols = 1100;
  for (const Scalar type : kAllTypes) {
    Array values = random_array(type, rows * cols, 5, 0.02);
    values.set(3, 0.9);
    const auto* data = static_cast<const uint8_t*>(values.data());
    const Bytes weight(data, data + rows * cols * scalar_bytes(type));
    for (const QuantizedFormat format : kFormats) {
      Bytes first;
      on_every_table([&] {
        const Bytes blob = quantize(format, rows, cols, weight, type, {70001, 2});
        if (first.empty()) first = blob;
        EXPECT_EQ(blob, first) << traits(format).name << " " << name_of(type);
      });
    }
  }
}

TEST(Quantized, AnyStretchIsDequantized) {
  const int64_t rows = 7, cols = 331;
  const Array values = random_array(Scalar::F32, rows * cols, 6);
  const auto* data = static_cast<const uint8_t*>(values.data());
  const Bytes weight(data, data + rows * cols * 4);
  on_every_table([&] {
    for (const QuantizedFormat format : kFormats) {
      const Bytes blob = quantize(format, rows, cols, weight, Scalar::F32, {1 << 20, 1});
      for (const Scalar type : kAllTypes) {
        const int64_t size = scalar_bytes(type);
        const Bytes all = numbers_of(format, rows, cols, blob, type, 0, rows * cols);
        for (const int64_t begin : {0, 1, 2, 31, 63, 64, 65, 331, 700, 2316}) {
          for (const int64_t count : {0, 1, 2, 33, 64, 129, 1500}) {
            if (begin + count > rows * cols) continue;
            EXPECT_EQ(numbers_of(format, rows, cols, blob, type, begin, count),
                      part(all, begin * size, count * size))
                << traits(format).name << " " << begin << " " << count;
          }
        }
      }
    }
  });
}

TEST(Quantized, SaysWhichElementsAreMissing) {
  const std::vector<float> x(100, 1.0f);
  Bytes blob(quantized_bytes(QuantizedFormat::Nf4, 10, 10));
  Quantizer quantizer(QuantizedFormat::Nf4, 10, 10, blob.data());
  quantizer.add(x.data(), Scalar::F32, 90);
  EXPECT_THROW(quantizer.finish(), std::exception);
  EXPECT_THROW(quantizer.add(x.data(), Scalar::F32, 11), std::exception);
  quantizer.add(x.data(), Scalar::F32, 10);
  quantizer.finish();
}

TEST(Quantized, FormatsHaveNames) {
  for (const QuantizedFormat format : kFormats) {
    EXPECT_EQ(quantized_format_named(traits(format).name), format);
  }
  EXPECT_EQ(quantized_format_named("nf5"), std::nullopt);
}

TEST(Quantized, MapIsThatOfBitsandbytes) {
  const Bytes map = from_hex(oracle()["scale_map"], 4);
  EXPECT_EQ(std::memcmp(map.data(), signed_dynamic_map().values, map.size()), 0);
}

}  // namespace quantized_test
}  // namespace snug::kernels::cpu
