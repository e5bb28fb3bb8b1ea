// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "core/memory/disk_file.h"
#include "core/memory/placement.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/trained_parts.h"
#include "engine/exec/policies/home_copies.h"
#include "engine/exec/policies/sharding.h"
#include "engine/parallel/context_parallel.h"
#include "engine/parallel/sharding.h"
#include "engine/parallel/tensor_parallel.h"
#include "engine/steps/objective.h"
#include "engine/techniques/behaviour.h"
#include "engine/updaters.h"

namespace snug::engine {
namespace {

// LoRA+ (Hayou et al. 2024): B, which starts at zero, gets a higher learning rate than A.
optim::Group group_of(nn::ParameterRole role, const recipe::Recipe& recipe) {
  if (role == nn::ParameterRole::AdapterB) return {.lr_factor = recipe.lora.plus_lr_ratio};
  return {};
}

// In the order of the optimizer's list.
std::vector<optim::Group> groups_of(const Engine& engine, const recipe::Recipe& recipe) {
  std::vector<optim::Group> groups;
  for (const auto& own : engine.updated)
    for (const nn::Parameter* parameter : own) groups.push_back(group_of(parameter->role, recipe));
  return groups;
}

// Weights that are updated on the host have a host copy of the device's type, which is copied to
// the device after an update; a float32 master copy is an optimizer state. Those of frozen weights
// lie in the file, if there is one.
void allocate_home(nn::Parameter& parameter, const recipe::Recipe& recipe,
                   memory::DiskFile* file = nullptr) {
  const bool is_updated_there = recipe.updates_on_host() && parameter.trained;
  const memory::DiskGuard disk(parameter.trained ? nullptr : file);
  if (recipe.streams_weights() || is_updated_there) parameter.allocate_home();
}

// The file for frozen weights, if the recipe puts them on disk; null otherwise. A plan only counts.
std::unique_ptr<memory::DiskFile> open_weight_file(const recipe::Recipe& recipe,
                                                   const Engine& engine) {
  const std::optional<std::string> folder = recipe.weight_folder();
  if (!folder) return nullptr;
  if (engine.device.is_meta()) return std::make_unique<memory::DiskFile>();
  int64_t bytes = 0;
  for (nn::Unit* unit : engine.units)
    for (const nn::Parameter* parameter : unit->parameters())
      if (!parameter->trained)
        bytes +=
            memory::DiskFile::padded(c10::multiply_integers(parameter->stored_shape()) *
                                     static_cast<int64_t>(c10::elementSize(
                                         parameter->stored_type(engine.precision.parameters))));
  return std::make_unique<memory::DiskFile>(memory::kWeightsOnDisk, *folder, bytes);
}

// Allocates the parameters that are not sharded.
void allocate_parameters(const recipe::Recipe& recipe, Engine& engine) {
  const auto file = open_weight_file(recipe, engine);
  for (size_t i = 0; i < engine.units.size(); ++i) {
    const memory::UnitGuard tag(memory::unit_id(engine.units[i]->name()));
    for (nn::Parameter* parameter : engine.units[i]->parameters()) {
      if (engine.sharding != nullptr && engine.sharding->shares(*parameter)) continue;
      parameter->allocate(engine.device, engine.precision.parameters);
      allocate_home(*parameter, recipe, file.get());
      if (recipe.streams_weights()) memory::vacate(parameter->value);
      if (parameter->trained) engine.updated[i].push_back(parameter);
    }
  }
}

// Names of parameters that several ranks have (tensor and expert parallelism, pipeline stages) and
// whose gradients another rank adds to the norm.
std::set<std::string> counted_elsewhere(const Engine& engine) {
  std::set<std::string> names;
  const bool has_first_experts = engine.mesh->coordinate(dist::Axis::Expert) == 0;
  for (nn::Unit* unit : engine.units)
    for (const nn::Parameter* parameter : unit->parameters())
      if (!parameter->counts_here() || engine.stage.is_counted_elsewhere(*parameter) ||
          !(has_first_experts || parameter->belongs_to_expert()))
        names.insert(parameter->name);
  return names;
}

// Shards parameters among processes and sets what this rank updates of each unit.
std::unique_ptr<exec::Sharding> share_parameters(const recipe::Recipe& recipe, Engine& engine) {
  auto sharding = make_sharding(recipe, engine);
  if (sharding == nullptr) return nullptr;
  engine.sharding = sharding.get();
  for (size_t i = 0; i < engine.units.size(); ++i) {
    const memory::UnitGuard tag(memory::unit_id(engine.units[i]->name()));
    engine.updated[i] = sharding->updated(i);
    for (nn::Parameter* parameter : sharding->kept(i)) allocate_home(*parameter, recipe);
  }
  return sharding;
}

// The element counts of the unsplit tensors behind the engine's parameters.
std::vector<int64_t> whole_elements(const Engine& engine) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < engine.units.size(); ++i) {
    std::unordered_map<std::string_view, int64_t> by_name;
    for (const nn::Parameter* parameter : engine.units[i]->parameters())
      by_name[parameter->name] = c10::multiply_integers(parameter->whole_shape());
    for (const nn::Parameter* piece : engine.updated[i]) sizes.push_back(by_name.at(piece->name));
  }
  return sizes;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const recipe::Recipe& recipe, const Engine& engine,
                                                 const std::vector<optim::NamedTensor>& parameters,
                                                 memory::DiskFile* file,
                                                 const optim::MakeOptimizer& make) {
  const memory::HostGuard host(recipe.updates_on_host());
  const memory::DiskGuard disk(file);
  // Shards may use different random numbers for stochastic rounding; copies of a weight must round
  // alike.
  const bool has_copy = engine.sharding == nullptr || engine.sharding->pieces_are_whole();
  const auto shard =
      static_cast<uint64_t>(has_copy ? 0 : engine.mesh->shape().shard_of(engine.mesh->rank()));
  return (make ? make : optim::make_optimizer)(recipe.optimizer, parameters, recipe.seed + shard,
                                               whole_elements(engine));
}

