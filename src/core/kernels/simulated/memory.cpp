// Every load and store of a kernel: g++ calls the functions at the end. Not itself compiled with
// -fsanitize=thread.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>
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
  uint32_t interval = 0;  // none
  uint16_t thread = 0;
  bool other_lanes = false;   // of its warp
  bool other_warps = false;   // of its block
  bool other_blocks = false;  // in this launch
};

struct Granule {
  Access writer, reader;
  uint32_t other_reader = 0;  // the interval of one on another stream
  bool defined = false;
};

// One granule, until threads touch parts of it.
struct Line {
  Granule whole;
  std::vector<Granule> parts;
  int64_t part_bytes = 0;
};

constexpr int64_t kLineBytes = 512;  // what the caching allocator rounds blocks to
constexpr int64_t kMostLines = int64_t{1} << 17;
// Larger areas are never cut into parts: in them only the ends, and streams, are checked.
constexpr int64_t kMostCutBytes = int64_t{8} << 20;

struct Area {
  const char* begin = nullptr;
  int64_t bytes = 0;
  bool is_shared = false;
  bool only_ends = false;
  int64_t line_bytes = kLineBytes;
  std::vector<Line> lines;

  bool is_cut() const { return bytes <= kMostCutBytes; }
  void make_lines(bool defined) {
    while (bytes > line_bytes * kMostLines) line_bytes *= 2;
    lines.assign(static_cast<size_t>((bytes + line_bytes - 1) / line_bytes),
                 Line{.whole = {.defined = defined}});
  }
};

std::map<const char*, Area>& areas() {
  static auto* all =
      new std::map<const char*, Area>;  // the thread may outlive the program's objects
  return *all;
}

// What __shared__ makes of a variable is thread-local: the segment of those of this thread, in the
// program or library that the kernels are linked into.
Area find_shared() {
  Area area{.is_shared = true};
  const auto look = [](dl_phdr_info* object, size_t, void* found) {
    auto& area = *static_cast<Area*>(found);
    const auto* one = reinterpret_cast<const char*>(cuda::shared_memory);
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      if (object->dlpi_phdr[i].p_type != PT_TLS) continue;
      area.begin = static_cast<const char*>(object->dlpi_tls_data);
      area.bytes = static_cast<int64_t>(object->dlpi_phdr[i].p_memsz);
      if (area.begin != nullptr && one >= area.begin && one < area.begin + area.bytes) return 1;
    }
    return 0;
  };
  dl_iterate_phdr(look, &area);
  area.make_lines(false);
  return area;
}

Area& shared_area() {
  static auto* area = new Area(find_shared());
  return *area;
}

bool is_inside(const Area& area, const char* address, int64_t size) {
  return address >= area.begin && address + size <= area.begin + area.bytes;
}

// What was begun so far: its first interval, and where it stands among the streams.
struct Work {
  uint32_t first_interval;
  uint32_t stream, epoch;
  const char* name;
  const char* of;
};
std::vector<Work> works;
const std::vector<uint32_t>* known_epochs = nullptr;  // to the work that runs; none: all

const Work& work_of(uint32_t interval) {
  static size_t last = 0;
  const auto begins_later = [&](size_t i) {
    return i >= works.size() || works[i].first_interval > interval;
  };
  if (last < works.size() && works[last].first_interval <= interval && begins_later(last + 1))
    return works[last];
  const auto later =
      std::upper_bound(works.begin(), works.end(), interval,
                       [](uint32_t i, const Work& w) { return i < w.first_interval; });
  last = static_cast<size_t>(later - works.begin()) - 1;
  return works[last];
}

// Whether that interval, of an earlier launch, came before the work that runs whatever streams do.
bool is_known(uint32_t interval) {
  static std::pair<uint32_t, uint32_t> last;  // known to which work
  if (known_epochs == nullptr || interval == 0) return true;
  const Work& running = works.back();
  if (last == std::pair(interval, running.first_interval)) return true;
  const Work& earlier = work_of(interval);
  const bool known =
      earlier.stream == running.stream ||
      (earlier.stream < known_epochs->size() && earlier.epoch <= (*known_epochs)[earlier.stream]);
  if (known) last = {interval, running.first_interval};
  return known;
}

bool is_of_this_warp(const Access& access) { return access.thread / 32 == machine.thread / 32; }

// Whether nothing orders what that thread of this block did before what the running one does.
bool is_unordered(const Access& earlier) {
  return earlier.interval >= (is_of_this_warp(earlier) ? machine.interval : machine.block_interval);
}

// Whether the thread that runs touches what `earlier` touched with nothing that orders the two.
bool conflicts(const Area& area, const Access& earlier) {
  if (earlier.interval < machine.launch_first)
    return !area.is_shared && !is_known(earlier.interval);
  if (!area.is_shared && !area.is_cut()) return false;
  if (earlier.interval < machine.block_first) return !area.is_shared;
  return earlier.thread != machine.thread && is_unordered(earlier);
}

