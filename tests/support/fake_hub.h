// Starts tests/support/fake_hub.py and stops it with the test; the child ends too if the test is
// killed, since its standard input then does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace snug::test {

class FakeHub {
 public:
  // Also a Python package index at /simple (see the script) of the files in `packages`, a folder a
  // project.
  explicit FakeHub(const std::string& packages = "");
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;
  ~FakeHub();

  std::string endpoint() const;
  std::string secure_endpoint() const;   // over TLS; redirects all to endpoint()
  static std::string certificate();      // its file
  void reset() const;                    // forgets the log and which faults were shown
  std::vector<std::string> log() const;  // one request a line: server, path, Range, Authorization

  // The bytes that a file of this length has on the hub.
  static std::string content(int64_t length);

 private:
  int pid_ = -1;
  int input_ = -1;
  int port_ = 0, secure_port_ = 0;
};

}  // namespace snug::test
