// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/held_tensors.h"
#include "checkpoint/stored_tensors.h"
#include "checkpoint/training_checkpoint.h"
#include "dist/agreement.h"
#include "memory/disk_file.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string master_of(const std::string& weight) {
  return weight + std::string(optim::kMasterSuffix);
}

// Whether `longer` is the shape with one of its dimensions as two: so lie layers side by side in a
// tensor that ranks share by sections of it.
bool is_split(const std::vector<int64_t>& shape, const std::vector<int64_t>& longer) {
  for (size_t d = 0; d < shape.size() && longer.size() == shape.size() + 1; ++d) {
    std::vector<int64_t> joined = longer;
    joined[d] *= joined[d + 1];
    joined.erase(joined.begin() + static_cast<std::ptrdiff_t>(d) + 1);
    if (joined == shape) return true;
  }
  return false;
}

bool has_shape_of(const StoredTensor* found, const PieceOf& piece) {
  if (found == nullptr) return false;
  const std::vector<int64_t>&stored = found->whole_shape, &wanted = piece.whole_shape;
  return stored == wanted || is_split(stored, wanted) || is_split(wanted, stored);
}
bool is_like(const StoredTensor* found, const StoredPiece& wanted) {
  return has_shape_of(found, wanted.piece) && found->dtype == wanted.dtype;
}

// States need not have the shape of the whole one, but its elements.
bool is_like_state(const StoredTensor* found, const StoredPiece& wanted) {
  return found != nullptr && found->dtype == wanted.dtype &&
         formats::count_elements(found->whole_shape) == wanted.piece.whole_elements();
}

[[noreturn]] void refuse(const fs::path& file, const std::string& name) {
  throw UserError(
      "{}: {} is not what this recipe trains (missing, or of another shape or type); resume with "
      "the recipe of the first run, or start afresh with --resume false",
      file.string(), name);
}

// What a checkpoint holds, filled into this rank's tensors. Where a weight has a float32 master,
// that lies with the model if it was updated in host memory and with the optimizer's states if not:
// each is read where this run wants it, so that a run may be resumed with its updates in another
// place.
class Loader {
 public:
  explicit Loader(const fs::path& folder) : files_(folder) {}

  void read_parameter(const HeldTensor& held, bool has_master) {
    const std::string& name = held.stored.name;
    const StoredTensor* found = files_.find(Contents::Model, name);
    const StoredTensor* master = files_.find(Contents::Optimizer, master_of(name));
    const bool is_float = held.tensor.scalar_type() == at::kFloat;
    if (is_like(found, held.stored))
      read(*found, held);
    else if (is_float && is_like(master, held.stored))
      read(*master, held);
    else if (has_master && has_shape_of(found, held.stored.piece) &&
             found->dtype == formats::DType::F32)
      read(*found, held);  // rounded as the update rounds it
    else
      refuse(files_.label(Contents::Model), name);
  }

  void read_state(const HeldTensor& held) {
    const std::string& name = held.stored.name;
    const StoredTensor* found = files_.find(Contents::Optimizer, name);
    const StoredTensor* weight =
        name.ends_with(optim::kMasterSuffix)
            ? files_.find(Contents::Model,
                          name.substr(0, name.size() - optim::kMasterSuffix.size()))
            : nullptr;
    if (is_like_state(found, held.stored))
      read(*found, held);
    else if (is_like(weight, held.stored))
      read(*weight, held);
    else
      refuse(files_.label(Contents::Optimizer), name);
  }

  void read_late_weights(const TrainingTensors& tensors) {
    if (!files_.has(Contents::LateWeights)) return;
    for (const optim::NamedTensor& late : tensors.late_weights) {
      const HeldTensor held = held_parameter(tensors, late, Contents::LateWeights);
      const StoredTensor* found = files_.find(Contents::LateWeights, late.name);
      if (!is_like(found, held.stored)) refuse(files_.label(Contents::LateWeights), late.name);
      read(*found, held);
    }
  }

 private:
  void read(const StoredTensor& found, const HeldTensor& held) {
    const at::Tensor& tensor = held.tensor;
    const at::Tensor host =
        tensor.is_cpu() ? tensor
                        : at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()));
    files_.read(found, held.stored.piece, held.stored.dtype, host.mutable_data_ptr());
    files_.release(found);
    if (!tensor.is_cpu()) tensor.detach().copy_(host);
    memory::write_behind(tensor);
  }

  StoredTensors files_;
};

}  // namespace

TrainingState load_state(const fs::path& folder) {
  const fs::path path = folder / kStateName;
  if (const std::string fault = fault_of(folder); !fault.empty())
    throw UserError("{} is not whole: {}; copy it again, or resume from an earlier one",
                    folder.string(), fault);
  const auto json = nlohmann::json::parse(read_file(path, 1 << 20), nullptr, false);
  try {
    return {.step = json.at("step"),
            .epoch = json.at("epoch"),
            .next_index = json.at("next_index"),
            .micro_batches = json.at("micro_batches"),
            .tokens = json.at("tokens"),
            .micro_batch_size = json.at("micro_batch_size"),
            .loss_scale = json.at("loss_scale"),
            .good_steps = json.at("good_steps"),
            .data_fingerprint = json.at("data_fingerprint")};
  } catch (const nlohmann::json::exception& error) {
    throw UserError("{} is damaged ({}); remove its folder and resume from an earlier one",
                    path.string(), error.what());
  }
}

void load_tensors(const fs::path& folder, const TrainingTensors& tensors, dist::Group* ranks) {
  dist::agree(ranks, [&]() -> std::string {
    Loader loader(folder);
    std::unordered_set<std::string_view> state_names;
    for (const optim::NamedTensor& state : tensors.optimizer_states) state_names.insert(state.name);
    for (const optim::NamedTensor& parameter : tensors.parameters)
      loader.read_parameter(held_parameter(tensors, parameter),
                            state_names.contains(master_of(parameter.name)));
    for (const optim::NamedTensor& state : tensors.optimizer_states)
      loader.read_state(held_state(tensors, state));
    return "";
  });
}

void load_late_weights(const fs::path& folder, const TrainingTensors& tensors, dist::Group* ranks) {
  dist::agree(ranks, [&]() -> std::string {
    if (!tensors.late_weights.empty()) Loader(folder).read_late_weights(tensors);
    return "";
  });
}

}  // namespace snug::checkpoint
