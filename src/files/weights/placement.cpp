// SPDX-License-Identifier: Apache-2.0
#include "files/weights/placement.h"

#include <algorithm>

#include "base/error.h"
#include "files/weights/byte_reader.h"

namespace snug::files {

std::vector<size_t> order_in_file(const std::string& label,
                                  const std::vector<PlacedTensor>& tensors) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].info.nbytes > 0) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].offset < tensors[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const PlacedTensor& before = tensors[order[i - 1]];
    const PlacedTensor& after = tensors[order[i]];
    if (before.offset + static_cast<size_t>(before.info.nbytes) > after.offset)
      throw UserError(
          "{}: tensors \"{}\" and \"{}\" overlap at byte {}; the file is damaged, "
          "fetch it again",
          label, printable(before.info.name), printable(after.info.name), after.offset);
  }
  return order;
}

}  // namespace snug::files
