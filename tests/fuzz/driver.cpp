// The helpers, and a main for compilers without libFuzzer: `fuzz_x ROUNDS FILE…` changes, cuts and
// swells the files at random, always with the same seed, and feeds them to the entry point. With
// libFuzzer define SNUG_LIBFUZZER, which leaves main to it.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/convert.h"
#include "fuzz/fuzz.h"

namespace snug::fuzz {

void with_file(const uint8_t* data, size_t size,
               const std::function<void(const std::filesystem::path&)>& use) {
  const int file = ::memfd_create("fuzz", 0);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    use("/proc/self/fd/" + std::to_string(file));
  } catch (const UserError&) {
  }
  ::close(file);
}

void read_everything(const files::TensorSource& source) {
  constexpr int64_t kMaxElements = int64_t{1} << 20;
  unsigned sum = 0;
  for (const files::TensorInfo& tensor : source.tensors()) {
    for (const std::byte byte :
         source.raw(tensor).first(std::min<size_t>(source.raw(tensor).size(), 4096)))
      sum += static_cast<unsigned>(byte);
    const int64_t elements = tensor.num_elements();
    if (elements == 0 || elements > kMaxElements) continue;
    std::vector<float> values(static_cast<size_t>(elements));
    source.read(tensor, files::DType::F32, values.data());
    source.read(tensor, files::DType::BF16, values.data(), elements / 2, elements - elements / 2);
    source.release(tensor);
  }
  // A sum that is used keeps the reads.
  if (sum == 1) std::puts(source.describe().c_str());
}

namespace {

using Bytes = std::vector<uint8_t>;

// Numbers that parsers trip over.
uint64_t nasty_number(std::mt19937_64& random) {
  constexpr uint64_t kNasty[] = {0,          1,          0x7F,           0xFF,
                                 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,     uint64_t{1} << 32,
                                 INT64_MAX,  UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63};
  return kNasty[random() % std::size(kNasty)];
}

void mutate(Bytes& bytes, std::mt19937_64& random) {
  if (bytes.empty()) return;
  const size_t at = random() % bytes.size();
  const size_t length = std::min<size_t>(1 + random() % 16, bytes.size() - at);
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  const auto end = begin + static_cast<std::ptrdiff_t>(length);
  switch (random() % 7) {
    case 0:
      bytes[at] ^= static_cast<uint8_t>(1u << random() % 8);
      break;
    case 1:
      bytes[at] = static_cast<uint8_t>(random());
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3:
      bytes.erase(begin, end);
      break;
    case 4: {
      const Bytes copy(begin, end);
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size()),
                   copy.begin(), copy.end());
      break;
    }
    case 5: {
      const uint64_t number = nasty_number(random);
      const size_t width = size_t{1} << random() % 4;
      std::memcpy(&bytes[at], &number, std::min(width, bytes.size() - at));
      break;
    }
    default:
      std::fill(begin, end, static_cast<uint8_t>(random() % 2 * 255));
      break;
  }
}

}  // namespace
}  // namespace snug::fuzz

#ifndef SNUG_LIBFUZZER
int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: %s ROUNDS FILE…\n", arguments[0]);
    return 2;
  }
  std::vector<snug::fuzz::Bytes> corpus;
  for (int i = 2; i < count; ++i) {
    const std::string text = snug::read_file(arguments[i]);
    corpus.emplace_back(text.begin(), text.end());
  }
  std::mt19937_64 random(1);
  const long rounds = std::strtol(arguments[1], nullptr, 10);
  for (long round = 0; round < rounds; ++round) {
    snug::fuzz::Bytes bytes = corpus[random() % corpus.size()];
    for (uint64_t left = 1 + random() % 4; left > 0; --left) snug::fuzz::mutate(bytes, random);
    try {
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "round %ld: %s\n", round, error.what());
      return 1;
    }
  }
  return 0;
}
#endif
