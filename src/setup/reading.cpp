// SPDX-License-Identifier: Apache-2.0
#include "setup/reading.h"

namespace snug::setup {

data::Reading reading_of(const models::Model& model) {
  const models::Reads reads = model.reads();
  return {.source = reads.source,
          .decoder_start_token = reads.decoder_start_token,
          .image_size = reads.image_size,
          .num_picture_tokens = reads.num_picture_tokens,
          .picture_token = reads.picture_token};
}

}  // namespace snug::setup
