// Bytes on their way between this process and another, in messages of bounded length with a few
// under way at once. MPI's counts are ints, and what has arrived so far can be worked on.
// Used by the communication thread alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <limits>

namespace snug::dist {

// Throws CommunicationError with MPI's own words.
void check_mpi(int code, const char* call);

class Stream {
 public:
  enum class Way { Send, Receive };
  static constexpr int64_t kChunkBytes = 1 << 20;

  // `data`, `bytes` of it, to or from rank `peer` of the world.
  Stream(Way way, void* data, int64_t bytes, int peer, int tag, int64_t chunk_bytes = kChunkBytes);

  // Message i does not go to the i-th stretch of data but to stretch i modulo `num_places`.
  void wrap(int64_t num_places) { num_places_ = num_places; }
  // Only the first `bytes` may be touched yet. Without a call: all.
  void allow(int64_t bytes) { allowed_ = bytes; }

  // Starts what can be and sees what has ended; whether anything has.
  bool progress();
  int64_t finished_bytes() const { return finished_; }
  bool is_done() const { return finished_ == bytes_; }
  int peer() const { return peer_; }

 private:
  // A long message begins when the receiver has answered, and on a slow link that answer waits
  // behind what else is on its way: so many are agreed on ahead that the link never has to.
  static constexpr int64_t kMessagesAtOnce = 16;

  int64_t length_at(int64_t offset) const;
  void start_message();

  Way way_;
  char* data_;
  int64_t bytes_;
  int peer_;
  int tag_;
  int64_t chunk_;
  int64_t num_places_ = 0;
  int64_t allowed_ = std::numeric_limits<int64_t>::max();
  int64_t started_ = 0;
  int64_t finished_ = 0;
  std::array<MPI_Request, kMessagesAtOnce> requests_{};
};

}  // namespace snug::dist
