// Which data a recipe names: one file or set, or a mix of several (data.sources). A source of a mix
// has the keys of data for itself; what stands beside the list holds for each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"
#include "recipe/settings.h"

namespace snug::recipe {

// One source of a mix, with the defaults of its class of data.
struct DataSource {
  std::string name;   // its file's or its set's, no other source's
  std::string where;  // "data.sources[2]"
  DataOptions data;
  std::set<std::string> given;   // "data.val_path", …
  std::optional<double> weight;  // how often an epoch has each of its samples; empty: once
  std::optional<double> share;   // of an epoch's samples, instead
};

struct DataSources {
  std::vector<DataSource> all;  // empty: no mix
  std::vector<std::string> faults;
};

// `given`: the keys that the recipe sets.
DataSources data_sources(const DataOptions& data, const std::set<std::string>& given);

// Whether a source has this key, such as data.max_samples, for itself. Throws UserError for a list
// that is none.
bool has_own(const DataOptions& data, std::string_view key);

// What the class of data says where `given` does not.
void resolve_data(DataOptions& data, const std::set<std::string>& given);

// Whether --data NAME names several with commas between them, and is no file itself.
bool names_several(const std::string& name);

// Whether a data set of the Hugging Face Hub is meant: ORG/NAME, where no file and no folder is.
bool names_hub_set(std::string_view name);
// Those as data.sources has them. Throws UserError, beginning with `where`.
std::string sources_named(const std::string& names, const std::string& where);

// Makes --data rows.jsonl --data JSON and --data.json_path rows.jsonl, --data book.txt --data
// TextFiles and --data.path book.txt, and a list of several --data Mix and --data.sources.
void take_data_files(std::vector<Setting>& settings);

// Drops what a recipe's file says of its data where the command line names others.
void replace_data(std::vector<Setting>& file, std::vector<Setting>& options);

}  // namespace snug::recipe
