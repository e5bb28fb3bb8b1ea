// Arrays as the kernels' tests have them, in the simulated device's memory, and what CPU and device
// must agree on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "core/kernels/simulated/simulation.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::simulated {

using cpu::Array;

class DeviceArray : public Array {
 public:
  explicit DeviceArray(const Array& from, bool defined = true)
      : Array(from), buffer_(data(), size() * scalar_bytes(type()), defined) {}
  // Starts undefined: what is read must have been written.
  DeviceArray(Scalar type, int64_t count, int shift = 0)
      : DeviceArray(Array(type, count, shift), false) {}

 private:
  Buffer buffer_;
};

template <class T>
class DeviceVector {
 public:
  explicit DeviceVector(std::vector<T> from, bool defined = true)
      : values(std::move(from)),
        buffer_(values.data(), static_cast<int64_t>(values.size() * sizeof(T)), defined) {}
  T* data() { return values.data(); }
  std::vector<T> values;

 private:
  Buffer buffer_;
};

// Scratch of that many bytes, aligned as device memory is.
class Workspace {
 public:
  explicit Workspace(int64_t bytes)
      : memory_(static_cast<size_t>(bytes / 256 + 2)), buffer_(data(), bytes, /*defined=*/false) {}
  void* data() { return memory_.data(); }

 private:
  struct alignas(256) Line {
    char bytes[256];
  };
  std::vector<Line> memory_;
  Buffer buffer_;
};

// body() with several orders of threads.
template <class Body>
void over_seeds(const Body& body) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    settings().seed = seed;
    SCOPED_TRACE(seed);
    body();
  }
}

// Equal but for the order of float32 sums, whose addends are of size 1, and for one rounding to a
// shorter type that this turns around.
inline void expect_close(const Array& device, const Array& cpu, const std::string& what,
                         double absolute = 1e-5) {
  EXPECT_TRUE(device.guards_intact()) << what;
  const double one_step = cpu.type() == Scalar::F32 ? 0 : 2 * cpu::unit_roundoff(cpu.type());
  const auto expected = cpu.values();
  cpu::expect_near(device.values(), expected, cpu::within(expected, one_step + 1e-5, absolute),
                   what);
}

inline void expect_equal(const Array& device, const Array& cpu, const std::string& what) {
  EXPECT_TRUE(device.guards_intact()) << what;
  for (int64_t i = 0; i < cpu.size(); ++i) {
    if (std::isnan(cpu[i]) && std::isnan(device[i])) continue;
    ASSERT_EQ(device[i], cpu[i]) << what << ": element " << i;
  }
}

inline const cudaStream_t kStream = nullptr;

}  // namespace snug::kernels::simulated
