// The shares of data sheets' rates that training programs reach, by kind of operation, GPU
// generation and link. They are fitted on published speeds of other programs, the same for all of
// them; docs/benchmarks.md says on which, and how far off the plans of programs are that were not
// fitted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/gpus.h"

namespace snug::plan {

// Of a GPU's rates.
struct Efficiency {
  double products = 1;   // matrix products
  double attention = 1;  // fused attention
  double memory = 1;     // everything that is bound by memory
};
Efficiency efficiency_of(recipe::Generation generation);

// Of a link's rate, for collectives.
enum class Link { Nvlink, Pcie, Network };
double efficiency_of(Link link, recipe::Generation generation);

}  // namespace snug::plan