// The file size for the optimizer states: they are made once on meta and counted.
int64_t state_bytes_on_disk(const recipe::Recipe& recipe, const Engine& engine,
                            const optim::MakeOptimizer& make) {
  std::vector<optim::NamedTensor> planned;
  for (const auto& [name, tensor] : engine.parameters)
    planned.push_back({name, at::empty(tensor.sizes(), tensor.options().device(at::kMeta))});
  memory::DiskFile counted;
  const memory::Ledger& ledger = memory::meta_disk_ledger();
  const int64_t before = ledger.allocated();
  const auto optimizer = make_optimizer(recipe, engine, planned, &counted, make);
  return ledger.allocated() - before;
}

// The file for states that the recipe puts on disk; null otherwise. A plan only counts.
std::unique_ptr<memory::DiskFile> open_disk_file(const recipe::Recipe& recipe, const Engine& engine,
                                                 const optim::MakeOptimizer& make) {
  const std::optional<std::string> folder = recipe.offload_folder();
  if (!folder) return nullptr;
  if (engine.device.is_meta()) return std::make_unique<memory::DiskFile>();
  return std::make_unique<memory::DiskFile>(memory::kStatesOnDisk, *folder,
                                            state_bytes_on_disk(recipe, engine, make));
}

// The position of a parameter, or of a piece of it, in the unsplit parameter.
checkpoint::PieceOf place_of(const nn::Parameter& parameter,
                             std::optional<checkpoint::Span> range = std::nullopt) {
  auto place = checkpoint::PieceOf::whole(parameter.shape);
  if (const auto& slice = parameter.slice) {
    const auto dim = static_cast<size_t>(slice->dim);
    const int64_t count = parameter.shape[dim] / slice->sections;
    const checkpoint::Span range{slice->begin, slice->begin + count};
    place = slice->sections == 1
                ? checkpoint::PieceOf::slice(slice->whole, dim, range)
                : checkpoint::PieceOf::slice(slice->by_sections(slice->whole), dim + 1, range);
  }
  if (range) place.range = *range;
  return place;
}

}  // namespace

memory::Ledger& Engine::ledger() const { return memory::ledger_of(device.type()); }

memory::Ledger& Engine::host_ledger() const { return memory::host_ledger_of(device.type()); }
memory::Ledger& Engine::disk_ledger() const { return memory::disk_ledger_of(device.type()); }

void Engine::weights_changed() const {
  if (!publishes_weights) return;
  for (const auto& own : updated) exec::send_weights_from_home(own, *copies);
  copies->wait_for_all();
  if (sharding != nullptr) sharding->publish();
}

void Engine::fill_weights(const std::function<void(nn::Unit&)>& write) const {
  for (size_t i = 0; i < units.size(); ++i) {
    if (sharding != nullptr) sharding->open_blank(i);
    write(*units[i]);
    for (const nn::Parameter* parameter : units[i]->parameters())
      memory::write_behind(parameter->home);
    if (sharding != nullptr) sharding->close_written(i);
  }
}

bool Engine::keeps(const nn::Parameter& parameter) const {
  return sharding == nullptr || sharding->holds(parameter);
}

double Engine::global_norm(double sum_of_squares) const {
  if (mesh->is_single()) return std::sqrt(sum_of_squares);
  // How many ranks count the same gradients.
  const bool all_alike = sharding == nullptr || sharding->pieces_are_whole();
  const int copies = all_alike ? mesh->same_experts().size() : mesh->size(dist::Axis::Replicate);
  return std::sqrt(mesh->world().sum({sum_of_squares / copies}).front());
}

std::vector<optim::NamedTensor> Engine::counted_parameters() const {
  std::vector<optim::NamedTensor> own;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (counted[i]) own.push_back(parameters[i]);
  return own;
}

