// What the tests of this folder share: buffers that end at a forbidden page, numbers in every
// storage type, and the tables of kernels that can run here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/cpu/linalg/cpu_features.h"
#include "core/kernels/cpu/linalg/gemm.h"
#include "core/kernels/cpu/linalg/isa/kernels.h"

namespace snug::kernels::cpu {

const Kernels& emulated_avx512_kernels();

struct NamedKernels {
  std::string name;
  const Kernels* kernels;
};

inline std::vector<NamedKernels> runnable_kernels() {
  std::vector<NamedKernels> list = {{"portable", &portable_kernels()},
                                    {"emulated_avx512", &emulated_avx512_kernels()}};
  for (Isa isa : {Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx}) {
    if (isa <= best_isa()) list.push_back({isa_name(isa), &kernels_for(isa)});
  }
  return list;
}

// Reading or writing one byte beyond the end faults at once. With Align 64 up to 63 bytes are
// slack.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(int64_t bytes, int64_t align = 1) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t rounded = (bytes + align - 1) / align * align;
    const int64_t body = (rounded + page - 1) / page * page;
    mapped_ = static_cast<size_t>(body + page);
    void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(base);
    mprotect(base_ + body, static_cast<size_t>(page), PROT_NONE);
    data_ = base_ + body - rounded;
  }
  ~GuardedBuffer() { munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  char* data() const { return data_; }

 private:
  char* base_;
  char* data_;
  size_t mapped_;
};

inline double half_to_double(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const double sign = half & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}

inline double read_number(const void* data, Scalar type, int64_t i) {
  if (type == Scalar::F32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  if (type == Scalar::F16) return half_to_double(bits);
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

// Fills with numbers the type holds exactly: a few significant bits and a small exponent.
inline void fill(void* data, Scalar type, int64_t count, std::mt19937& random) {
  std::uniform_int_distribution<int> sixteenths(-32, 32);
  for (int64_t i = 0; i < count; ++i) {
    const float value = float(sixteenths(random)) / 16.f;
    if (type == Scalar::F32) {
      // All 24 bits, so that float32 storage is tested as such.
      static_cast<float*>(data)[i] = value + float(sixteenths(random)) * 0x1.234p-20f;
    } else if (type == Scalar::BF16) {
      static_cast<uint16_t*>(data)[i] = uint16_t(std::bit_cast<uint32_t>(value) >> 16);
    } else {
      const uint32_t bits = std::bit_cast<uint32_t>(value);
      const int exponent = int(bits >> 23 & 255) - 112;
      static_cast<uint16_t*>(data)[i] =
          value == 0.f
              ? 0
              : uint16_t(bits >> 16 & 0x8000) | uint16_t(exponent << 10 | (bits >> 13 & 1023));
    }
  }
}

// Half the distance between neighbours, relative.
inline double unit_roundoff(Scalar type) {
  return type == Scalar::F32 ? 0x1p-24 : type == Scalar::BF16 ? 0x1p-8 : 0x1p-11;
}

inline const char* scalar_name(Scalar type) {
  return type == Scalar::F32 ? "f32" : type == Scalar::BF16 ? "bf16" : "f16";
}

}  // namespace snug::kernels::cpu
