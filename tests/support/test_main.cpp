// main of every test program but those of several ranks.
// SPDX-License-Identifier: Apache-2.0
#include "support/drawn_cases.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  snug::tests::draw_tests();
  return RUN_ALL_TESTS();
}
