// The partial file of a download: bytes are appended and hashed in one pass, existing bytes are
// hashed on opening, and only one process at a time may write.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "files/hub/digest.h"
#include "files/hub/repository.h"

namespace snug::hub {

// A hash for `file`, to be fed with `bytes` so far; none if the hub gives no hash.
std::optional<Digest> digest_for(const RemoteFile& file);

// Hashes `path` and returns whether it is `file`. False if the hub gives no hash.
bool has_content_of(const std::filesystem::path& path, const RemoteFile& file);

class PartFile {
 public:
  // Opens or creates `path`; throws UserError if another process is writing it or on a disk error.
  PartFile(std::filesystem::path path, const RemoteFile& file);
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile();

  int64_t size() const { return size_; }
  void append(std::string_view bytes);
  void restart();  // back to no bytes
  void discard();  // removes the file

  // Whether size and hash match the hub's, as far as it gives them. Finalizes the hash: call
  // restart() or finish() next.
  bool verify(std::string& found);
  // Syncs and renames to the final name, replacing an existing file.
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
