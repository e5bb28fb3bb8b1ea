// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/bytes.h"
#include "machine/kernel_files.h"

namespace snug::machine {

bool in_container() {
  std::error_code error;
  for (const char* sign : {"/.dockerenv", "/run/.containerenv"})
    if (std::filesystem::exists(sign, error)) return true;
  if (std::getenv("container") != nullptr) return true;
  const std::string first = kernel_text("/proc/1/cgroup");
  return std::ranges::any_of(std::initializer_list<const char*>{"docker", "kubepods", "lxc"},
                             [&](const char* word) { return first.find(word) != first.npos; });
}

std::string describe() {
  const Processor processor = machine::processor();
  const Gpus gpus = machine::gpus();
  std::string text =
      fmt::format("{}, {} core{}, {}", processor.name, processor.cores,
                  processor.cores == 1 ? "" : "s", format_bytes(machine::memory().total));
  for (const Gpu& gpu : gpus.gpus) text += fmt::format(", {}", gpu.name);
  return text;
}

}  // namespace snug::machine
