// Pictures of `--data Synthetic`, drawn on demand: one coloured shape on a shaded background,
// encoded as PNG, so that workers do the same work as for real data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/pictures/picture_rows.h"

namespace snug::data {

class SyntheticPictures : public PictureRows {
 public:
  // `size`: pixels per side.
  SyntheticPictures(int64_t count, int64_t size) : count_(count), size_(size) {}

  int64_t count() const override { return count_; }
  // Always none: these captions are ids without text.
  std::vector<std::optional<std::string>> captions(std::span<const int64_t> rows) const override;
  PictureBytes picture(int64_t row) const override;
  std::string where(int64_t row) const override;

 private:
  int64_t count_, size_;
};

}  // namespace snug::data
