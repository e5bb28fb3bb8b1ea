// The staging buffer of a sum over MPI, into which other ranks' numbers are received before they
// are added. It holds chunks, so that it stays small for any tensor: at least two slots per rank,
// so that one fills while the other is added, and more with few ranks, so that the link stays busy.
// The planned group allocates the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::dist {

// The chunks and the buffer for a sum of `part_count` elements on each of `size` ranks.
struct Staging {
  int64_t chunk = 0;  // elements per message of each other rank
  int num_places = 0;
  int64_t bytes = 0;  // slots for all other ranks
};

Staging reduce_scatter_staging(int64_t part_count, int64_t element_bytes, int size);

// For tensors so short that latency dominates: every rank receives all of them and sums by itself.
bool is_summed_at_once(int64_t count, int64_t element_bytes, int size);

// Elements that each rank sums in an all-reduce; the last ranks may have fewer.
int64_t all_reduce_part(int64_t count, int size);

int64_t all_reduce_staging_bytes(int64_t count, int64_t element_bytes, int size);

}  // namespace snug::dist
