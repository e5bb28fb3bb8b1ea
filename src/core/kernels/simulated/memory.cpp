// Every load and store of a kernel: g++ calls the functions at the end. Not itself compiled with
// -fsanitize=thread.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/simulated/machine.h"

namespace snug::kernels::cuda {
thread_local float shared_memory[kMostSharedBytes / sizeof(float)] = {};
}

namespace snug::kernels::simulated {
namespace {

// The last one to read or write a granule, and who else read it since the block's last barrier.
struct Access {
  uint32_t interval = 0;
  uint16_t thread = 0;
  bool other_lanes = false;   // of its warp
  bool other_warps = false;   // of its block
  bool other_blocks = false;  // in this launch
};

struct Granule {
  Access writer, reader;
  bool defined = false;
};

struct Area {
  const char* begin = nullptr;
  int64_t bytes = 0;
  int64_t granule = 1;
  bool is_shared = false;
  std::vector<Granule> granules;  // none: only the ends are checked
};

std::map<const char*, Area>& areas() {
  static std::map<const char*, Area> all;
  return all;
}

// What __shared__ makes of a variable is thread-local: the program's own segment of those.
Area find_shared() {
  Area area{.granule = 4, .is_shared = true};
  const auto look = [](dl_phdr_info* object, size_t, void* found) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      if (object->dlpi_phdr[i].p_type != PT_TLS) continue;
      auto& area = *static_cast<Area*>(found);
      area.begin = static_cast<const char*>(object->dlpi_tls_data);
      area.bytes = static_cast<int64_t>(object->dlpi_phdr[i].p_memsz);
    }
    return 1;  // the first one is the program
  };
  dl_iterate_phdr(look, &area);
  area.granules.resize(static_cast<size_t>(area.bytes / area.granule + 1));
  return area;
}

Area& shared_area() {
  static Area area = find_shared();
  return area;
}

bool is_inside(const Area& area, const char* address, int64_t size) {
  return address >= area.begin && address + size <= area.begin + area.bytes;
}

bool is_of_this_warp(const Access& access) { return access.thread / 32 == machine.thread / 32; }

// Whether nothing orders what that thread of this block did before what the running one does.
bool is_unordered(const Access& earlier) {
  return earlier.interval >= (is_of_this_warp(earlier) ? machine.interval : machine.block_interval);
}

// Whether the thread that runs touches what `earlier` touched with nothing that orders the two.
bool conflicts(const Area& area, const Access& earlier) {
  if (earlier.interval < machine.launch_first) return false;
  if (earlier.interval < machine.block_first) return !area.is_shared;
  return earlier.thread != machine.thread && is_unordered(earlier);
}

struct Touch {
  const char* address;
  int64_t size;
  bool writes;
};

std::string described(const Touch& touch) {
  return fmt::format("kernel {}: {} {} {} bytes at {}", machine.kernel,
                     thread_name(machine.interval, machine.thread),
                     touch.writes ? "writes" : "reads", touch.size,
                     static_cast<const void*>(touch.address));
}

[[noreturn]] void fail_race(const Touch& touch, const Access& other, const char* did) {
  fail(fmt::format("{}, which {} {} with no barrier between the two", described(touch),
                   thread_name(other.interval, other.thread), did));
}

[[noreturn]] void fail_outside(const Touch& touch) {
  std::string nearest = "there are no buffers";
  int64_t least = INT64_MAX;
  for (const auto& [begin, area] : areas()) {
    const int64_t behind = touch.address + touch.size - (begin + area.bytes);
    const int64_t before = begin - touch.address;
    const int64_t distance = std::max(behind, before);
    if (distance >= least) continue;
    least = distance;
    nearest = fmt::format("{} bytes {} the nearest buffer, {} bytes at {}", distance,
                          behind >= before ? "beyond the end of" : "before", area.bytes,
                          static_cast<const void*>(begin));
  }
  fail(described(touch) + ", outside every buffer: " + nearest);
}

void write(const Area& area, Granule& granule, const Touch& touch) {
  if (conflicts(area, granule.writer)) fail_race(touch, granule.writer, "wrote");
  const Access& reader = granule.reader;
  const bool by_others =
      (reader.other_lanes && is_unordered(reader)) ||
      (reader.other_warps && reader.interval >= machine.block_interval) ||
      (!area.is_shared && reader.other_blocks && reader.interval >= machine.launch_first);
  if (conflicts(area, reader) || by_others) fail_race(touch, reader, "read");
  granule.writer = {machine.interval, static_cast<uint16_t>(machine.thread)};
  granule.defined = true;
}

void read(const Area& area, Granule& granule, const Touch& touch) {
  const bool defined =
      area.is_shared ? granule.writer.interval >= machine.block_first : granule.defined;
  if (!defined) fail(described(touch) + ", which nobody has written");
  if (conflicts(area, granule.writer)) fail_race(touch, granule.writer, "wrote");
  const Access before = granule.reader;
  granule.reader = {machine.interval, static_cast<uint16_t>(machine.thread)};
  if (before.interval < machine.launch_first) return;
  granule.reader.other_blocks = before.other_blocks || before.interval < machine.block_first;
  if (before.interval < machine.block_interval) return;
  const bool of_this_warp = is_of_this_warp(before);
  granule.reader.other_warps = before.other_warps || !of_this_warp;
  granule.reader.other_lanes = of_this_warp && is_unordered(before) &&
                               (before.other_lanes || before.thread != machine.thread);
}

