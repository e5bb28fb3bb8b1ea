// SPDX-License-Identifier: Apache-2.0
#include "files/hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/error.h"

namespace snug::hub {

void Digest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Digest::Digest(Kind kind) : context_(EVP_MD_CTX_new()) {
  const EVP_MD* type = kind == Kind::Sha1 ? EVP_sha1() : EVP_sha256();
  SNUG_CHECK(context_ && EVP_DigestInit_ex(context_.get(), type, nullptr) == 1,
             "libcrypto offers no such digest");
}

void Digest::update(std::string_view bytes) {
  SNUG_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "digest");
}

std::string Digest::hex() {
  unsigned char raw[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  SNUG_CHECK(EVP_DigestFinal_ex(context_.get(), raw, &length) == 1, "digest");
  std::string out;
  for (unsigned int i = 0; i < length; ++i) out += fmt::format("{:02x}", raw[i]);
  return out;
}

}  // namespace snug::hub
