// The only thread that calls MPI, from MPI_Init to MPI_Finalize, so that MPI needs no thread
// support. It advances submitted works in turn, and backs off while nothing moves, so as not to
// take a core from computing threads.
//
// If one work cannot complete, because a rank is gone or has not joined in time, all works fail:
// the ranks no longer agree on what comes next.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "core/dist/mpi/mpi_work.h"
#include "core/dist/status_page.h"
#include "core/dist/world.h"

namespace snug::dist {

class MpiThread {
 public:
  // Returns after MPI_Init. Throws if that fails, or if MPI's processes differ from those in the
  // environment.
  MpiThread(const Position& position, const WorldOptions& options);
  // Finalizes MPI together with the other ranks. After a failure or during an exception the process
  // ends without it, and its launcher ends the others.
  ~MpiThread();
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  void submit(std::shared_ptr<Work> work);
  // Throws CommunicationError if it failed. Releases the tensors that the work holds, on the
  // calling thread.
  void wait(Work& work);

  StatusPage& page();
  // The largest tag.
  int last_tag() const;
  [[noreturn]] void abort(int exit_code);

 private:
  struct Shared;  // shared with the thread, which outlives this object if MPI hangs

  std::shared_ptr<Shared> shared_;
};

}  // namespace snug::dist
