// The one thread of the process that calls MPI, from MPI_Init to MPI_Finalize, so that MPI need not
// know of threads. It takes the works that other threads submit a little further in turn, and backs
// off while nothing moves, so that it takes no core from those who compute.
//
// When a work cannot end, because a rank is gone or has not joined it in time, all fail: the ranks
// no longer agree on what comes next.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "dist/mpi_work.h"
#include "dist/status_page.h"
#include "dist/world.h"

namespace snug::dist {

class MpiThread {
 public:
  // Returns when MPI has been joined. Throws where that fails, or where MPI knows of other
  // processes than the environment.
  MpiThread(const Position& position, const WorldOptions& options);
  // Leaves MPI together with the others, unless something has failed or an exception is on its way:
  // then the process ends without, and its launcher takes the others down.
  ~MpiThread();
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  void submit(std::shared_ptr<Work> work);
  // Throws CommunicationError where it failed. On the thread that gives up what the work holds.
  void wait(Work& work);

  StatusPage& page();
  // Tags from 0 to here.
  int last_tag() const;
  [[noreturn]] void abort(int exit_code);

 private:
  struct Shared;  // with the thread, which outlives this object when MPI hangs

  std::shared_ptr<Shared> shared_;
};

}  // namespace snug::dist
