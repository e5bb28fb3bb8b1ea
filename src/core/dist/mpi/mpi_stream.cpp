// SPDX-License-Identifier: Apache-2.0
#include "core/dist/mpi/mpi_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace snug::dist {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationError(fmt::format("{}: {}", call, text));
}

Stream::Stream(Way way, void* data, int64_t bytes, int peer, int tag, int64_t chunk_bytes)
    : way_(way),
      data_(static_cast<char*>(data)),
      bytes_(bytes),
      peer_(peer),
      tag_(tag),
      chunk_(chunk_bytes) {
  requests_.fill(MPI_REQUEST_NULL);
}

bool Stream::progress() {
  bool any = false;
  while (finished_ < started_) {
    int ended = 0;
    MPI_Request& oldest = requests_[static_cast<size_t>(finished_ / chunk_ % kMessagesAtOnce)];
    check_mpi(MPI_Test(&oldest, &ended, MPI_STATUS_IGNORE), "MPI_Test");
    if (ended == 0) break;
    finished_ += length_at(finished_);
    any = true;
  }
  while (started_ < bytes_ && started_ + length_at(started_) <= allowed_ &&
         started_ / chunk_ - finished_ / chunk_ < kMessagesAtOnce) {
    start_message();
    any = true;
  }
  return any;
}

int64_t Stream::length_at(int64_t offset) const { return std::min(chunk_, bytes_ - offset); }

void Stream::start_message() {
  const int64_t message = started_ / chunk_;
  char* place = data_ + (num_places_ > 0 ? message % num_places_ : message) * chunk_;
  const int length = static_cast<int>(length_at(started_));
  MPI_Request& request = requests_[static_cast<size_t>(message % kMessagesAtOnce)];
  if (way_ == Way::Send) {
    check_mpi(MPI_Isend(place, length, MPI_BYTE, peer_, tag_, MPI_COMM_WORLD, &request),
              "MPI_Isend");
  } else {
    check_mpi(MPI_Irecv(place, length, MPI_BYTE, peer_, tag_, MPI_COMM_WORLD, &request),
              "MPI_Irecv");
  }
  started_ += length;
}

}  // namespace snug::dist
