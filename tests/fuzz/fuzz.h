// What the fuzzers of weight files share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "files/weights/tensor_source.h"

// libFuzzer's entry point: the bytes of one file, however broken.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace snug::fuzz {

// Shows `use` the bytes as a file. A UserError is what a broken file should give; anything else
// that comes out of `use` is a finding.
void with_file(const uint8_t* data, size_t size,
               const std::function<void(const std::filesystem::path&)>& use);

// Reads every tensor of modest size, whole and in part, so that a wrong offset is stepped on.
void read_everything(const files::TensorSource& source);

}  // namespace snug::fuzz
