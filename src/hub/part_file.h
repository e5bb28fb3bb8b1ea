// The file that a download grows in: bytes are appended and hashed in one pass, what an earlier run
// left is hashed when it is opened, and one process at a time may write.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "hub/digest.h"
#include "hub/repository.h"

namespace snug::hub {

// The hash that `file` should have over `bytes` so far; none when the hub gives no hash.
std::optional<Digest> digest_for(const RemoteFile& file);

// Reads the whole of `path` and says whether it is `file`. False when the hub gives no hash.
bool has_content_of(const std::filesystem::path& path, const RemoteFile& file);

class PartFile {
 public:
  // Opens or makes `path`; throws UserError when another process is at it or the disk refuses.
  PartFile(std::filesystem::path path, const RemoteFile& file);
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile();

  int64_t size() const { return size_; }
  void append(std::string_view bytes);
  void restart();  // back to no bytes
  void discard();  // removes the file

  // Size and hash are as the hub says, as far as it says them. Ends the hash: restart() or finish()
  // next.
  bool verify(std::string& found);
  // fsync, then the final name, which is replaced if it exists.
  void finish(const std::filesystem::path& final_path);

 private:
  void open_and_lock();
  void hash_existing();

  std::filesystem::path path_;
  RemoteFile file_;
  int fd_ = -1;
  int64_t size_ = 0;
  std::optional<Digest> digest_;
};

}  // namespace snug::hub
