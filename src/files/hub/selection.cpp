// SPDX-License-Identifier: Apache-2.0
#include "files/hub/selection.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"
#include "files/hub/access.h"

namespace snug::hub {
namespace {

constexpr size_t kNamesShown = 12;

bool matches_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, path); });
}

bool in_top_folder(const std::string& path) { return path.find('/') == path.npos; }

bool any_top_file(const Listing& listing, const std::string& pattern) {
  return std::any_of(listing.files.begin(), listing.files.end(), [&](const RemoteFile& file) {
    return in_top_folder(file.path) && matches(pattern, file.path);
  });
}

struct Choice {
  std::vector<std::string> wanted, unwanted;
};

// One copy of the weights: many repositories hold the same tensors in two or three forms.
Choice model_choice(const Listing& listing) {
  Choice choice{{"*.json", "tokenizer.model", "*.jinja", "*.txt"}, {}};
  // T5's vocabulary, which tokenizer.json holds too where there is one.
  if (!any_top_file(listing, "tokenizer.json")) choice.wanted.emplace_back("spiece.model");
  if (any_top_file(listing, "*.safetensors")) {
    choice.wanted.emplace_back("*.safetensors");
    choice.unwanted.emplace_back("*.bin.index.json");
    if (any_top_file(listing, "model*.safetensors"))
      choice.unwanted.emplace_back("consolidated*.safetensors");
  } else {
    choice.wanted.emplace_back("*.bin");
    choice.unwanted = {"training_args.bin", "optimizer.bin", "scheduler.bin"};
  }
  return choice;
}

std::vector<std::string> names_of(const Listing& listing, const std::string& pattern) {
  std::vector<std::string> names;
  for (const RemoteFile& file : listing.files)
    if (matches(pattern, file.path)) names.push_back(file.path);
  return names;
}

std::string shown(std::vector<std::string> names) {
  const size_t all = names.size();
  names.resize(std::min(all, kNamesShown));
  return fmt::format("{}{}", fmt::join(names, ", "),
                     all > kNamesShown ? fmt::format(" and {} more", all - kNamesShown) : "");
}

void check_selection(const std::vector<RemoteFile>& chosen, const Listing& listing,
                     const DownloadOptions& options) {
  const std::vector<std::string> gguf = names_of(listing, "*.gguf");
  const bool has_weights = any_top_file(listing, "*.safetensors") || any_top_file(listing, "*.bin");
  if (options.patterns.empty() && options.repo_type == "model" && !has_weights && !gguf.empty())
    throw UserError(
        "{} holds GGUF files, of which one is usually enough; choose it by a pattern: {}",
        repository_name(options), shown(gguf));
  if (!chosen.empty()) return;
  if (listing.files.empty())
    throw UserError("{} holds no files at revision '{}'", repository_name(options),
                    options.revision);
  throw UserError("no file of {} matches {}; it holds {}", repository_name(options),
                  options.patterns.empty()
                      ? "what a model needs"
                      : fmt::format("'{}'", fmt::join(options.patterns, "', '")),
                  shown(names_of(listing, "*")));
}

}  // namespace

bool matches(const std::string& pattern, const std::string& path) {
  return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

std::vector<RemoteFile> select_files(const Listing& listing, const DownloadOptions& options) {
  Choice choice{options.patterns, {}};
  const bool by_default = options.patterns.empty();
  const bool model = options.repo_type == "model";
  if (by_default) choice = model ? model_choice(listing) : Choice{{"*"}, {".gitattributes"}};
  std::vector<RemoteFile> chosen;
  for (const RemoteFile& file : listing.files) {
    if (by_default && model && !in_top_folder(file.path)) continue;
    if (matches_any(choice.wanted, file.path) && !matches_any(choice.unwanted, file.path))
      chosen.push_back(file);
  }
  check_selection(chosen, listing, options);
  return chosen;
}

}  // namespace snug::hub