struct Touch {
  const char* address;
  int64_t size;
  bool writes;
  bool passes = false;  // a read that only hands on what is there
};

std::string described(const Touch& touch) {
  const char* of = works.empty() ? "" : works.back().of;
  const std::string who = machine.running
                              ? fmt::format("kernel {}{}: {}", machine.kernel, of,
                                            thread_name(machine.interval, machine.thread))
                              : fmt::format("{}{}", machine.kernel, of);
  return fmt::format("{} {} {} bytes at {}", who, touch.writes ? "writes" : "reads", touch.size,
                     static_cast<const void*>(touch.address));
}

[[noreturn]] void fail_race(const Touch& touch, const Access& other, const char* did) {
  if (other.interval >= machine.launch_first)
    fail(fmt::format("{}, which {} {} with no barrier between the two", described(touch),
                     thread_name(other.interval, other.thread), did));
  const Work& earlier = work_of(other.interval);
  fail(fmt::format("{} on stream {}, which {}{} on stream {} {} with no event between the two",
                   described(touch), works.back().stream, earlier.name, earlier.of, earlier.stream,
                   did));
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
  if (conflicts(area, reader) || (by_others && (area.is_shared || area.is_cut())))
    fail_race(touch, reader, "read");
  if (!area.is_shared && !is_known(granule.other_reader))
    fail_race(touch, {.interval = granule.other_reader}, "read");
  granule.writer = {machine.interval, static_cast<uint16_t>(machine.thread)};
  granule.defined = true;
}

void read(const Area& area, Granule& granule, const Touch& touch) {
  const bool defined =
      area.is_shared ? granule.writer.interval >= machine.block_first : granule.defined;
  if (!defined && !touch.passes) fail(described(touch) + ", which nobody has written");
  if (conflicts(area, granule.writer)) fail_race(touch, granule.writer, "wrote");
  const Access before = granule.reader;
  granule.reader = {machine.interval, static_cast<uint16_t>(machine.thread)};
  if (before.interval < machine.launch_first) {
    if (!area.is_shared && !is_known(before.interval)) granule.other_reader = before.interval;
    return;
  }
  granule.reader.other_blocks = before.other_blocks || before.interval < machine.block_first;
  if (before.interval < machine.block_interval) return;
  const bool of_this_warp = is_of_this_warp(before);
  granule.reader.other_warps = before.other_warps || !of_this_warp;
  granule.reader.other_lanes = of_this_warp && is_unordered(before) &&
                               (before.other_lanes || before.thread != machine.thread);
}

// Into parts of which a touch of [begin, end) covers whole ones.
void cut(Line& line, int64_t line_bytes, int64_t begin, int64_t end) {
  const int64_t most = std::min<int64_t>((begin | end) & -(begin | end), 16);
  const int64_t bytes = (begin | end) == 0 ? 16 : most;
  if (line.parts.empty()) {
    line.parts.assign(static_cast<size_t>(line_bytes / bytes), line.whole);
  } else if (bytes < line.part_bytes) {
    std::vector<Granule> finer(static_cast<size_t>(line_bytes / bytes));
    for (size_t i = 0; i < finer.size(); ++i)
      finer[i] = line.parts[i * static_cast<size_t>(bytes) / static_cast<size_t>(line.part_bytes)];
    line.parts = std::move(finer);
  } else {
    return;
  }
  line.part_bytes = bytes;
}

// body(granule) for each that the touch covers, those of an area that is never cut in whole lines.
template <class Body>
void for_granules(Area& area, const Touch& touch, const Body& body) {
  if (area.only_ends || touch.size == 0) return;
  const int64_t first = touch.address - area.begin, last = first + touch.size;
  for (int64_t at = first / area.line_bytes * area.line_bytes; at < last; at += area.line_bytes) {
    Line& line = area.lines[static_cast<size_t>(at / area.line_bytes)];
    const int64_t begin = std::max(first - at, int64_t{0});
    const int64_t end = std::min(last - at, area.line_bytes);
    const bool is_whole = begin == 0 && (end == area.line_bytes || at + end == area.bytes);
    if (is_whole && line.parts.empty()) {
      body(line.whole);
      continue;
    }
    if (!area.is_shared && !area.is_cut()) {
      // What others do elsewhere in the line is unknown, and a part of it says nothing of the rest.
      line.whole.defined = true;
      continue;
    }
    cut(line, area.line_bytes, begin, end);
    for (int64_t i = begin / line.part_bytes; i * line.part_bytes < end; ++i)
      body(line.parts[static_cast<size_t>(i)]);
    if (is_whole && !machine.running) {
      line.whole = line.parts.front();
      line.parts = {};
    }
  }
}

void touch_granules(Area& area, const Touch& touch) {
  for_granules(area, touch, [&](Granule& granule) {
    touch.writes ? write(area, granule, touch) : read(area, granule, touch);
  });
}

// The bytes that the launch has read and written so far: of each 64 a bit each.
struct Seen {
  uint64_t read = 0, written = 0;
};
std::unordered_map<uintptr_t, Seen> seen;

