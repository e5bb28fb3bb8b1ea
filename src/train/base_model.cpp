// SPDX-License-Identifier: Apache-2.0
#include "train/base_model.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "core/ops/elementwise.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/started_adapter.h"
#include "engine/adapters/trained_parts.h"
#include "engine/exec/policies/sharding.h"
#include "engine/export/export.h"
#include "engine/export/gather_export.h"
#include "engine/export/vocabulary.h"
#include "engine/labels.h"
#include "engine/more_tokens.h"
#include "engine/open_data.h"
#include "engine/parallel/tensor_parallel.h"
#include "recipe/print.h"

namespace snug::train {
namespace {

// From another stage to the first one, as `type`: there the tensor is new memory for it.
at::Tensor brought(const at::Tensor& value, at::IntArrayRef sizes, int64_t from,
                   at::ScalarType type, const engine::Engine& engine) {
  const auto sender = static_cast<int>(from);
  dist::Group& group = engine.mesh->between_stages(sender, 0);
  const memory::CategoryGuard category(memory::Category::Communication);
  if (engine.stage.index == from) {
    group.wait(group.send(value.to(engine.device, type).contiguous(), 0));
    return value;
  }
  at::Tensor memory = at::empty(sizes, at::TensorOptions().device(engine.device).dtype(type));
  group.wait(group.receive(memory, sender));
  return memory;
}

// What trains is kept as the optimizer sees it: in float32 where masters live on the host. Stages
// that train nothing learn it from the others.
at::ScalarType type_of_trained(const engine::Engine& engine) {
  const std::string own =
      engine.parameters.empty()
          ? ""
          : std::to_string(static_cast<int>(engine.parameters.front().tensor.scalar_type()));
  for (const std::string& type : engine.mesh->world().gather_texts(own))
    if (!type.empty()) return static_cast<at::ScalarType>(std::stoi(type));
  return engine.precision.parameters;
}

bool is_first_or(int64_t stage, const engine::Engine& engine) {
  return engine.stage.index == 0 || engine.stage.index == stage;
}

}  // namespace

GatheredUnit::GatheredUnit(models::Model& model, const engine::Engine& engine, Gathered which)
    : engine_(engine),
      which_(which),
      sent_type_(which == Gathered::Trained && engine.mesh->size(dist::Axis::Pipeline) > 1
                     ? type_of_trained(engine)
                     : engine.precision.parameters),
      units_(model.units()) {}

size_t GatheredUnit::index_here(nn::Unit* unit) const {
  const auto found = std::ranges::find(engine_.units, unit);
  SNUG_CHECK(found != engine_.units.end(), "{} does not belong to this stage", unit->name());
  return static_cast<size_t>(found - engine_.units.begin());
}

void GatheredUnit::open(size_t unit) {
  values_.clear();
  const int64_t stage = engine_.stage.layout.stage_of(static_cast<int64_t>(unit));
  if (!is_first_or(stage, engine_)) return;
  const bool is_here = engine_.stage.index == stage;
  const bool trained_alone = which_ == Gathered::Trained;
  if (is_here && engine_.sharding != nullptr) {
    const size_t here = index_here(units_[unit]);
    trained_alone ? engine_.sharding->open_trained(here) : engine_.sharding->open(here);
  }
  for (const nn::Parameter* parameter : units_[unit]->parameters()) {
    if (trained_alone && !parameter->trained) continue;
    if (is_here && parameter->slice) values_[parameter] = engine::whole_value(*parameter);
    if (is_here && parameter->belongs_to_expert()) keep_on_host(*parameter);
    if (stage > 0) bring(*parameter, stage);
  }
}

// All of a block's experts are more than a rank has room for on its device while it trains.
void GatheredUnit::keep_on_host(const nn::Parameter& parameter) {
  at::Tensor& value = values_.at(&parameter);
  if (!is_first_of_stage()) {
    values_.erase(&parameter);
    return;
  }
  const at::Tensor home =
      memory::empty_on_host(value.sizes(), value.scalar_type(), value.device(),
                            memory::Category::Communication, memory::HostUse::Written);
  ops::copy(home, value);
  value = home;
}

bool GatheredUnit::is_first_of_stage() const {
  const dist::MeshShape& shape = engine_.mesh->shape();
  return engine_.mesh->rank() % (shape.num_ranks() / shape[dist::Axis::Pipeline]) == 0;
}

// Only rank 0 reads: its group of the pipeline axis is enough.
void GatheredUnit::bring(const nn::Parameter& parameter, int64_t from) {
  if (!is_first_of_stage()) return;
  const auto own = values_.find(&parameter);
  const at::Tensor value = own != values_.end()          ? own->second
                           : engine_.stage.index == from ? parameter.kept().detach()
                                                         : at::Tensor();
  const at::Tensor here = brought(value, parameter.whole_shape(), from, sent_type_, engine_);
  if (engine_.stage.index == 0) values_[&parameter] = here;
}

void GatheredUnit::close(size_t unit) {
  values_.clear();
  const int64_t stage = engine_.stage.layout.stage_of(static_cast<int64_t>(unit));
  if (engine_.sharding == nullptr || engine_.stage.index != stage) return;
  const size_t here = index_here(units_[unit]);
  which_ == Gathered::Trained ? engine_.sharding->close_trained(here)
                              : engine_.sharding->close(here);
}

at::Tensor GatheredUnit::read(const nn::Parameter& parameter) const {
  const auto whole = values_.find(&parameter);
  if (which_ == Gathered::Trained)
    return (whole == values_.end() ? parameter.kept().detach() : whole->second).cpu();
  if (whole == values_.end())
    return parameter.held ? parameter.kept().to(at::kCPU, engine_.precision.parameters)
                          : engine::resident_value(parameter);
  return whole->second.to(at::kCPU, engine_.precision.parameters);
}

namespace {

// Options that change what adapters mean, or whose optimizer states a checkpoint has, which another
// optimizer would drop or misread.
constexpr const char* kMeaningOfTraining[] = {
    "/adapter",         "/lora_alpha",        "/lora_use_rslora",
    "/lora_use_dora",   "/lora_init_weights", "/lora_target_modules",
    "/lora_query",      "/lora_key",          "/lora_value",
    "/lora_projection", "/lora_mlp",          "/lora_head",
    "/quantize",        "/model/train_parts", "/optimizer/class_path",
    "/objective/name",  "/tokens/add"};

// As options have it: model.train_parts.
std::string option_name(const nlohmann::json::json_pointer& key) {
  std::string name = key.to_string().substr(1);
  std::ranges::replace(name, '/', '.');
  return name == "optimizer.class_path" || name == "objective.name" ? name.substr(0, name.find('.'))
                                                                    : name;
}

// A run moves an earlier run's files away and writes its own model there. Neither may remove the
// model that it starts from, to which an adapter belongs.
void check_base_stays(const recipe::Recipe& recipe) {
  namespace fs = std::filesystem;
  if (recipe.out_dir.empty()) return;
  const fs::path written = fs::weakly_canonical(fs::path(recipe.out_dir) / "final");
  for (const std::string& folder : {recipe.checkpoint_dir, recipe.lora.adapter}) {
    if (folder.empty()) continue;
    const fs::path start = fs::weakly_canonical(folder);
    const auto [end, _] = std::mismatch(written.begin(), written.end(), start.begin(), start.end());
    if (end == written.end())
      throw UserError(
          "{} was trained by an earlier run in {}; this run starts from it and would overwrite it; "
          "choose another --out_dir",
          folder, recipe.out_dir);
  }
}

}  // namespace

BaseModel::BaseModel(const recipe::Recipe& recipe) : recipe_(recipe) {
  check_base_stays(recipe_);
  const bool reads_text = !is_random() || !engine::is_synthetic(recipe_.data);
  if (is_random() && recipe_.checkpoint_dir.empty() && reads_text)
    throw UserError(
        "model.config gives a model without a tokenizer, which rows of text need; give the folder "
        "of one with --checkpoint_dir, or --data Synthetic to train on random tokens");
  // From random weights, a folder needs to hold no more than a tokenizer.
  if (is_random() && !recipe_.checkpoint_dir.empty() &&
      !std::filesystem::is_directory(recipe_.checkpoint_dir))
    throw UserError(
        "{} is no folder: with model.config checkpoint_dir only gives the tokenizer; leave it out, "
        "or give --checkpoint_dir none if the recipe has it, or leave out model.config to train "
        "the model in checkpoint_dir",
        recipe_.checkpoint_dir);
  if (is_random() && std::filesystem::is_directory(recipe_.checkpoint_dir))
    checkpoint_.path = recipe_.checkpoint_dir;
  else if (reads_text)
    checkpoint_ = recipe_.lora.adapter.empty()
                      ? models::open_checkpoint(recipe_.checkpoint_dir)
                      : engine::open_base(recipe_.lora.adapter, recipe_.checkpoint_dir);
  if (is_random()) checkpoint_.model = models::model_from_config(recipe_.model.config);
  if (reads_text)
    tokenizer_ = engine::open_tokenizer(checkpoint_, recipe_.lora.adapter, recipe_.data);
  engine::add_tokens(checkpoint_, recipe_, tokenizer_.get());
  engine::prepare_head(checkpoint_, recipe_, tokenizer_.get());
  engine::choose_trained(model(), recipe_);
  if (!recipe_.lora.adapter.empty()) engine::check_started(recipe_, checkpoint_);
}

bool BaseModel::trains_whole() const {
  for (nn::Unit* unit : model().units())
    for (const nn::Parameter* parameter : unit->parameters())
      if (!parameter->trained) return false;
  return true;
}

void BaseModel::load(const engine::Engine& engine) {
  const bool leaves_out = !engine::start_from_weights(recipe_.lora);
  const double deviation = model().initializer_range();
  const auto to_fill = [&](nn::Unit& unit) {
    std::vector<nn::Parameter*> parameters = unit.parameters();
    std::erase_if(parameters, [&](const auto* parameter) {
      return parameter->is_elsewhere() || (leaves_out && !engine.keeps(*parameter));
    });
    return parameters;
  };
  if (!is_random()) {
    std::vector<nn::Parameter*> all;
    for (nn::Unit* unit : engine.units)
      for (nn::Parameter* parameter : to_fill(*unit)) all.push_back(parameter);
    models::expect_weights(checkpoint_, all);
  }
  std::optional<checkpoint::Adapter> started;
  if (!recipe_.lora.adapter.empty()) started = engine::read_started(recipe_.lora, model());
  engine.fill_weights([&](nn::Unit& unit) {
    const std::vector<nn::Parameter*> parameters = to_fill(unit);
    if (is_random())
      for (nn::Parameter* parameter : parameters) parameter->initialize(recipe_.seed, deviation);
    else
      models::load_weights(checkpoint_, parameters);
    for (nn::Parameter* parameter : parameters)
      if (checkpoint_.draws(*parameter)) parameter->initialize(recipe_.seed, deviation);
    engine::initialize_adapters(unit, recipe_.lora, recipe_.seed, deviation, reader());
    if (started) engine::write_started(*started, unit);
  });
}

engine::ParameterReader BaseModel::reader() const {
  return [this](const nn::Parameter& own) {
    nn::Parameter parameter = own;
    if (own.belongs_to_expert()) {  // here or elsewhere
      parameter.shape = own.whole_shape();
      parameter.slice.reset();
    }
    if (!is_random() && !checkpoint_.draws(own))
      return models::read_parameter(checkpoint_, parameter, at::kFloat);
    nn::Parameter drawn{.name = parameter.name,
                        .shape = parameter.shape,
                        .init = parameter.init,
                        .init_scale = parameter.init_scale};
    drawn.slice = parameter.slice;
    drawn.value = at::empty(parameter.shape, at::kFloat);
    drawn.initialize(recipe_.seed, model().initializer_range());
    return drawn.value;
  };
}

void BaseModel::reopen() {
  if (is_random() || !is_closed_) return;
  is_closed_ = false;  // once is enough where they are gone
  try {
    checkpoint_.tensors = models::open_checkpoint(checkpoint_.path).tensors;
    models::add_rows_to_files(checkpoint_);
  } catch (const UserError& error) {
    warn(
        "the base model cannot be read again, to answer the samples or to write its frozen weights "
        "as they are there: {}",
        error.what());
  }
}

void BaseModel::write_trained(const std::filesystem::path& folder, const engine::Engine& engine,
                              const engine::AddFiles& add) const {
  recipe_.lora.enabled ? write_adapter(folder, engine, add) : write_model(folder, engine, add);
}

void BaseModel::with_values(
    const engine::Engine& engine, Gathered which,
    const std::function<void(const engine::ParameterReader&)>& write) const {
  GatheredUnit gathered(model(), engine, which);
  const engine::ParameterReader read = [&](const nn::Parameter& parameter) {
    return gathered.read(parameter);
  };
  if (engine.mesh->is_single()) return write(read);
  engine::write_gathered(engine.mesh->world(), model().units(),
                         {.gather = [&](size_t unit) { gathered.open(unit); },
                          .release = [&](size_t unit) { gathered.close(unit); },
                          .read = read},
                         write);
}

int64_t BaseModel::trained_bytes(const engine::Engine& engine) const {
  return recipe_.lora.enabled
             ? engine::peft_directory_bytes(adapter_shapes(engine.precision.parameters),
                                            tokenizer_.get())
             : engine::hugging_face_bytes(model(), tokenizer_.get(), export_options(engine));
}

checkpoint::Adapter BaseModel::adapter_shapes(at::ScalarType type) const {
  return engine::adapter_shapes(model(), recipe_.lora, type);
}

engine::ExportOptions BaseModel::export_options(const engine::Engine& engine) const {
  return {.dtype = engine.precision.parameters,
          .processor = std::filesystem::path(recipe_.checkpoint_dir)};
}

void BaseModel::write_model(const std::filesystem::path& folder, const engine::Engine& engine,
                            const engine::AddFiles& add) const {
  engine::ExportOptions options = export_options(engine);
  options.add = add;
  with_values(engine, Gathered::All, [&](const engine::ParameterReader& read) {
    // What is frozen is the base's; held in 16 bits it may have been rounded.
    const engine::ParameterReader exact = [&](const nn::Parameter& parameter) {
      if (!parameter.held || !can_load()) return read(parameter);
      nn::Parameter whole = parameter;
      whole.shape = parameter.whole_shape();
      whole.slice.reset();
      return reader()(whole);
    };
    engine::export_hugging_face(folder, model(), tokenizer_.get(), exact, options);
  });
}

void BaseModel::write_adapter(const std::filesystem::path& folder, const engine::Engine& engine,
                              const engine::AddFiles& add) const {
  const std::vector<nn::Parameter*> all = model().parameters();
  const auto trained = std::ranges::find_if(all, [](const auto* p) { return p->trained; });
  SNUG_CHECK(trained != all.end(), "adapters without trained weights");
  with_values(engine, Gathered::Trained, [&](const engine::ParameterReader& read) {
    checkpoint::Adapter adapter = adapter_shapes(read(**trained).scalar_type());
    // Random weights have no folder to refer to.
    if (!is_random())
      adapter.config.base_model_name_or_path =
          std::filesystem::absolute(recipe_.checkpoint_dir).string();
    engine::export_peft(
        folder, adapter,
        engine::adapter_values(model(), recipe_.lora, engine.precision.parameters, read, reader()),
        tokenizer_.get(), [&](const std::filesystem::path& into) {
          if (!model().labels().empty()) engine::write_labels_file(into, model().labels());
          if (add) add(into);
        });
  });
}

void check_same_meaning(const recipe::Recipe& recipe, const nlohmann::json& before,
                        const std::filesystem::path& checkpoint) {
  const nlohmann::json now = recipe::recipe_json(recipe);
  const auto require_same = [&](const char* path, std::string_view otherwise) {
    const nlohmann::json::json_pointer key(path);
    if (!now.contains(key) || !before.contains(key) || now[key] == before[key]) return;
    throw UserError(
        "{} was written with {} = {}, and now it is {}: {}, or start over with "
        "--resume false",
        checkpoint.string(), option_name(key), before[key].dump(), now[key].dump(), otherwise);
  };
  // Steps and epochs are counted in these.
  for (const char* path : {"/train/global_batch_size", "/train/limit_train_batches"})
    require_same(path,
                 "samples would be read twice or not at all; resume with the value of the first "
                 "run");
  for (const char* path : kMeaningOfTraining)
    require_same(path, fmt::format("{} would differ from what was trained; resume with the options "
                                   "of the first run",
                                   recipe.lora.enabled ? "its adapters" : "the model"));
}

}  // namespace snug::train
