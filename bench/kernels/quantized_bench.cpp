// Quantized weights: making them beside a read of the same bytes, and products with them beside two
// others: the whole weight dequantized and then multiplied, and a bfloat16 weight. Rounds go
// through all entries in turn; the best of each counts. Shapes are (rows, cols) of the weight, x
// (N, cols).
//   quantized_bench [seconds an entry, default 0.3] [quantize|products|gradients, default all]
// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/linalg/cpu_features.h"
#include "core/kernels/cpu/linalg/gemm.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/quantized.h"

namespace {

using namespace snug::kernels;
using namespace snug::kernels::cpu;

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

struct Entry {
  std::string name;
  std::function<void()> run;
  double best_seconds = 1e30;
};

void measure(std::vector<Entry>& entries, double seconds) {
  for (Entry& entry : entries) entry.run();
  const double start = now();
  const double budget = seconds * static_cast<double>(entries.size());
  for (int round = 0; round < 3 || now() - start < budget; ++round) {
    for (Entry& entry : entries) {
      const double before = now();
      entry.run();
      entry.best_seconds = std::min(entry.best_seconds, now() - before);
    }
  }
}

// Aligned, and touched before it is measured.
struct Memory {
  explicit Memory(int64_t bytes)
      : size((bytes + kPage - 1) / kPage * kPage),
        data(static_cast<char*>(std::aligned_alloc(kPage, static_cast<size_t>(size))), std::free) {
    std::memset(data.get(), 0, static_cast<size_t>(size));
  }
  void* get() const { return data.get(); }
  static constexpr int64_t kPage = 1 << 21;
  int64_t size;
  std::unique_ptr<char, void (*)(void*)> data;
};

Memory random_numbers(Scalar type, int64_t count, float spread) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> numbers(1 << 16);
  for (float& x : numbers) x = normal(random);
  Memory memory(count * scalar_bytes(type));
  for (int64_t i = 0; i < count; i += 1 << 16) {
    cast(numbers.data(), Scalar::F32, static_cast<char*>(memory.get()) + i * scalar_bytes(type),
         type, std::min<int64_t>(1 << 16, count - i), 1);
  }
  return memory;
}

// All bytes once: what a file in the page cache costs at least.
uint64_t read_all(const void* data, int64_t bytes) {
  uint64_t total = 0;
  const auto* words = static_cast<const uint64_t*>(data);
#pragma omp parallel for reduction(^ : total)
  for (int64_t i = 0; i < bytes / 8; ++i) total ^= words[i];
  return total;
}

