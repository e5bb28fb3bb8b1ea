// The opcodes and the global names that a pickle may use, and their meanings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "files/weights/dtype.h"

namespace snug::files {

enum class Meaning : uint8_t {
  OrderedDict,       // () or ([(key, value), …])
  RebuildTensor,     // (storage, offset, sizes, strides, …)
  RebuildParameter,  // (tensor, …) -> tensor
  RebuildFromType,   // (function, type, arguments, state) -> function(*arguments)
  Size,              // (sizes) -> sizes
  Storage,           // a storage type, never called
  Opaque,            // its result is ignored
};

struct PickleGlobal {
  const char* module;
  const char* name;
  Meaning meaning;
  DType dtype = DType::F32;  // of a storage
};

// Index into the list; empty for any other name.
std::optional<int64_t> find_pickle_global(std::string_view module, std::string_view name);
const PickleGlobal& pickle_global(int64_t index);

// The pickle opcodes in files of torch.save, named as in Python's pickletools.
enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kInt = 'I',
  kLong = 'L',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kFloat = 'F',
  kBinFloat = 'G',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinString = 'T',
  kShortBinString = 'U',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kList = 'l',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kDict = 'd',
  kSetItem = 's',
  kSetItems = 'u',
  kPut = 'p',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kGet = 'g',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kInst = 'i',
  kObj = 'o',
  kNewObj = 0x81,
  kReduce = 'R',
  kBuild = 'b',
  kBinPersId = 'Q',
  kProto = 0x80,
  kFrame = 0x95,
};

}  // namespace snug::files
