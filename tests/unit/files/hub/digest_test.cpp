// SPDX-License-Identifier: Apache-2.0
#include "files/hub/digest.h"

#include <gtest/gtest.h>

namespace snug::hub {
namespace {

// FIPS 180-4 examples.
TEST(Digest, KnownHashes) {
  Digest sha256(Digest::Kind::Sha256);
  sha256.update("a");
  sha256.update("bc");
  EXPECT_EQ(sha256.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest sha1(Digest::Kind::Sha1);
  sha1.update("abc");
  EXPECT_EQ(sha1.hex(), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

}  // namespace
}  // namespace snug::hub
