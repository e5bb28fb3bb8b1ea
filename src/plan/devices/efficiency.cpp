// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/efficiency.h"

namespace snug::plan {
namespace {

// Fitted on A100 alone, whose published samples are long enough to tell.
constexpr double kAttention = 0.4;
// Not fitted: no published step of the other generations waits for its links.
constexpr double kLinks = 0.8;

}  // namespace

Efficiency efficiency_of(recipe::Generation generation) {
  switch (generation) {
    case recipe::Generation::Volta:  // minGPT on four V100
      return {.products = 0.52, .attention = kAttention, .memory = 0.97};
    case recipe::Generation::Ampere:  // MPT on eight A100
      return {.products = 0.92, .attention = kAttention, .memory = 0.61};
    case recipe::Generation::Hopper:  // llmq on one and eight H100
      return {.products = 0.7, .attention = kAttention, .memory = 0.78};
    case recipe::Generation::Ada:        // llmq on one and four RTX 4090
    case recipe::Generation::Blackwell:  // not fitted: as Ada
      break;
  }
  return {.products = 0.95, .attention = kAttention, .memory = 1};
}

double efficiency_of(Link link, recipe::Generation generation) {
  // minGPT on four V100, with snug's traffic: weights in 16 bits.
  constexpr double kNvlinkOfVolta = 0.074;
  const bool is_volta = generation == recipe::Generation::Volta;
  return is_volta && link == Link::Nvlink ? kNvlinkOfVolta : kLinks;
}

}  // namespace snug::plan
