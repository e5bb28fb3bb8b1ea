// The helpers, and a main for builds without libFuzzer: `fuzz_x ROUNDS FILE…` changes, cuts and
// swells the files (of a folder, all that are in it) at random, always with the same seed, and
// feeds them to the entry point; SNUG_FUZZ_SECONDS=60 goes on for so long, and `scripts/test` takes
// a quarter of the rounds. With libFuzzer
// (SNUG_FUZZ, scripts/fuzz) main is its own, and goes by what a change reaches.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/convert.h"
#include "fuzz/fuzz.h"
#include "support/temp_folder.h"

namespace snug::fuzz {
namespace fs = std::filesystem;

void with_file(const uint8_t* data, size_t size, const std::function<void(const fs::path&)>& use) {
  const int file = ::memfd_create("fuzz", 0);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    use("/proc/self/fd/" + std::to_string(file));
  } catch (const UserError&) {
  }
  ::close(file);
}

void with_file(const uint8_t* data, size_t size, std::string_view name,
               const std::function<void(const fs::path&)>& use) {
  static const test::TempFolder folder;
  with_file(data, size, [&](const fs::path& memory) {
    const fs::path path = folder / fs::path(name);
    fs::remove(path);
    fs::create_symlink(memory, path);
    use(path);
  });
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

__attribute__((weak)) bool change_structure(Bytes&, Random&) { return false; }

}  // namespace snug::fuzz

#ifdef SNUG_LIBFUZZER
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  snug::fuzz::Random random(seed);
  if (random() % 2 == 0) {
    snug::fuzz::Bytes bytes(data, data + size);
    if (snug::fuzz::change_structure(bytes, random) && bytes.size() <= most) {
      std::copy(bytes.begin(), bytes.end(), data);
      return bytes.size();
    }
  }
  return LLVMFuzzerMutate(data, size, most);
}
#else
namespace {

std::vector<snug::fuzz::Bytes> samples_of(int count, char** names) {
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < count; ++i) {
    if (!std::filesystem::is_directory(names[i])) {
      files.emplace_back(names[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(names[i]))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<snug::fuzz::Bytes> samples;
  for (const std::filesystem::path& file : files) {
    const std::string text = snug::read_file(file);
    samples.emplace_back(text.begin(), text.end());
  }
  return samples;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: %s ROUNDS FILE…\n", arguments[0]);
    return 2;
  }
  const std::vector<snug::fuzz::Bytes> samples = samples_of(count - 2, arguments + 2);
  snug::fuzz::Random random(1);
  const char* set = std::getenv("SNUG_TEST_SET");
  const bool is_quick = set != nullptr && std::string_view(set) == "quick";
  const long rounds = std::strtol(arguments[1], nullptr, 10) / (is_quick ? 4 : 1);
  const char* seconds = std::getenv("SNUG_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(seconds == nullptr ? 0 : std::atoi(seconds));
  long round = 0;
  for (; round < rounds || std::chrono::steady_clock::now() < end; ++round) {
    snug::fuzz::Bytes bytes = samples[random() % samples.size()];
    for (uint64_t left = 1 + random() % 4; left > 0; --left)
      if (random() % 2 == 0 || !snug::fuzz::change_structure(bytes, random))
        snug::fuzz::change_bytes(bytes, random);
    try {
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "round %ld: %s\n", round, error.what());
      return 1;
    }
  }
  std::printf("%ld rounds\n", round);
  return 0;
}
#endif
