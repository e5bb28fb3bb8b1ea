// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "data/mix.h"
#include "data/synthetic.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/adapters/started_adapter.h"
#include "engine/adapters/trained_parts.h"
#include "engine/asked/teacher.h"
#include "engine/export/vocabulary.h"
#include "engine/host.h"
#include "engine/labels.h"
#include "engine/language_model.h"
#include "engine/more_tokens.h"
#include "engine/open_data.h"
#include "engine/run_length.h"
#include "engine/strategy.h"
#include "files/hub/download.h"
#include "files/hub/hub_name.h"
#include "files/hub/meter.h"
#include "models/family.h"
#include "plan/command/plan_largest.h"
#include "plan/command/plan_sweep.h"
#include "plan/command/planned.h"
#include "plan/command/prices.h"
#include "plan/out_of_memory.h"
#include "recipe/data_sources.h"
#include "recipe/hub_models.h"
#include "recipe/tables/objectives.h"
#include "train/launch/layout.h"

namespace snug::plan {
namespace {

// Samples for a global batch.
data::SampleStore full_length_samples(const recipe::Recipe& recipe, const data::Reading& reading) {
  const int64_t documents = recipe::documents_per_sample(recipe.objective);
  data::SampleStore samples;
  for (int64_t d = 0; d < documents; ++d)
    samples.append(
        data::full_length_sample(*recipe.train.max_seq_length, reading, [] { return 1; }));
  samples.group(documents);
  samples.repeat_to(recipe.train.global_batch_size);
  return samples;
}

namespace fs = std::filesystem;

// A data set of the hub that is not here, since a plan fetches no rows; empty: none.
std::string absent_set(const recipe::Recipe& recipe) {
  for (const data::DatasetOptions& source : engine::sources_of(recipe))
    if (source.name == "HFDataset" && recipe::names_hub_set(source.path.string()) &&
        !fs::exists("data" / source.path))
      return source.path.string();
  return "";
}

bool reads_rows(const recipe::Recipe& recipe) {
  return !engine::is_synthetic(recipe.data) && absent_set(recipe).empty() &&
         !(recipe.data.json_path.empty() && recipe.data.path.empty() &&
           recipe.data.sources.empty());
}

// All that a plan reads of a model, a few megabytes.
const std::vector<std::string> kSmallFiles = {"config.json",
                                              "generation_config.json",
                                              "preprocessor_config.json",
                                              "processor_config.json",
                                              "tokenizer*",
                                              "special_tokens_map.json",
                                              "added_tokens.json",
                                              "chat_template*",
                                              "vocab.*",
                                              "merges.txt",
                                              "spiece.model"};

// Returns why they could not be fetched; empty: they are there now.
std::string fetch_small_files(const std::string& id, const fs::path& folder,
                              const std::string& token) {
  hub::ProgressLine line;
  try {
    hub::download({.repo_id = id,
                   .directory = folder,
                   .token = token,
                   .patterns = kSmallFiles,
                   .stall_seconds = 10,
                   .max_retries = 1},
                  [&](const hub::Progress& progress) { line.show(progress); });
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

[[noreturn]] void fail_for_absent(const fs::path& checkpoint, const std::string& why) {
  const std::string name = checkpoint.filename().string();
  const std::string shipped = fmt::format("recipes/models/{}.json", name);
  const std::string near = nearest_name(recipe::short_name(name), recipe::hub_short_names());
  const size_t alike = recipe::hub_models_like(name).size();
  const std::string hint = !near.empty() ? fmt::format(" Did you mean {}?", near)
                           : alike > 0   ? fmt::format(" snug models {} lists {}.", name, alike)
                                         : "";
  throw UserError(
      "{} does not exist or is empty.{} A plan needs only the model's config: name a model that "
      "snug models lists, or give --checkpoint_dir none --model.config {}. Or download it: {}{}",
      checkpoint.string(), hint,
      fs::exists(shipped_file(shipped)) ? shipped : "FILE with a config.json",
      models::download_command(checkpoint),
      why.empty() ? "" : fmt::format("\nIts config could not be fetched: {}", why));
}

// A plan needs no weights: a config.json is enough, as a file, in a folder, or in the table of
// models.
void open_checkpoint(Planned& p) {
  fs::path checkpoint = p.recipe.checkpoint_dir;
  p.checkpoint.path = checkpoint;
  if (checkpoint.extension() == ".json" && fs::is_regular_file(checkpoint)) {
    p.checkpoint.path = checkpoint.parent_path();
    p.checkpoint.model = models::model_from_config(checkpoint);
    return;
  }
  if (hub::is_absent(checkpoint)) {
    const std::string id = hub::hub_name(checkpoint);
    const std::string known = recipe::hub_id_of(id.empty() ? checkpoint.string() : id);
    // Someone's copy of a model usually keeps its name.
    const std::string original = recipe::name_before_quantization(recipe::short_name(id));
    const std::string alike = known.empty() ? recipe::hub_id_of(original) : known;
    if (!alike.empty() && !reads_rows(p.recipe)) {
      p.hub_id = alike;
    } else {
      if (id == checkpoint.string()) checkpoint = p.recipe.checkpoint_dir = "checkpoints/" + id;
      const std::string why =
          id.empty() ? "" : fetch_small_files(id, checkpoint, p.recipe.access_token);
      if (fs::exists(checkpoint / "config.json")) {
        p.fetched = why.empty();
        if (!why.empty()) warn("not all of {} could be fetched: {}", id, why);
        return open_checkpoint(p);
      }
      if (alike.empty()) fail_for_absent(checkpoint, why);
      p.hub_id = alike;
      warn("the rows are not read: their tokens are not known without the model's tokenizer ({})",
           why);
    }
    p.asked_id = id.empty() ? p.hub_id : id;
    p.checkpoint.model = models::named_model(*recipe::find_hub_model(p.hub_id));
    return;
  }
  if (models::is_shape_alone(checkpoint))
    p.checkpoint.model = models::model_from_config(checkpoint / "config.json");
  else
    p.checkpoint = models::open_checkpoint(checkpoint);
}

// Tokens of a sample if neither data nor recipe give a length and the model allows very long ones.
constexpr int64_t kUsualLength = 2048, kLongestUsual = 8192;

void check_page_folder(const std::string& html) {
  if (html.empty()) return;
  const fs::path folder = fs::absolute(html).parent_path();
  if (!fs::is_directory(folder))
    throw UserError("--html {}: there is no folder {}", html, folder.string());
}

void find_device(Planned& p, const std::string& name) {
  const int64_t budget =
      p.recipe.memory_budget.empty() ? 0 : parse_bytes(p.recipe.memory_budget, "memory_budget");
  // A profile's file may describe another CPU than this machine's.
  p.device = with_host(find_profile(name, budget), p.recipe,
                       name == "cpu" ? Machine::Here : Machine::Elsewhere);
}

// On a CPU the kernels' scratch grows with the threads, which the ranks of a machine share.
void share_cores(const Planned& p) {
  const int64_t ranks = engine::named_ranks_per_node(p.recipe);
  if (p.device.kind == at::kCPU && ranks > 1 && p.recipe.num_threads == 0)
    at::set_num_threads(launch::threads_each(static_cast<int>(ranks)));
}

// A recipe's checkpoint_dir stands for the model that model.config replaces. On the command line it
// is another thing, a folder with a tokenizer, as in finetune.
void check_tokenizer_folder(const Planned& p, bool is_named) {
  const std::string& folder = p.recipe.checkpoint_dir;
  if (!is_named || p.recipe.model.config.empty() || folder.empty() || fs::is_directory(folder))
    return;
  throw UserError(
      "{} is no folder: with model.config {} the model is planned from that file, and "
      "checkpoint_dir only gives the tokenizer; leave {} out, or leave out model.config to plan "
      "the model in checkpoint_dir",
      folder, p.recipe.model.config, folder);
}

void open_model(Planned& p) {
  const bool from_scratch = !p.recipe.model.config.empty();
  if (from_scratch)
    p.checkpoint.path = p.recipe.checkpoint_dir;  // may hold a tokenizer
  else
    open_checkpoint(p);
  if (from_scratch) p.checkpoint.model = models::model_from_config(p.recipe.model.config);
  if (!from_scratch) engine::resolve_quantize(p.recipe, p.recipe.checkpoint_dir);
  const bool reads_tokens =
      !p.recipe.data.add_tokens.empty() && engine::has_tokenizer(p.checkpoint);
  const auto tokenizer =
      reads_tokens ? engine::open_tokenizer(p.checkpoint, p.recipe.lora.adapter, p.recipe.data)
                   : nullptr;
  engine::add_tokens(p.checkpoint, p.recipe, tokenizer.get());
  engine::prepare_head(p.checkpoint, p.recipe, /*tokenizer=*/nullptr);
}

void open_samples(Planned& p) {
  const models::Model& model = *p.checkpoint.model;
  const bool synthetic = engine::is_synthetic(p.recipe.data);
  p.from_data =
      synthetic || (reads_rows(p.recipe) && !p.recipe.checkpoint_dir.empty() && p.hub_id.empty());
  if (const std::string absent = absent_set(p.recipe); !absent.empty())
    warn(
        "the rows of {0} are not here, and the plan is for full samples; snug download --data {0} "
        "fetches them, as training does",
        absent);
  engine::tell_of_shorter_samples(p.recipe, model);
  const int64_t longest = engine::longest_sample(p.recipe, model);
  p.length_is_usual = !p.from_data && !p.recipe.train.max_seq_length && longest > kLongestUsual;
  p.recipe.train.max_seq_length = p.length_is_usual ? kUsualLength : longest;
  if (p.from_data) {
    const auto tokenizer =
        synthetic ? nullptr
                  : engine::open_tokenizer(p.checkpoint, p.recipe.lora.adapter, p.recipe.data);
    data::Dataset dataset =
        engine::open_data(p.recipe, model, p.recipe.checkpoint_dir, tokenizer.get());
    p.reading = dataset.batch_options.reading;
    p.samples = std::move(dataset.train);
    p.validation = std::move(dataset.validation);
    p.others = std::move(dataset.train_others);
    p.validation_others = std::move(dataset.validation_others);
    if (p.samples.count() == 0)
      throw UserError("{} has no samples",
                      p.recipe.data.path.empty() ? p.recipe.data.json_path : p.recipe.data.path);
    p.length = engine::run_length(p.recipe, p.samples, data::ranges_of(dataset),
                                  engine::named_strategy(p.recipe).mesh.num_data_ranks());
  } else {
    p.reading = engine::dataset_options(p.recipe.data, model, p.recipe.checkpoint_dir).reading;
    p.samples = full_length_samples(p.recipe, p.reading);
  }
  p.longest = std::max({p.samples.longest(), p.validation.longest(), p.others.longest(),
                        p.validation_others.longest()});
}

// Of folders and files that are there.
std::optional<AskedModel> asked_model(const recipe::Recipe& recipe) {
  const auto& [role, path] = recipe.objective.teacher.empty()
                                 ? std::pair("Reference", recipe.objective.reference)
                                 : std::pair("Teacher", recipe.objective.teacher);
  std::error_code none;
  if (path.empty() || engine::is_top_k_file(path)) return std::nullopt;
  if (!fs::exists(path, none)) {
    warn("{} is not here, so what it takes while it is asked is not in the plan", path);
    return std::nullopt;
  }
  const fs::path base =
      engine::is_adapter_directory(path) ? engine::find_base(path) : fs::path(path);
  const models::Checkpoint other = models::open_checkpoint(base);
  const auto bytes = static_cast<int64_t>(
      c10::elementSize(nn::parse_precision(engine::plain_precision(recipe.precision)).parameters));
  return AskedModel{role, path, bytes * engine::count_parameters(*other.model).total};
}

// Ranks differ by pipeline stage, and a little by their shards: the plan shows the stage that needs
// most, and of each the rank that does.
void plan_ranks(Planned& p) {
  const dist::MeshShape mesh = engine::named_strategy(p.recipe).mesh;
  std::map<int, std::vector<Candidate>> ranks;
  for (const int rank : different_ranks(mesh))
    ranks[mesh.coordinate(dist::Axis::Pipeline, rank)].push_back(
        evaluate(*p.checkpoint.model, p.recipe, p.workload(), p.device, rank));
  for (const auto& [stage, of_stage] : ranks) p.stages.push_back(neediest_of(of_stage, p.device));
  p.wanted = neediest_of(p.stages, p.device);
}

std::string what_is_too_small(const Planned& p) {
  const Missing lacking = p.missing();
  if (lacking.on_device > 0)
    return p.recipe.memory_budget.empty()
               ? p.device.name
               : fmt::format("the memory_budget of {}", p.recipe.memory_budget);
  if (lacking.in_host > 0)
    return fmt::format("the {} of host memory", format_bytes(p.device.host_bytes));
  return fmt::format("the {} that is free on the disk", format_bytes(p.device.disk_bytes));
}

// What has a table of its own says nothing of the rest.
void check_alone(const char* name, const recipe::Recipe& recipe,
                 const recipe::PlanOptions& options) {
  const std::pair<bool, const char*> others[] = {{recipe.fit, "fit"},
                                                 {options.scaling, "scaling"},
                                                 {!options.like.empty(), "like"},
                                                 {options.operations, "operations"}};
  for (const auto& [is_given, other] : others)
    if (is_given) throw UserError("--{} and --{} do not go together; leave one out", name, other);
}

void warn_of_assumed_host(const Planned& p) {
  const Candidate& chosen = p.fit && p.fit->best ? *p.fit->best : p.wanted;
  if (const int64_t beyond = beyond_assumed_host(chosen, p.device); beyond > 0)
    warn(
        "the plan takes {} more host memory than the {} that a machine with this device is "
        "assumed to have; set --host_memory to what your machine has",
        format_bytes(beyond), format_bytes(p.device.assumed_host_bytes));
}

}  // namespace

bool Planned::has_many_devices() const { return engine::named_ranks(recipe) > 1; }

Missing Planned::missing() const {
  Missing most;
  for (const Candidate& stage : stages) {
    const Missing of = plan::missing(stage, device);
    most.on_device = std::max(most.on_device, of.on_device);
    most.in_host = std::max(most.in_host, of.in_host);
    most.on_disk = std::max(most.on_disk, of.on_disk);
  }
  return most;
}

engine::ParameterCount Planned::count_parameters() const {
  const auto twin = models::model_like(*checkpoint.model);
  engine::choose_trained(*twin, recipe);
  return engine::count_parameters(*twin);
}

void plan_recipe(Planned& p, const recipe::PlanOptions& options) {
  find_device(p, options.device);
  p.price = read_price(options.price_per_hour, p.device.name);
  if (options.operations && p.device.kind != at::kCUDA)
    throw UserError(
        "--operations counts the kernels of a GPU: say which, as in --device h100-80 or --device "
        "rtx-4090");
  share_cores(p);
  check_tokenizer_folder(p, options.names_folder);
  open_model(p);
  open_samples(p);
  plan_ranks(p);
  p.asked = asked_model(p.recipe);
}

void plan(const recipe::Recipe& recipe, const recipe::PlanOptions& options,
          const std::vector<std::string>& words) {
  memory::install_allocators();
  engine::use_threads(recipe.num_threads);
  check_page_folder(options.html);
  if (!options.sweep.empty()) check_alone("sweep", recipe, options);
  if (options.largest) check_alone("largest", recipe, options);
  if (options.largest && !(options.sweep.empty() && options.html.empty()))
    throw UserError("--largest goes neither with --sweep nor with --html; leave one out");
  const ShownPlans shown;
  if (options.machine_devices > 0 && options.sweep.empty())
    throw UserError("--machine_devices adds a column to --sweep; give --sweep KEY=VALUES");
  if (!options.sweep.empty()) return plan_sweep(options, words);
  Planned p{.recipe = recipe};
  engine::resolve_adapter(p.recipe);
  plan_recipe(p, options);
  if (options.largest) return plan_largest(p, options.json);
  if (!options.price_per_hour.empty() && p.price.per_hour == 0)
    throw UserError("--price_per_hour {}: has no price of {}; add {}=…", options.price_per_hour,
                    p.device.name, p.device.name);
  if (p.recipe.fit) {
    p.fit = fit(*p.checkpoint.model, p.recipe, p.workload(), p.device);
    if (p.fit->best && !p.wanted_fits())
      p.other_training =
          suggest_other_training(*p.checkpoint.model, p.recipe, p.workload(), p.device);
  }
  if (options.operations)
    p.counted = count_step(*p.checkpoint.model, p.recipe, p.workload(), p.device);
  if (options.scaling) p.scaling.emplace(*p.checkpoint.model, p.recipe, p.workload(), p.device);
  if (!options.like.empty())
    p.like.emplace(options, *p.checkpoint.model, p.wanted, p.samples, p.device);
  const std::vector<std::string> lines = plan_lines(p);
  const std::string text = options.json ? plan_json(p).dump(2) + "\n" : plan_text(p, lines);
  ShownPlans::hide();
  warn_of_assumed_host(p);
  print_plan(text, options.json);
  if (!options.html.empty()) {
    write_file_atomically(options.html, report::plan_html(plan_page(p, lines)));
    if (!options.json) std::printf("\nThe page is %s\n", options.html.c_str());
  }
  if (!p.wanted_fits() && !(p.fit && p.fit->best))
    throw OutOfMemory(fmt::format("this recipe does not fit into {}", what_is_too_small(p)));
}

}  // namespace snug::plan