checkpoint::TrainingTensors Engine::training_tensors() const {
  if (sharding != nullptr) sharding->finish_publishing();
  checkpoint::TrainingTensors tensors{.parameters = parameters};
  if (updater->is_late()) {
    updater->wait();
    for (const auto& own : updated)
      for (const nn::Parameter* parameter : own)
        tensors.late_weights.push_back({parameter->name, parameter->value.detach()});
  }
  tensors.optimizer_states = optimizer->states();
  for (nn::Unit* unit : units)
    for (const nn::Parameter* parameter : unit->parameters())
      if (parameter->trained && parameter->slice && !parameter->slice->owner)
        tensors.pieces.emplace(parameter->name, place_of(*parameter));
  if (sharding == nullptr || sharding->pieces_are_whole()) return tensors;
  for (const auto& own : sharding->flats())
    for (const auto& flat : own)
      for (const auto& piece : flat->pieces())
        if (flat->is_trained())
          tensors.pieces[piece->parameter.name] =
              place_of(*piece->whole, checkpoint::Span{piece->begin, piece->end});
  return tensors;
}

void Engine::drop_gradients() const {
  for (const optim::NamedTensor& parameter : parameters) parameter.tensor.mutable_grad().reset();
  for (nn::Unit* unit : units)
    for (nn::Parameter* parameter : unit->parameters()) parameter->value.mutable_grad().reset();
  if (sharding != nullptr) sharding->drop_gradients();
}

std::unique_ptr<Engine> make_engine(models::Model& model, const recipe::Recipe& recipe,
                                    at::Device device, int64_t max_seqlen,
                                    std::shared_ptr<dist::Mesh> mesh,
                                    const optim::MakeOptimizer& optimizer) {
  // Before anything is allocated: memory goes back to the stream that it was allocated on.
  if (device.is_cuda() && needs_own_stream(recipe)) ops::cuda::use_own_stream();
  auto made = std::make_unique<Engine>();
  Engine& engine = *made;
  engine.precision = nn::parse_precision(recipe.precision);
  engine.device = device;
  engine.routing = model.routing();
  engine.objective = training_objective(model, recipe, *mesh);
  engine.validated = validation_objective(recipe);
  engine.mesh = std::move(mesh);
  check_context(model, *engine.mesh);
  cut_tensors(model, recipe, *engine.mesh);
  choose_trained(model, recipe);
  quantize_weights(model, recipe, chosen_units(model, recipe));
  hold_frozen(model, recipe);
  engine.stage = make_stage(model, recipe, *engine.mesh);
  engine.units = engine.stage.units;
  const std::vector<const Behaviour*> techniques = behaviours_on(recipe);
  for (const Behaviour* technique : techniques)
    if (technique->check != nullptr) technique->check(recipe, model, engine);
  engine.updated.resize(engine.units.size());
  engine.updates_on_host = recipe.updates_on_host();
  auto sharding = share_parameters(recipe, engine);
  engine.publishes_weights =
      (engine.updates_on_host && !recipe.streams_weights()) || sharding != nullptr;
  allocate_parameters(recipe, engine);
  const std::set<std::string> repeated = counted_elsewhere(engine);
  for (const auto& own : engine.updated)
    for (const nn::Parameter* parameter : own) {
      engine.parameters.push_back({parameter->name, parameter->kept()});
      engine.counted.push_back(!repeated.contains(parameter->name));
    }
  model.prepare(device, max_seqlen);
  const auto file = open_disk_file(recipe, engine, optimizer);
  std::vector<optim::NamedTensor> optimized = engine.parameters;
  for (const Behaviour* technique : techniques)
    if (technique->optimized != nullptr) optimized = technique->optimized(engine);
  engine.optimizer = make_optimizer(recipe, engine, optimized, file.get(), optimizer);
  engine.optimizer->set_groups(groups_of(engine, recipe));
  engine.copies = std::make_unique<ops::CopyStream>(device);
  exec::Policies policies;
  for (const Behaviour* technique : techniques) {
    const std::shared_ptr<exec::Updater> before = std::exchange(engine.updater, nullptr);
    auto policy = technique->policy != nullptr ? technique->policy(recipe, engine) : nullptr;
    if (policy != nullptr) policies.push_back(std::move(policy));
    if (technique->updater != nullptr) engine.updater = technique->updater(engine, optimized);
    if (before != nullptr && engine.updater != nullptr)
      throw UserError("{}: another technique updates the weights already; leave out one of the two",
                      technique->key);
    if (before != nullptr) engine.updater = before;
  }
  if (sharding != nullptr) policies.push_back(std::move(sharding));
  if (engine.updater == nullptr) engine.updater = std::make_shared<UpdateAfterBackward>(engine);
  SNUG_CHECK(engine.updater->updates_in_sweep() == updates_in_sweep(recipe) &&
                 engine.updater->is_late() == updates_late(recipe),
             "the updater is not as its technique says");
  engine.executor =
      std::make_unique<exec::Executor>(engine.units, std::move(policies), engine.ledger(),
                                       engine.stage.ranges, make_links(model, recipe, engine));
  for (const Behaviour* technique : techniques)
    if (technique->complete_on_gpu != nullptr && ops::kernel_device(device) == at::kCUDA)
      technique->complete_on_gpu(engine);
  return made;
}

}  // namespace snug::engine
