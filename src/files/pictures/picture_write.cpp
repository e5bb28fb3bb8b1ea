// SPDX-License-Identifier: Apache-2.0
#include "files/pictures/picture_write.h"

#include <png.h>

#include "base/error.h"

namespace snug::files {

std::vector<std::byte> encode_png(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;
  const auto write = [&](void* memory, png_alloc_size_t& size) {
    if (png_image_write_to_memory(&image, memory, &size, /*convert_to_8_bit=*/0, picture.rgb.data(),
                                  /*row_stride=*/0, nullptr) == 0)
      throw InternalError(fmt::format("a picture of {} x {} could not be written: {}",
                                      picture.width, picture.height, image.message));
  };
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::byte> bytes(size);
  write(bytes.data(), size);
  bytes.resize(size);
  return bytes;
}

}  // namespace snug::files
