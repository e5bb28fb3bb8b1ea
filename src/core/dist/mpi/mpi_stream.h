// A stream of bytes to or from another process, in messages of bounded length with several in
// flight: MPI counts are ints, and data can be processed as it arrives. Only for the communication
// thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <limits>

namespace snug::dist {

// Throws CommunicationError with MPI's message.
void check_mpi(int code, const char* call);

class Stream {
 public:
  enum class Way { Send, Receive };
  static constexpr int64_t kChunkBytes = 1 << 20;

  // Sends or receives `bytes` of `data`, to or from rank `peer` of the world.
  Stream(Way way, void* data, int64_t bytes, int peer, int tag, int64_t chunk_bytes = kChunkBytes);

  // Stores message i in slot i modulo `num_places` instead of slot i.
  void wrap(int64_t num_places) { num_places_ = num_places; }
  // Allows access to only the first `bytes` for now. Without a call: to all.
  void allow(int64_t bytes) { allowed_ = bytes; }

  // Starts and completes messages where possible; returns whether any completed.
  bool progress();
  int64_t finished_bytes() const { return finished_; }
  bool is_done() const { return finished_ == bytes_; }
  int peer() const { return peer_; }

 private:
  // A long message starts only after the receiver's reply, which on a slow link queues behind other
  // traffic; with this many messages in flight the link is never idle.
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
