// Constants of the zip format (PKWARE's APPNOTE) for reader and writer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace snug::files::zip {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kDirectorySignature = 0x02014b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocatorSignature = 0x07064b50;

inline constexpr size_t kDirectoryBytes = 46;  // without name, extra and comment
inline constexpr size_t kEndBytes = 22;
inline constexpr size_t kEnd64Bytes = 56;
inline constexpr size_t kLocatorBytes = 20;

inline constexpr uint16_t kDeflated = 8;          // method
inline constexpr uint16_t kEncrypted = 1;         // flag
inline constexpr uint16_t kSizesFollow = 1 << 3;  // flag: sizes follow the content
inline constexpr uint16_t kZip64Field = 1;        // extra field
inline constexpr uint16_t kPaddingField = 0x4246;
inline constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the number is in the zip64 field

}  // namespace snug::files::zip
