// The memory that a sum over MPI needs besides its tensors: places where the other ranks' numbers
// arrive before they are added. A stretch at a time, so that it stays small however long the tensor
// is; two places a rank at least, so that one fills while the other is added up, and more where
// there are few ranks, so that a link with much on its way does not run dry. The planned group asks
// for the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::dist {

// How a sum of `part_count` elements on each of `size` ranks proceeds.
struct Staging {
  int64_t chunk = 0;  // elements that each of the others sends at once
  int num_places = 0;
  int64_t bytes = 0;  // places for all of the others
};

Staging reduce_scatter_staging(int64_t part_count, int64_t element_bytes, int size);

// Tensors so short that the number of messages is what takes the time: every rank gets all of them
// and adds them up itself.
bool is_summed_at_once(int64_t count, int64_t element_bytes, int size);

// Elements of a tensor that each rank sums in an all-reduce; the last ones may have fewer.
int64_t all_reduce_part(int64_t count, int size);

int64_t all_reduce_staging_bytes(int64_t count, int64_t element_bytes, int size);

}  // namespace snug::dist