void touch_granules(Area& area, const Touch& touch) {
  if (area.granules.empty()) return;
  const int64_t first = (touch.address - area.begin) / area.granule;
  const int64_t last = (touch.address + touch.size - 1 - area.begin) / area.granule;
  for (int64_t i = first; i <= last; ++i) {
    Granule& granule = area.granules[static_cast<size_t>(i)];
    touch.writes ? write(area, granule, touch) : read(area, granule, touch);
  }
}

Area* buffer_at(const Touch& touch) {
  auto next = areas().upper_bound(touch.address);
  if (next == areas().begin()) return nullptr;
  Area& area = std::prev(next)->second;
  return is_inside(area, touch.address, touch.size) ? &area : nullptr;
}

void check(const void* address, int64_t size, bool writes, bool whole) {
  if (!machine.running) return;
  const Touch touch = {static_cast<const char*>(address), size, writes};
  if (touch.address >= machine.stack_begin && touch.address < machine.stack_end) return;
  if (touch.address >= machine.arguments && touch.address < machine.arguments_end) return;
  if (whole && reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(size) != 0)
    fail(described(touch) + ", which is not a multiple of them");
  if (is_inside(shared_area(), touch.address, size)) {
    const auto* dynamic = reinterpret_cast<const char*>(cuda::shared_memory);
    const int64_t at = touch.address - dynamic;
    if (at >= 0 && at < cuda::kMostSharedBytes && at + size > machine.shared_bytes)
      fail(fmt::format("{}, beyond the {} bytes of shared memory that it asked for",
                       described(touch), machine.shared_bytes));
    return touch_granules(shared_area(), touch);
  }
  Area* area = buffer_at(touch);
  if (area == nullptr) fail_outside(touch);
  (writes ? machine.counts->bytes_written : machine.counts->bytes_read) += size;
  touch_granules(*area, touch);
}

}  // namespace

Buffer::Buffer(const void* start, int64_t bytes, int64_t granule, bool defined)
    : start_(static_cast<const char*>(start)) {
  Area area{.begin = start_, .bytes = bytes, .granule = granule};
  area.granules.resize(static_cast<size_t>(bytes / granule + 1), Granule{.defined = defined});
  areas()[start_] = std::move(area);
}

Buffer::~Buffer() { areas().erase(start_); }

HugeBuffer::HugeBuffer(int64_t bytes)
    : start_(mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
      bytes_(bytes) {
  if (start_ == MAP_FAILED) throw Fault(fmt::format("no {} bytes of addresses", bytes));
  const auto* begin = static_cast<const char*>(start_);
  areas()[begin] = {.begin = begin, .bytes = bytes};
}

HugeBuffer::~HugeBuffer() {
  areas().erase(static_cast<const char*>(start_));
  munmap(start_, static_cast<size_t>(bytes_));
}

void touch(const char* kernel, const void* start, int64_t bytes, Use use) {
  const Touch touch = {static_cast<const char*>(start), bytes, use != Use::Reads};
  Area* area = buffer_at(touch);
  if (area == nullptr)
    throw Fault(fmt::format("kernel {} {} {} bytes that are in no buffer", kernel,
                            touch.writes ? "writes" : "reads", bytes));
  if (area->granules.empty()) return;
  const auto first = static_cast<size_t>((touch.address - area->begin) / area->granule);
  for (size_t i = first; i < first + static_cast<size_t>(bytes / area->granule); ++i) {
    if (use == Use::Reads && !area->granules[i].defined)
      throw Fault(fmt::format("kernel {} reads what nobody has written", kernel));
    if (use != Use::Reads) area->granules[i].defined = use == Use::Writes;
  }
}

}  // namespace snug::kernels::simulated

// What -fsanitize=thread calls.
extern "C" {
#define SNUG_HOOKS(bytes)                                                                        \
  void __tsan_read##bytes(void* at) { snug::kernels::simulated::check(at, bytes, false, true); } \
  void __tsan_write##bytes(void* at) { snug::kernels::simulated::check(at, bytes, true, true); } \
  void __tsan_unaligned_read##bytes(void* at) {                                                  \
    snug::kernels::simulated::check(at, bytes, false, false);                                    \
  }                                                                                              \
  void __tsan_unaligned_write##bytes(void* at) {                                                 \
    snug::kernels::simulated::check(at, bytes, true, false);                                     \
  }
SNUG_HOOKS(1)
SNUG_HOOKS(2)
SNUG_HOOKS(4)
SNUG_HOOKS(8)
SNUG_HOOKS(16)
void __tsan_read_range(void* at, size_t bytes) {
  snug::kernels::simulated::check(at, static_cast<int64_t>(bytes), false, false);
}
void __tsan_write_range(void* at, size_t bytes) {
  snug::kernels::simulated::check(at, static_cast<int64_t>(bytes), true, false);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
