// The checksum of zip files (CRC-32, polynomial 0xEDB88320), which torch checks on loading.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace snug::files {

// Continues from `previous`, so that a stream can be processed in chunks.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous = 0);

}  // namespace snug::files
