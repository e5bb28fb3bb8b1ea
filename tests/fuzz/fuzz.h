// What the fuzzers share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "files/weights/tensor_source.h"
#include "fuzz/change.h"

// libFuzzer's entry point: the bytes of one file, however broken.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace snug::fuzz {

// Shows `use` the bytes as a file in memory. A UserError is what a broken file should give;
// anything else that comes out of `use` is a finding. With `name` the path ends in it, for readers
// that go by names: its folder holds nothing else.
void with_file(const uint8_t* data, size_t size,
               const std::function<void(const std::filesystem::path&)>& use);
void with_file(const uint8_t* data, size_t size, std::string_view name,
               const std::function<void(const std::filesystem::path&)>& use);

// Reads every tensor of modest size, whole and in part, so that a wrong offset is stepped on.
void read_everything(const files::TensorSource& source);

// A fuzzer of a format with a grammar defines this: one change that keeps to it, so that more is
// reached than the first check. False: these bytes are too broken for that.
bool change_structure(Bytes& bytes, Random& random);

}  // namespace snug::fuzz
