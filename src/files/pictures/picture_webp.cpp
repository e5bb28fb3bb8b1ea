// WebP through libwebp: an opaque picture directly to RGB, an animation's first frame by its
// animation decoder. Transparent pixels are blended onto white.
// SPDX-License-Identifier: Apache-2.0
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "base/error.h"
#include "files/pictures/picture_decoders.h"

namespace snug::files {
namespace {

struct Release {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

std::span<const uint8_t> chunk_of(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator iterator{};
  std::span<const uint8_t> data;
  if (WebPDemuxGetChunk(demuxer, name, 1, &iterator) != 0)
    data = {iterator.chunk.bytes, iterator.chunk.size};  // a view of the file's bytes
  WebPDemuxReleaseChunkIterator(&iterator);
  return data;
}

int orientation_of(const WebPDemuxer* demuxer) {
  if (const int found = exif_orientation(chunk_of(demuxer, "EXIF")); found > 0) return found;
  const std::span<const uint8_t> xmp = chunk_of(demuxer, "XMP ");
  return xmp_orientation({reinterpret_cast<const char*>(xmp.data()), xmp.size()});
}

[[noreturn]] void refuse() { throw UserError("not a readable WebP: damaged or cut short"); }

// width × height pixels of RGBA.
Picture picture_on_white(const uint8_t* rgba, int64_t width, int64_t height) {
  const auto pixels = static_cast<size_t>(width * height);
  Picture picture{width, height, std::vector<uint8_t>(pixels * 3)};
  for (size_t i = 0; i < pixels; ++i)
    for (size_t c = 0; c < 3; ++c)
      picture.rgb[3 * i + c] = on_white(rgba[4 * i + c], rgba[4 * i + 3]);
  return picture;
}

Picture opaque_picture(const WebPData& data, int64_t width, int64_t height) {
  Picture picture{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  if (WebPDecodeRGBInto(data.bytes, data.size, picture.rgb.data(), picture.rgb.size(),
                        static_cast<int>(width * 3)) == nullptr)
    refuse();
  return picture;
}

Picture still_picture(const WebPData& data, const WebPBitstreamFeatures& features) {
  if (features.has_alpha == 0) return opaque_picture(data, features.width, features.height);
  std::vector<uint8_t> rgba(static_cast<size_t>(features.width) *
                            static_cast<size_t>(features.height) * 4);
  if (WebPDecodeRGBAInto(data.bytes, data.size, rgba.data(), rgba.size(), features.width * 4) ==
      nullptr)
    refuse();
  return picture_on_white(rgba.data(), features.width, features.height);
}

Picture first_frame(const WebPData& data, int64_t max_pixels) {
  WebPAnimDecoderOptions options{};
  WebPAnimDecoderOptionsInit(&options);
  options.color_mode = MODE_RGBA;
  const std::unique_ptr<WebPAnimDecoder, Release> decoder(WebPAnimDecoderNew(&data, &options));
  WebPAnimInfo info{};
  if (!decoder || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0) refuse();
  check_picture_size(info.canvas_width, info.canvas_height, max_pixels);
  uint8_t* rgba = nullptr;
  int time = 0;
  if (WebPAnimDecoderGetNext(decoder.get(), &rgba, &time) == 0) refuse();
  return picture_on_white(rgba, info.canvas_width, info.canvas_height);
}

}  // namespace

DecodedPicture decode_webp(std::span<const std::byte> bytes, int64_t max_pixels) {
  const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(data.bytes, data.size, &features) != VP8_STATUS_OK)
    throw UserError("not a readable WebP: its header is damaged or cut short");
  check_picture_size(features.width, features.height, max_pixels);
  const std::unique_ptr<WebPDemuxer, Release> demuxer(WebPDemux(&data));
  if (!demuxer) refuse();
  DecodedPicture decoded;
  decoded.picture =
      features.has_animation != 0 ? first_frame(data, max_pixels) : still_picture(data, features);
  decoded.orientation = orientation_of(demuxer.get());
  return decoded;
}

}  // namespace snug::files
