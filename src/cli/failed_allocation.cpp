// SPDX-License-Identifier: Apache-2.0
#include "cli/failed_allocation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/bytes.h"
#include "watch/machine/machine.h"

namespace {

std::atomic<size_t> bytes_refused = 0;

}  // namespace

// A sanitizer has operators of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The standard operator, which also notes the size. The standard operator delete frees malloc's
// memory.
void* operator new(size_t bytes) {
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  bytes_refused = bytes;
  throw std::bad_alloc();
}
#endif

namespace snug {

std::string failed_allocation_text() {
  const machine::Memory memory = machine::memory();
  const auto use = machine::process_use(::getpid());
  const size_t bytes = bytes_refused;
  std::string text = fmt::format(
      "out of memory on the host: cannot allocate {} for the program's own data (samples, tokens, "
      "files); this process holds {}, and {} of {} are available",
      bytes > 0 ? format_bytes(static_cast<int64_t>(bytes)) : "memory",
      format_bytes(use ? use->resident : 0), format_bytes(memory.available),
      format_bytes(memory.total));
  if (memory.limit)
    text += fmt::format(" (limit of the control group: {})", format_bytes(*memory.limit));
  return text;
}

}  // namespace snug