void copy_all(void* to, const void* from, int64_t bytes) {
  parallel_ranges(bytes, 1, 0, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

void quantizing(Scalar type, const char* type_name, double seconds) {
  const int64_t rows = 11008, cols = 4096, bytes = rows * cols * scalar_bytes(type);
  const Memory source = random_numbers(type, rows * cols, 0.02f);
  const Memory target(bytes);
  volatile uint64_t sink = 0;
  std::vector<Entry> entries = {
      {"read", [&] { sink = sink ^ read_all(source.get(), bytes); }},
      {"memcpy", [&] { copy_all(target.get(), source.get(), bytes); }},
  };
  for (const QuantizedFormat format : {QuantizedFormat::Nf4, QuantizedFormat::Nf4DoubleQuant,
                                       QuantizedFormat::Fp4, QuantizedFormat::Int8}) {
    entries.push_back({traits(format).name, [&, format] {
                         Quantizer quantizer(format, rows, cols, target.get());
                         const auto* from = static_cast<const char*>(source.get());
                         for (int64_t row = 0; row < rows; row += 512) {  // as a file is read
                           const int64_t count = std::min<int64_t>(512, rows - row) * cols;
                           quantizer.add(from, type, count);
                           from += count * scalar_bytes(type);
                         }
                         quantizer.finish();
                       }});
  }
  measure(entries, seconds);
  std::printf("quantizing %lldx%lld from %s\n", static_cast<long long>(rows),
              static_cast<long long>(cols), type_name);
  for (const Entry& e : entries) {
    std::printf("  %-8s %8.2f ms %7.2f GB/s of the source\n", e.name.c_str(), e.best_seconds * 1e3,
                double(bytes) / e.best_seconds / 1e9);
  }
  std::fflush(stdout);
}

struct Shape {
  int64_t rows, cols;
};

// One product four ways: from the codes, the same with double quantization, dequantized whole
// first, and with a bfloat16 weight.
void product(const Shape& shape, int64_t tokens, bool transposed, double seconds) {
  const auto [rows, cols] = shape;
  const int64_t n = transposed ? rows : cols, k = transposed ? cols : rows;
  const Memory weight = random_numbers(Scalar::BF16, rows * cols, 0.02f);
  const Memory a = random_numbers(Scalar::BF16, tokens * k, 1.0f), c(tokens * n * 2);
  const Memory dequantized(rows * cols * 2);
  GemmArgs stored{.m = tokens, .n = n, .k = k};
  stored.a = {a.get(), Scalar::BF16, k, 1};
  stored.b = {weight.get(), Scalar::BF16, transposed ? 1 : cols, transposed ? cols : 1};
  stored.c = c.get();
  stored.c_type = Scalar::BF16;
  stored.c_row_stride = n;

  std::vector<Entry> entries;
  std::vector<Memory> blobs;
  std::vector<std::unique_ptr<QuantizedMatrix>> matrices;
  const Memory scratch(64 << 20);
  const auto from_codes = [&](QuantizedFormat format) {
    blobs.emplace_back(quantized_bytes(format, rows, cols));
    Quantizer quantizer(format, rows, cols, blobs.back().get());
    quantizer.add(weight.get(), Scalar::BF16, rows * cols);
    quantizer.finish();
    matrices.push_back(std::make_unique<QuantizedMatrix>(
        quantized_matrix(format, rows, cols, blobs.back().get())));
    GemmArgs args = stored;
    args.b.data = nullptr;
    args.quantized_b = matrices.back().get();
    entries.push_back({traits(format).name, [args, &scratch] { gemm(args, scratch.get()); }});
  };
  for (const QuantizedFormat format :
       {QuantizedFormat::Nf4, QuantizedFormat::Nf4DoubleQuant, QuantizedFormat::Int8}) {
    from_codes(format);
  }
  GemmArgs whole = stored;
  whole.b.data = dequantized.get();
  entries.push_back({"dequantized", [&, whole] {
                       dequantize(*matrices[0], 0, rows * cols, dequantized.get(), Scalar::BF16);
                       gemm(whole, scratch.get());
                     }});
  entries.push_back({"bf16", [&] { gemm(stored, scratch.get()); }});
  measure(entries, seconds);
  const double flops = 2.0 * double(tokens) * double(rows) * double(cols);
  std::printf("%5lld x %5lld %5lld", static_cast<long long>(rows), static_cast<long long>(cols),
              static_cast<long long>(tokens));
  for (const Entry& e : entries) std::printf(" %10.3f", e.best_seconds * 1e3);
  std::printf(" %8.2f %8.2f %8.0f\n", entries[3].best_seconds / entries[0].best_seconds,
              entries[4].best_seconds / entries[0].best_seconds,
              flops / entries[0].best_seconds / 1e9);
  std::fflush(stdout);
}

void products(bool transposed, double seconds) {
  std::printf("%s, bfloat16, ms\n%13s %5s", transposed ? "x W^T" : "d_out W", "weight", "N");
  for (const char* name : {"nf4", "nf4-dq", "int8", "dequantized", "bf16"}) {
    std::printf(" %10.11s", name);
  }
  std::printf(" %8s %8s %8s\n", "of deq.", "of bf16", "Gflop/s");
  for (const Shape shape : {Shape{576, 576}, {1536, 576}, {4096, 4096}, {11008, 4096}}) {
    for (const int64_t tokens : {1, 8, 64, 256, 1024}) {
      product(shape, tokens, transposed, seconds);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.3;
  const std::string what = argc > 2 ? argv[2] : "all";
  std::printf("%s\n", cpu_summary().c_str());
  if (what == "all" || what == "quantize") {
    quantizing(Scalar::BF16, "bfloat16", seconds);
    quantizing(Scalar::F32, "float32", seconds);
    quantizing(Scalar::F16, "float16", seconds);
  }
  if (what == "all" || what == "products") products(true, seconds);
  if (what == "all" || what == "gradients") products(false, seconds);
}
