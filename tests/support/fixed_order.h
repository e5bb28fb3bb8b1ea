// While it lives, libtorch's operators on a GPU add in a fixed order, so that two runs can be
// compared bit by bit; one that has no such order throws (where it should only warn, flash
// attention would keep its own). Flash attention's backward then takes more memory than a plan
// says. A cpu always adds in a fixed order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Context.h>

namespace snug::tests {

class FixedOrder {
 public:
  FixedOrder() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  ~FixedOrder() { at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false); }
  FixedOrder(const FixedOrder&) = delete;
  FixedOrder& operator=(const FixedOrder&) = delete;
};

}  // namespace snug::tests
