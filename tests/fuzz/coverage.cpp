// g++ calls __sanitizer_cov_trace_pc at each block; libFuzzer wants a counter a block. The counters
// here go by the caller's address, so two blocks may share one. With SNUG_FUZZ_BLOCKS set, the
// offsets of the blocks that were reached are written to that file at the end.
// SPDX-License-Identifier: Apache-2.0
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);

namespace {

constexpr size_t kCounters = size_t{1} << 16;
uint8_t counters[kCounters];

// The addresses seen, in an open hash table; only while someone wants to know.
constexpr size_t kBlocks = size_t{1} << 20;
uintptr_t* blocks = nullptr;

size_t hash(uintptr_t address, int bits) {
  return static_cast<size_t>((address * 0x9E3779B97F4A7C15u) >> (64 - bits));
}

void remember(uintptr_t address) {
  size_t at = hash(address, 20);
  while (blocks[at] != 0 && blocks[at] != address) at = (at + 1) % kBlocks;
  blocks[at] = address;
}

int base_of_program(dl_phdr_info* info, size_t, void* base) {
  *static_cast<uintptr_t*>(base) = info->dlpi_addr;
  return 1;  // the program comes first
}

void write_blocks() {
  uintptr_t base = 0;
  dl_iterate_phdr(base_of_program, &base);
  std::FILE* file = std::fopen(std::getenv("SNUG_FUZZ_BLOCKS"), "w");
  if (file == nullptr) return;
  for (size_t i = 0; i < kBlocks; ++i)
    if (blocks[i] != 0) std::fprintf(file, "%zx\n", static_cast<size_t>(blocks[i] - base));
  std::fclose(file);
}

__attribute__((constructor)) void begin() {
  __sanitizer_cov_8bit_counters_init(counters, counters + kCounters);
  if (std::getenv("SNUG_FUZZ_BLOCKS") == nullptr) return;
  blocks = static_cast<uintptr_t*>(std::calloc(kBlocks, sizeof *blocks));
  std::atexit(write_blocks);
}

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
  const auto address = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  ++counters[hash(address, 16)];
  if (blocks != nullptr) remember(address);
}

// Compared numbers with fractions, which g++ tells of and libFuzzer does not ask for.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
