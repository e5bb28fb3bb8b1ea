// Row by row: on the CPU attention has a kernel of its own (linalg/attention), and this serves what
// is held to it.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/heads.h"

#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/parallel.h"

namespace snug::kernels::cpu {
namespace {

void move_row(const HeadRows& args, const HeadRows::Array& array, int64_t index) {
  const int64_t row = index % array.rows, head = index / array.rows % array.heads;
  const int64_t document = index / (array.rows * array.heads);
  int64_t token = document * array.rows + row;
  bool exists = true;
  if (array.borders != nullptr) {
    token = array.borders[document] + row;
    exists = token < array.borders[document + 1];
  }
  const int64_t of_token = (token * array.stride + head * args.dim) * scalar_bytes(args.type);
  const int64_t of_block = index * args.dim * scalar_bytes(Scalar::F32);
  const bool reads = args.way == HeadRows::Way::Read;
  const void* from = static_cast<const char*>(array.from) + (reads ? of_token : of_block);
  void* to = static_cast<char*>(array.to) + (reads ? of_block : of_token);
  if (reads && !exists) fill(to, Scalar::F32, 0, args.dim, 1);
  if (!exists) return;
  if (args.way == HeadRows::Way::Add)
    accumulate(to, args.type, from, Scalar::F32, args.dim, 1, 1);
  else
    cast(from, reads ? args.type : Scalar::F32, to, reads ? Scalar::F32 : args.type, args.dim, 1);
}

}  // namespace

void move_head_rows(const HeadRows& args) {
  for (const HeadRows::Array& array : args.arrays) {
    if (array.rows == 0) break;
    parallel_ranges(args.documents * array.heads * array.rows, args.dim, 0,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) move_row(args, array, i);
                    });
  }
}

}  // namespace snug::kernels::cpu
