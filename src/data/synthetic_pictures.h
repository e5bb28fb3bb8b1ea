// Pictures of `--data Synthetic`, painted when they are asked for: one coloured shape before a
// shaded background, as a PNG, so that workers have what they have with any data set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/picture_rows.h"

namespace snug::data {

class SyntheticPictures : public PictureRows {
 public:
  // `size`: pixels a side.
  SyntheticPictures(int64_t count, int64_t size) : count_(count), size_(size) {}

  int64_t count() const override { return count_; }
  // None: they are ids, not words.
  std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const override;
  PictureBytes picture(int64_t row) const override;
  std::string where(int64_t row) const override;

 private:
  int64_t count_, size_;
};

}  // namespace snug::data
