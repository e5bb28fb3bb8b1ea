// SPDX-License-Identifier: Apache-2.0
#include "core/simulated/death.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace snug::simulated {
namespace {

constexpr std::array<std::string_view, 3> kKinds{"launch", "copy", "collective"};

struct Death {
  Kind kind = Kind::Launch;
  int64_t number = 0;  // 0: none
};

Death planned_death() {
  const char* given = std::getenv("SNUG_SIMULATED_DEATH");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (given == nullptr || rank == nullptr) return {};
  int victim = 0;
  char kind[16] = "";
  int64_t number = 0;
  const bool is_read = std::sscanf(given, "%d:%15[a-z]:%ld", &victim, kind, &number) == 3;
  const auto* found = std::ranges::find(kKinds, kind);
  TORCH_CHECK(is_read && found != kKinds.end(), "SNUG_SIMULATED_DEATH=", given,
              " is no RANK:KIND:N, where KIND is launch, copy or collective");
  if (victim != std::atoi(rank)) return {};
  return {static_cast<Kind>(found - kKinds.begin()), number};
}

std::array<int64_t, kKinds.size()> works{};

}  // namespace

void come_to(Kind kind) {
  static const Death death = planned_death();
  const auto i = static_cast<size_t>(kind);
  if (++works[i] != death.number || kind != death.kind) return;
  std::fprintf(stderr, "simulated GPU: killed at %s %ld\n", kKinds[i].data(), death.number);
  ::kill(::getpid(), SIGKILL);
}

void append_works(const char* file) {
  std::ofstream out(file, std::ios::app);
  for (size_t i = 0; i < kKinds.size(); ++i)
    out << fmt::format("works/{} {} 0 0\n", kKinds[i], works[i]);
}

}  // namespace snug::simulated
