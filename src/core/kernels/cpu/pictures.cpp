// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/pictures.h"

#include "base/error.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/parallel.h"

namespace snug::kernels::cpu {
namespace {

constexpr int64_t kValues = 256;

// What each value of each channel becomes, in T's bits.
template <class T>
using Table = std::array<std::array<T, kValues>, 3>;

template <class T>
Table<T> make_table(const ImagePatches& args) {
  Table<T> table;
  for (size_t c = 0; c < 3; ++c) {
    std::array<float, kValues> exact;
    for (size_t v = 0; v < kValues; ++v)
      exact[v] = static_cast<float>((static_cast<double>(v) / 255.0 - double{args.mean[c]}) /
                                    double{args.std[c]});
    cast(exact.data(), Scalar::F32, table[c].data(), args.type, kValues, 1);
  }
  return table;
}

// One patch, of which `from` is the first pixel.
template <class T>
void cut_patch(const Table<T>& table, const uint8_t* from, int64_t row_bytes, int64_t side, T* to) {
  const int64_t area = side * side;
  for (int64_t row = 0; row < side; ++row)
    for (int64_t column = 0; column < side; ++column) {
      const uint8_t* pixel = from + row * row_bytes + 3 * column;
      T* at = to + row * side + column;
      at[0] = table[0][pixel[0]];
      at[area] = table[1][pixel[1]];
      at[2 * area] = table[2][pixel[2]];
    }
}

template <class T>
void cut_all(const ImagePatches& args) {
  const Table<T> table = make_table<T>(args);
  const int64_t side = args.patch_size, elements = 3 * side * side;
  const int64_t row_bytes = 3 * args.width, per_picture = args.patches_per_picture();
  parallel_ranges(args.pictures * per_picture, elements, args.num_threads,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t patch = i % per_picture;
                      const int64_t first_row =
                          i / per_picture * args.height + patch / args.patches_across() * side;
                      const int64_t first_column = patch % args.patches_across() * side;
                      cut_patch(table, args.pixels + first_row * row_bytes + 3 * first_column,
                                row_bytes, side, static_cast<T*>(args.out) + i * elements);
                    }
                  });
}

}  // namespace

void image_patches(const ImagePatches& args) {
  SNUG_CHECK(args.patch_size > 0 && args.patch_size <= args.height && args.patch_size <= args.width,
             "pictures of {}x{} in patches of {}", args.height, args.width, args.patch_size);
  if (args.type == Scalar::F32)
    cut_all<float>(args);
  else
    cut_all<uint16_t>(args);
}

}  // namespace snug::kernels::cpu
