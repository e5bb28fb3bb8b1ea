// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "files/checksums.h"
#include "files/weights/safetensors/safetensors.h"
#include "use/commands.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Verdict {
  std::string file;
  size_t bytes = 0;
  std::string fault;                 // empty: as it was written
  std::vector<std::string> tensors;  // those with damaged bytes
};

// Empty where the header itself cannot be read.
std::vector<std::string> tensors_in(const fs::path& file,
                                    const std::vector<files::FileCheck::Range>& ranges) {
  std::vector<std::string> names;
  if (file.extension() != ".safetensors") return names;
  try {
    const auto source = files::open_damaged_safetensors(file);
    for (const auto& range : ranges)
      for (std::string& name : source->names_between(range.begin, range.end))
        if (names.empty() || names.back() != name) names.push_back(std::move(name));
  } catch (const UserError&) {
  }
  return names;
}

Verdict verdict_on(const fs::path& file, const files::FileChecksums& checksums) {
  Verdict verdict{.file = file.string(), .bytes = checksums.bytes, .fault = {}, .tensors = {}};
  if (!fs::exists(file)) {
    verdict.fault = "is missing";
    return verdict;
  }
  const MappedFile mapped(file);
  if (mapped.bytes().size() != checksums.bytes) {
    verdict.fault =
        fmt::format("has {} bytes instead of {}", mapped.bytes().size(), checksums.bytes);
    return verdict;
  }
  const auto ranges = files::FileCheck(checksums).all_damage(mapped.bytes());
  if (ranges.empty()) return verdict;
  std::vector<std::string> places;
  for (const auto& range : ranges)
    places.push_back(fmt::format("{} to {}", range.begin, range.end - 1));
  verdict.fault = fmt::format("is damaged within the bytes {}", fmt::join(places, ", "));
  verdict.tensors = tensors_in(file, ranges);
  return verdict;
}

// The folder and its subfolders that have checksums.
std::vector<fs::path> folders_in(const fs::path& top) {
  std::vector<fs::path> folders;
  if (fs::exists(top / files::kChecksumsName)) folders.push_back(top);
  for (const auto& entry : fs::recursive_directory_iterator(top))
    if (entry.is_directory() && fs::exists(entry.path() / files::kChecksumsName))
      folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

std::string names_text(std::vector<std::string> names) {
  constexpr size_t kMost = 4;
  const size_t more = names.size() - std::min(names.size(), kMost);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more == 0 ? "" : fmt::format(" and {} more tensors", more));
}

void print_text(const Verdict& verdict) {
  std::printf("%-8s %10s  %s", verdict.fault.empty() ? "whole" : "DAMAGED",
              format_bytes(static_cast<int64_t>(verdict.bytes)).c_str(), verdict.file.c_str());
  if (!verdict.fault.empty()) std::printf(" %s", verdict.fault.c_str());
  if (!verdict.tensors.empty()) std::printf(": %s", names_text(verdict.tensors).c_str());
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

void verify(const recipe::VerifyOptions& options) {
  const fs::path top = options.folder;
  if (!fs::is_directory(top))
    throw UserError("{} is not a folder; name a run's out_dir, a checkpoint or a model",
                    top.string());
  json all = json::array();
  size_t damaged = 0, files_read = 0;
  const std::vector<fs::path> folders = folders_in(top);
  for (const fs::path& folder : folders) {
    const auto of_folder = files::read_checksums(folder).value_or(files::FolderChecksums());
    for (const auto& [name, checksums] : of_folder) {
      const Verdict verdict = verdict_on(folder / name, checksums);
      ++files_read;
      if (!verdict.fault.empty()) ++damaged;
      if (options.json)
        all.push_back({{"file", verdict.file},
                       {"bytes", verdict.bytes},
                       {"whole", verdict.fault.empty()},
                       {"fault", verdict.fault},
                       {"tensors", verdict.tensors}});
      else
        print_text(verdict);
    }
  }
  if (options.json)
    std::printf("%s\n", all.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  if (folders.empty())
    throw UserError(
        "nothing in {} has checksums ({}); snug writes them beside each checkpoint, model and "
        "adapter of its own, and files from elsewhere have none",
        top.string(), files::kChecksumsName);
  if (damaged > 0)
    throw UserError("{} of {} files in {} {} not as snug wrote {}; restore from a copy", damaged,
                    files_read, top.string(), damaged == 1 ? "is" : "are",
                    damaged == 1 ? "it" : "them");
}

}  // namespace snug::use
