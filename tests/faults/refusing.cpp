// Linked into the program to make build/faults/snug, of which one allocation of a tensor is
// refused.
//
//   SNUG_REFUSED        which, from 1; 0 refuses none
//   SNUG_REFUSED_ON     device or host: whose allocations are counted
//   SNUG_REFUSED_COUNT  a file for how many there were
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/memory/ledger.h"

namespace {

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Refusal {
  Refusal() { ledger.refuse_allocation(std::atoll(text_of("SNUG_REFUSED").c_str())); }
  ~Refusal() { std::ofstream(text_of("SNUG_REFUSED_COUNT")) << ledger.serial(); }
  snug::memory::Ledger& ledger = text_of("SNUG_REFUSED_ON") == "host"
                                     ? snug::memory::cpu_host_ledger()
                                     : snug::memory::cpu_ledger();
};
const Refusal refusal;

}  // namespace