void count(const Touch& touch) {
  const auto first = reinterpret_cast<uintptr_t>(touch.address);
  const auto last = first + static_cast<uintptr_t>(touch.size);
  int64_t& bytes = touch.writes ? machine.counts->bytes_written : machine.counts->bytes_read;
  for (uintptr_t at = first; at < last;) {
    const uintptr_t end = std::min(last, at / 64 * 64 + 64), length = end - at;
    Seen& line = seen[at / 64];
    uint64_t& mask = touch.writes ? line.written : line.read;
    const uint64_t bits = (length == 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1) << (at % 64);
    // What it has written itself is near.
    bytes += std::popcount(bits & ~mask & (touch.writes ? ~uint64_t{0} : ~line.written));
    mask |= bits;
    at = end;
  }
}

Area* last_found = nullptr;  // while it is there

Area* buffer_at(const Touch& touch) {
  if (last_found != nullptr && is_inside(*last_found, touch.address, touch.size)) return last_found;
  auto next = areas().upper_bound(touch.address);
  if (next == areas().begin()) return nullptr;
  Area& area = std::prev(next)->second;
  if (!is_inside(area, touch.address, touch.size)) return nullptr;
  return last_found = &area;
}

void remove_area(const void* start) {
  last_found = nullptr;
  areas().erase(static_cast<const char*>(start));
}

void check(const void* address, int64_t size, bool writes, bool whole) {
  if (!runs_kernels || !machine.running) return;
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
  count(touch);
  touch_granules(*area, touch);
}

}  // namespace

Buffer::Buffer(const void* start, int64_t bytes, bool defined)
    : start_(static_cast<const char*>(start)) {
  Area area{.begin = start_, .bytes = bytes};
  area.make_lines(defined);
  areas()[start_] = std::move(area);
}

Buffer::~Buffer() { remove_area(start_); }

HugeBuffer::HugeBuffer(int64_t bytes)
    : start_(mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
      bytes_(bytes) {
  if (start_ == MAP_FAILED) throw Fault(fmt::format("no {} bytes of addresses", bytes));
  const auto* begin = static_cast<const char*>(start_);
  areas()[begin] = {.begin = begin, .bytes = bytes, .only_ends = true};
}

HugeBuffer::~HugeBuffer() {
  remove_area(start_);
  munmap(start_, static_cast<size_t>(bytes_));
}

void begin_work(const char* name, const Place& place) {
  works.push_back({start_interval(), place.stream, place.epoch, name, place.of});
  known_epochs = place.known;
  machine.kernel = name;
  begin_counts(name);
  seen.clear();
}

namespace {

Area& area_of(const Touch& touch) {
  Area* area = buffer_at(touch);
  if (area == nullptr) fail_outside(touch);
  return *area;
}

void set_defined(const Touch& touch, bool defined) {
  for_granules(area_of(touch), touch, [&](Granule& granule) { granule.defined = defined; });
}

}  // namespace

void touch(const void* start, int64_t bytes, Use use) {
  if (bytes == 0) return;
  const Touch touch = {static_cast<const char*>(start), bytes,
                       use == Use::Writes || use == Use::Spoils, use == Use::Passes};
  touch_granules(area_of(touch), touch);
  if (machine.counts != nullptr && use != Use::Spoils)
    (touch.writes ? machine.counts->bytes_written : machine.counts->bytes_read) += bytes;
  if (use == Use::Spoils) set_defined(touch, false);
}

void move(const void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  touch(from, bytes, Use::Passes);
  if (to == nullptr) return;
  touch(to, bytes, Use::Writes);
  // Line by line: what is undefined stays so.
  const Touch source = {static_cast<const char*>(from), bytes, false};
  Area& area = area_of(source);
  const int64_t begin = source.address - area.begin;
  for (int64_t at = 0, size = 0; at < bytes; at += size) {
    size = std::min(bytes - at, area.line_bytes - (begin + at) % area.line_bytes);
    bool defined = true;
    for_granules(area, {source.address + at, size, false},
                 [&](const Granule& granule) { defined &= granule.defined; });
    if (!defined) set_defined({static_cast<const char*>(to) + at, size, true}, false);
  }
}

void add_block(const void* start, int64_t bytes) {
  const auto* begin = static_cast<const char*>(start);
  Area area{.begin = begin, .bytes = bytes};
  area.make_lines(false);
  areas()[begin] = std::move(area);
  touch(start, bytes, Use::Spoils);
}

void remove_blocks(const void* start, int64_t bytes) {
  const auto* begin = static_cast<const char*>(start);
  auto next = areas().lower_bound(begin);
  if (next != areas().begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin)
    --next;
  while (next != areas().end() && next->first < begin + bytes) {
    const char* block = next->first;
    ++next;
    remove_block(block);
  }
}

void remove_block(const void* start) {
  const auto found = areas().find(static_cast<const char*>(start));
  if (found == areas().end()) return;
  touch(start, found->second.bytes, Use::Spoils);
  remove_area(start);
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
