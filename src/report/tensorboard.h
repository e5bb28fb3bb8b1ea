// TensorBoard event files, written without protobuf: an Event has four fields that matter here, so
// its bytes are put together by hand. Framing is that of TFRecord: length, its CRC, payload, its
// CRC, with CRC-32C masked as TensorFlow does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace snug::report {

struct TensorBoardOptions {
  // Tells TensorBoard to forget what an earlier run in the same folder wrote after this step.
  std::optional<int64_t> resumed_step;
  // Seconds since 1970; replaced in tests so that the bytes repeat.
  std::function<double()> clock;
};

class TensorBoardWriter {
 public:
  // Makes the folder and a new events file in it. Throws UserError when it can't.
  explicit TensorBoardWriter(const std::filesystem::path& dir, TensorBoardOptions options = {});

  // One point of the curve `tag` ("loss", "memory/peak_allocated"). Flushed at once: a point per
  // log interval is rare, and a killed run keeps it.
  void scalar(std::string_view tag, double value, int64_t step);

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write_record(std::string_view payload);

  std::function<double()> clock_;
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// CRC-32C (Castagnoli), as TFRecord wants it before masking.
uint32_t crc32c(std::string_view bytes);

}  // namespace snug::report
