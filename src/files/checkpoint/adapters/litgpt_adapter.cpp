// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/litgpt_adapter.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "files/checkpoint/adapters/adapter.h"
#include "files/weights/byte_reader.h"
#include "files/weights/pth/pth.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;
using files::printable;
using files::show_shape;

constexpr const char* kLitgptWeightsName = "lit_model.pth.lora";
constexpr const char* kOptionsName = "hyperparameters.yaml";
constexpr size_t kMaxOptionsBytes = size_t{1} << 20;
// In the order of their rows in the combined matrix.
constexpr std::array kQkvKeys{"lora_query", "lora_key", "lora_value"};

class Options {
 public:
  explicit Options(const fs::path& file) : where_(file.string()) {
    if (!fs::exists(file))
      throw UserError(
          "{} is missing, which holds the adapter's rank and scaling; LitGPT writes it beside {}",
          where_, kLitgptWeightsName);
    try {
      root_ = YAML::Load(read_file(file, kMaxOptionsBytes));
    } catch (const YAML::Exception& error) {
      throw UserError("{}:{}: {}", where_, error.mark.line + 1, error.msg);
    }
    if (!root_.IsMap()) throw UserError("{} is not a YAML mapping", where_);
  }

  template <class T>
  T get(const char* key, std::optional<T> otherwise = {}) const {
    try {
      if (root_[key] && !root_[key].IsNull()) return root_[key].as<T>();
    } catch (const YAML::Exception&) {
      throw UserError("{}: \"{}\" has a value of the wrong kind", where_, key);
    }
    if (!otherwise)
      throw UserError("{}: \"{}\" is missing; is this the folder of a LoRA run?", where_, key);
    return *otherwise;
  }
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  YAML::Node root_;
};

AdapterConfig read_options(const Options& options) {
  AdapterConfig config;
  config.r = options.get<int64_t>("lora_r");
  config.lora_alpha = options.get<double>("lora_alpha");
  config.lora_dropout = options.get<double>("lora_dropout", 0.0);
  config.base_model_name_or_path = options.get<std::string>("checkpoint_dir", "");
  if (config.r < 1)
    throw UserError("{}: \"lora_r\" is {}; it must be a whole number from 1", options.where(),
                    config.r);
  return config;
}

// The two matrices of a LitGPT module.
struct Pair {
  at::Tensor a, b;
};

std::map<std::string, Pair> read_pairs(const files::TensorSource& source) {
  std::map<std::string, Pair> pairs;
  for (const files::TensorInfo& info : source.tensors()) {
    const std::string& name = info.name;
    const bool is_a = name.ends_with(".lora_A");
    if (!is_a && !name.ends_with(".lora_B"))
      throw UserError("{}: tensor {} is unknown; names must end in .lora_A or .lora_B",
                      source.label(), printable(name));
    Pair& pair = pairs[name.substr(0, name.rfind('.'))];
    (is_a ? pair.a : pair.b) = read_adapter_tensor(source, info);
  }
  return pairs;
}

// The parts (of q, k and v) that the run adapted; any other tensor is one part.
std::vector<LitGptPart> enabled(std::vector<LitGptPart> parts, const Options& options) {
  std::ranges::sort(parts, {}, &LitGptPart::row_begin);
  if (parts.size() != kQkvKeys.size()) return parts;
  std::vector<LitGptPart> chosen;
  for (size_t i = 0; i < parts.size(); ++i)
    if (options.get<bool>(kQkvKeys[i])) chosen.push_back(parts[i]);
  return chosen;
}

void check_shapes(const std::string& name, const Pair& pair, const std::vector<LitGptPart>& parts,
                  int64_t rank, const std::string& where) {
  if (!pair.a.defined() || !pair.b.defined())
    throw UserError("{}: {}.{} is missing; the file is incomplete", where, printable(name),
                    pair.a.defined() ? "lora_B" : "lora_A");
  if (parts.empty())
    throw UserError("{}: {} is adapted, but {} adapts none of query, key and value", where,
                    printable(name), kOptionsName);
  int64_t rows = 0;
  for (const LitGptPart& part : parts) rows += part.rows;
  const std::vector<int64_t> a{rank * std::ssize(parts), parts.front().columns}, b{rows, rank};
  if (pair.a.sizes() != at::IntArrayRef(a) || pair.b.sizes() != at::IntArrayRef(b))
    throw UserError(
        "{}: {}: lora_A is {} and lora_B is {}; for this base and {} they should be {} and {}; "
        "the adapter belongs to another model, or the options file to another run",
        where, printable(name), show_shape(pair.a.sizes()), show_shape(pair.b.sizes()),
        kOptionsName, show_shape(a), show_shape(b));
}

void add_parts(Adapter& adapter, const Pair& pair, const std::vector<LitGptPart>& parts) {
  const int64_t rank = adapter.config.r;
  int64_t row = 0;
  for (int64_t i = 0; i < std::ssize(parts); ++i) {
    const LitGptPart& part = parts[static_cast<size_t>(i)];
    ModuleAdapter& own = adapter.modules[part.module];
    own.a = pair.a.narrow(0, i * rank, rank).clone();
    own.b = pair.b.narrow(0, row, part.rows).clone();
    row += part.rows;
  }
}

// "q_proj" for all layers, as in PEFT's target_modules.
std::vector<std::string> last_words(const Adapter& adapter) {
  std::set<std::string> words;
  for (const auto& [module, _] : adapter.modules)
    words.insert(module.substr(module.rfind('.') + 1));
  return {words.begin(), words.end()};
}

}  // namespace

bool is_litgpt_adapter(const fs::path& directory) {
  return fs::is_regular_file(directory / kLitgptWeightsName);
}

std::string litgpt_base(const fs::path& directory) {
  return Options(directory / kOptionsName).get<std::string>("checkpoint_dir", "");
}

Adapter read_litgpt_adapter(const fs::path& directory, const LitGptModules& modules) {
  const Options options(directory / kOptionsName);
  const auto source = files::open_pth(directory / kLitgptWeightsName);
  Adapter adapter;
  adapter.config = read_options(options);
  for (const auto& [name, pair] : read_pairs(*source)) {
    const auto known = modules.find(name);
    if (known == modules.end())
      throw UserError(
          "{}: the base has no layer {}; the adapter is for another model, or from an older LitGPT "
          "with other layer names",
          source->label(), printable(name));
    const std::vector<LitGptPart> parts = enabled(known->second, options);
    check_shapes(name, pair, parts, adapter.config.r, source->label());
    add_parts(adapter, pair, parts);
  }
  adapter.config.target_modules.names = last_words(adapter);
  check_and_scale(adapter, source->label());
  return adapter;
}

}  // namespace snug::checkpoint
