// The shares of data sheets' rates that training programs reach, by kind of operation, GPU
// generation and link. They are fitted on published speeds of other programs, the same for all of
// them; docs/benchmarks.md says on which, and how far off the plans of programs are that were not
// fitted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/gpus.h"

namespace snug::plan {

// The shares of a GPU's rates that programs reach.
struct Efficiency {
  double products = 1;   // matrix products
  double attention = 1;  // fused attention
  double memory = 1;     // everything that is bound by memory
};
Efficiency efficiency_of(recipe::Generation generation);

// Links, and the share of a link's rate that collectives reach.
enum class Link { Nvlink, Pcie, Network };
double efficiency_of(Link link, recipe::Generation generation);

}  // namespace snug::plan
