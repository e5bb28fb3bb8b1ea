// SPDX-License-Identifier: Apache-2.0
#include "files/weights/gguf/gguf_types.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace snug::files {
namespace {

constexpr std::array<std::pair<uint32_t, DType>, 18> kRead = {{
    {0, DType::F32},
    {1, DType::F16},
    {2, DType::Q4_0},
    {3, DType::Q4_1},
    {6, DType::Q5_0},
    {7, DType::Q5_1},
    {8, DType::Q8_0},
    {10, DType::Q2_K},
    {11, DType::Q3_K},
    {12, DType::Q4_K},
    {13, DType::Q5_K},
    {14, DType::Q6_K},
    {24, DType::I8},
    {25, DType::I16},
    {26, DType::I32},
    {27, DType::I64},
    {28, DType::F64},
    {30, DType::BF16},
}};

constexpr std::array<std::pair<uint32_t, const char*>, 16> kRefused = {{
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
    {39, "MXFP4"},
    {40, "NVFP4"},
    {41, "Q1_0"},
}};

}  // namespace

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
          "its type {} is not supported; use a file quantized as Q8_0, Q4_0 to Q5_1 or "
          "Q2_K to Q6_K, or one in F16, BF16 or F32",
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
