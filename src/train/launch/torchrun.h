// Under torchrun: MPI cannot join processes that torchrun has started, but on one machine the first
// of them can start its own, while the others wait for how it ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "train/launch/command.h"

namespace snug::launch {

struct TorchrunPlace {
  int rank = 0;
  int size = 1;
};

// Of its variables. Throws UserError where they name several machines.
TorchrunPlace torchrun_place(const Environment& get);

// One of torchrun's processes on this machine, at a meeting point that the others know too.
class Waiting {
 public:
  explicit Waiting(const Environment& get);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // For rank 0, before it starts its own processes.
  void open();
  // For rank 0: tells all others, those that come late too, for as long as it lives.
  void tell(int exit_code) const;
  // For the others: rank 0's exit code, or 1 if it ends without one.
  int wait_for_exit_code() const;

 private:
  std::string name_;
  int socket_ = -1;
};

}  // namespace snug::launch
