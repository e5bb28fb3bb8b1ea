// Finds the weights of a model folder. Shards named by an index must be files in the same folder.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "files/weights/byte_reader.h"
#include "files/weights/pth/pth.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::files {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using OpenOne = std::unique_ptr<TensorSource> (*)(const fs::path&);

constexpr size_t kMaxIndexBytes = size_t{64} << 20;

struct Layout {
  const char* file;  // an index when `sharded`
  bool sharded;
  OpenOne open;
};
// In the order in which transformers prefers them.
constexpr Layout kFileLayouts[] = {
    {"model.safetensors", false, &open_safetensors},
    {"model.safetensors.index.json", true, &open_safetensors},
    {"pytorch_model.bin", false, &open_pth},
    {"pytorch_model.bin.index.json", true, &open_pth},
    {"lit_model.pth", false, &open_pth},
};

using WeightMap = std::map<std::string, std::string>;  // tensor -> shard

WeightMap parse_weight_map(const fs::path& path) {
  const Json index = Json::parse(read_file(path, kMaxIndexBytes), nullptr, false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (index.is_discarded() || map == index.end() || !map->is_object() || map->empty())
    throw UserError(
        "{}: not a JSON object with a \"weight_map\" from tensor names to files; the file is "
        "damaged, fetch it again",
        path.string());
  WeightMap shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      throw UserError("{}: the file of tensor \"{}\" is not a text; fetch the index again",
                      path.string(), printable(tensor));
    shards[tensor] = file.get<std::string>();
  }
  return shards;
}

// Refuses names such as "../x", "/etc/x" or "a/b", which could reach outside the folder, and the
// index itself.
void check_shard_names(const std::set<std::string>& names, const fs::path& index) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos || name == index.filename())
      throw UserError("{}: \"{}\" is not a plain name of a file in the same folder", index.string(),
                      printable(name));
    std::error_code ignored;  // a dangling or circular link counts as a missing file
    if (!fs::is_regular_file(index.parent_path() / name, ignored)) missing.push_back(name);
  }
  if (missing.empty()) return;
  const size_t count = missing.size();
  missing.resize(std::min<size_t>(count, 4));
  throw UserError("{}: {} of its {} files {} not there: {}{}; fetch the rest of the model",
                  index.string(), count, names.size(), count == 1 ? "is" : "are",
                  printable(fmt::format("{}", fmt::join(missing, ", ")), 400),
                  count > missing.size() ? ", …" : "");
}

// Adds the tensors that the index assigns to this shard.
void add_shard(TensorSource::Parts& all, TensorSource::Parts shard, const std::string& name,
               WeightMap& left, const fs::path& index) {
  const size_t first_file = all.files.size();
  for (MappedFile& file : shard.files) all.files.push_back(std::move(file));
  size_t num_passed_over = 0;
  for (PlacedTensor& tensor : shard.tensors) {
    const auto found = left.find(tensor.info.name);
    if (found == left.end() || found->second != name) {
      ++num_passed_over;
      continue;
    }
    left.erase(found);
    tensor.file += first_file;
    all.tensors.push_back(std::move(tensor));
  }
  if (num_passed_over > 0)
    warn("{}: {} tensors in {} are skipped, since the index does not list them for this file",
         index.string(), num_passed_over, printable(name));
}

std::unique_ptr<TensorSource> open_sharded(const fs::path& index, OpenOne open) {
  WeightMap left = parse_weight_map(index);
  std::set<std::string> names;
  for (const auto& [_, file] : left) names.insert(file);
  check_shard_names(names, index);
  TensorSource::Parts all;
  for (const std::string& name : names)
    add_shard(all, TensorSource::take_apart(open(index.parent_path() / name)), name, left, index);
  if (!left.empty())
    throw UserError(
        "{}: {} tensors are not in the files that the index names, the first is \"{}\" in "
        "{}; index and files do not belong together, fetch both again",
        index.string(), left.size(), printable(left.begin()->first),
        printable(left.begin()->second));
  return std::make_unique<TensorSource>(index.parent_path().string(), std::move(all.files),
                                        std::move(all.tensors));
}

// The only .pth file in a folder, under any name, as training scripts write it.
fs::path find_single_pth(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".pth" && entry.is_regular_file())
      found.push_back(entry.path());
  return found.size() == 1 ? found.front() : fs::path();
}

[[noreturn]] void refuse_empty(const fs::path& folder) {
  std::vector<const char*> wanted;
  for (const Layout& layout : kFileLayouts) wanted.push_back(layout.file);
  throw UserError("{}: no weights found; looked for {} and a single *.pth", folder.string(),
                  fmt::join(wanted, ", "));
}

}  // namespace

std::unique_ptr<TensorSource> open_model_directory(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw UserError("{}: there is no such folder; give one that holds a model", folder.string());
  for (const Layout& layout : kFileLayouts) {
    const fs::path path = folder / layout.file;
    if (!fs::exists(fs::symlink_status(path, ignored))) continue;
    return layout.sharded ? open_sharded(path, layout.open) : layout.open(path);
  }
  const fs::path single = find_single_pth(folder);
  if (single.empty()) refuse_empty(folder);
  return open_pth(single);
}

}  // namespace snug::files
