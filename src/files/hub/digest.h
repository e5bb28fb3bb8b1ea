// The hub's two hashes: SHA-256 of large (LFS) files, git's SHA-1 of small ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace snug::hub {

class Digest {
 public:
  enum class Kind { Sha1, Sha256 };
  explicit Digest(Kind kind);

  void update(std::string_view bytes);
  std::string hex();  // ends the digest

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace snug::hub
