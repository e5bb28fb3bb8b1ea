// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "core/dist/agreement.h"
#include "core/memory/disk_file.h"
#include "files/checkpoint/folders.h"
#include "files/checkpoint/quantized_state.h"
#include "files/checkpoint/stored_tensors.h"
#include "files/checkpoint/training_checkpoint.h"
#include "files/checksums.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string master_of(const std::string& weight) {
  return weight + std::string(optim::kMasterSuffix);
}

// Whether `longer` is the shape with one dimension split in two, which is how a tensor with
// sections (fused q, k, v) is stored under tensor parallelism.
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

// States need the same number of elements as the whole, but not its shape.
bool is_like_state(const StoredTensor* found, const StoredPiece& wanted) {
  return found != nullptr && found->dtype == wanted.dtype &&
         files::count_elements(found->whole_shape) == wanted.piece.whole_elements();
}

[[noreturn]] void refuse(const fs::path& file, const std::string& name) {
  throw UserError(
      "{}: {} does not match what this recipe trains (missing, or another shape or type); resume "
      "with the recipe of the first run, or start afresh with --resume false",
      file.string(), name);
}

// Fills this rank's tensors from a checkpoint. A float32 master weight is stored with the model if
// updates ran in host memory, and with the optimizer states otherwise. Either is read into the
// place this run needs, so a run may resume with updates elsewhere.
class Loader {
 public:
  Loader(const fs::path& folder, const TrainingTensors& tensors)
      : tensors_(tensors), files_(folder) {
    for (const optim::NamedTensor& state : tensors.optimizer_states)
      states_[state.name] = state.tensor;
  }

  void read_parameters() {
    for (const optim::NamedTensor& parameter : tensors_.parameters)
      read_parameter(held_parameter(tensors_, parameter),
                     states_.contains(master_of(parameter.name)));
  }

  // A quantized state's codes come before their scales.
  void read_states() {
    for (const optim::NamedTensor& state : tensors_.optimizer_states) {
      const HeldTensor held = held_state(tensors_, state);
      if (!read_state(held) && !form_blocks(state))
        refuse(files_.label(Contents::Optimizer), held.stored.name);
    }
  }
  // Throws UserError if there are states of this rank's parameters that nothing has read.
  void check_none_is_dropped() const {
    std::unordered_map<std::string_view, bool> is_float;  // of each parameter
    for (const optim::NamedTensor& parameter : tensors_.parameters)
      is_float[parameter.name] = parameter.tensor.scalar_type() == at::kFloat;
    for (const StoredTensor* stored : files_.beginning_with(Contents::Optimizer, "")) {
      const std::string_view name = stored->name;
      const auto owner = is_float.find(name.substr(0, name.rfind('.')));
      if (owner == is_float.end() || states_.contains(stored->name)) continue;
      if (name.find(optim::kBlockStateSuffix) != name.npos) continue;       // goes with its codes
      if (name.ends_with(optim::kMasterSuffix) && owner->second) continue;  // the parameter is it
      throw UserError(
          "{}: it has {}, which this recipe would drop; resume with the optimizer's options of the "
          "first run, or start afresh with --resume false",
          files_.label(Contents::Optimizer).string(), name);
    }
  }

  // Whether blocks of 8-bit states were formed anew.
  bool has_formed_blocks() const { return has_formed_blocks_; }

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
             found->dtype == files::DType::F32)
      read(*found, held);  // rounded as the update rounds it
    else
      refuse(files_.label(Contents::Model), name);
  }

  bool read_state(const HeldTensor& held) {
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
      return false;
    return true;
  }

  // Returns true if these are scales of an 8-bit state whose blocks differ in the checkpoint; then
  // fills scales and codes.
  bool form_blocks(const optim::NamedTensor& scales) {
    if (!scales.name.ends_with(optim::kBlockStateSuffix)) return false;
    const std::string state =
        scales.name.substr(0, scales.name.size() - optim::kBlockStateSuffix.size());
    const auto codes = states_.find(state);
    if (codes == states_.end()) return false;
    const PieceOf piece = held_state(tensors_, {state, codes->second}).stored.piece;
    std::optional<QuantizedState> found = QuantizedState::find(files_, state, piece);
    if (!found) return false;
    fill(codes->second, [&](void* own_codes) {
      fill(scales.tensor, [&](void* own_scales) {
        found->read(piece, static_cast<uint8_t*>(own_codes), static_cast<float*>(own_scales));
      });
    });
    return has_formed_blocks_ = true;
  }

  void read_late_weights() {
    if (!files_.has(Contents::LateWeights)) return;
    for (const optim::NamedTensor& late : tensors_.late_weights) {
      const HeldTensor held = held_parameter(tensors_, late, Contents::LateWeights);
      const StoredTensor* found = files_.find(Contents::LateWeights, late.name);
      if (!is_like(found, held.stored)) refuse(files_.label(Contents::LateWeights), late.name);
      read(*found, held);
    }
  }

 private:
  void read(const StoredTensor& found, const HeldTensor& held) {
    fill(held.tensor, [&](void* host) {
      files_.read(found, held.stored.piece, held.stored.dtype, host);
      files_.release(found);
    });
  }

  // `read` writes the elements to host memory.
  static void fill(const at::Tensor& tensor, const std::function<void(void* host)>& read) {
    const at::Tensor host =
        tensor.is_cpu() ? tensor
                        : at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()));
    read(host.mutable_data_ptr());
    if (!tensor.is_cpu()) tensor.detach().copy_(host);
    memory::write_behind(tensor);
  }

  const TrainingTensors& tensors_;
  std::unordered_map<std::string, at::Tensor> states_;
  StoredTensors files_;
  bool has_formed_blocks_ = false;
};

// What is wrong with a checkpoint, all of its bytes compared; empty: nothing.
std::string whole_fault_of(const fs::path& folder) try {
  const std::string fault = files::fault_of_files(folder, files::Weights::ByBytes);
  return fault.empty() ? fault_of(folder) : fault;
} catch (const UserError& error) {
  return error.what();
}

// Damage shows as bytes are read. Only then are all of them compared, to name a checkpoint without.
std::string with_other_checkpoint(const fs::path& wanted, const UserError& error) {
  const fs::path folder = wanted.has_filename() ? wanted : wanted.parent_path();
  if (whole_fault_of(folder).empty()) return error.what();
  const std::vector<fs::path> all = all_checkpoints(folder.parent_path());
  auto other = std::ranges::find(all, folder.filename(), &fs::path::filename);
  if (other != all.end()) ++other;  // newest first
  other = std::find_if(other, all.end(),
                       [](const fs::path& one) { return whole_fault_of(one).empty(); });
  const std::string remedy =
      other == all.end() ? "no earlier checkpoint beside it is whole"
                         : fmt::format("--resume {} goes on from the one before", other->string());
  return fmt::format("{}; {}", error.what(), remedy);
}

}  // namespace

TrainingState load_state(const fs::path& folder) {
  const fs::path path = folder / kStateName;
  if (const std::string fault = fault_of(folder); !fault.empty())
    throw UserError("{} is incomplete: {}; copy it again, or resume from an earlier one",
                    folder.string(), fault);
  const auto json = nlohmann::json::parse(read_file(path, 1 << 20), nullptr, false);
  const auto refuse = [&](std::string_view reason) {
    throw UserError("{} is damaged ({}); remove its folder and resume from an earlier one",
                    path.string(), reason);
  };
  // The JSON library would convert a fraction or what is out of range without a word.
  const auto count = [&](const char* key) -> int64_t {
    const nlohmann::json& value = json.at(key);
    if (!value.is_number_integer() || value.get<int64_t>() < 0)
      refuse(fmt::format("{} is {}", key, value.dump()));
    return value;
  };
  try {
    if (!json.at("data_fingerprint").is_number_integer()) refuse("data_fingerprint is no integer");
    if (!(json.at("loss_scale") > 0)) refuse("loss_scale is not above 0");
    return {
        .step = count("step"),
        .epoch = count("epoch"),
        .next_index = count("next_index"),
        .micro_batches = count("micro_batches"),
        .tokens = count("tokens"),
        .micro_batch_size = count("micro_batch_size"),
        .samples_per_epoch = json.contains("samples_per_epoch") ? count("samples_per_epoch") : 0,
        .loss_scale = json["loss_scale"],
        .good_steps = count("good_steps"),
        .data_fingerprint = json["data_fingerprint"]};
  } catch (const nlohmann::json::exception& error) {
    refuse(error.what());
  }
  return {};
}

void load_tensors(const fs::path& folder, const TrainingTensors& tensors, dist::Group* ranks) {
  const std::vector<std::string> formed_blocks = dist::agree(ranks, [&]() -> std::string {
    try {
      Loader loader(folder, tensors);
      loader.read_parameters();
      loader.read_states();
      loader.check_none_is_dropped();
      return loader.has_formed_blocks() ? "yes" : "";
    } catch (const UserError& error) {
      throw UserError("{}", with_other_checkpoint(folder, error));
    }
  });
  const bool is_first = ranks == nullptr || ranks->rank() == 0;
  if (is_first && std::ranges::count(formed_blocks, "yes") > 0)
    warn(
        "{}: tensor parallelism splits blocks of the 8-bit optimizer states differently from the "
        "run that wrote them; they are rounded once more, so training continues slightly "
        "differently",
        folder.string());
}

void load_late_weights(const fs::path& folder, const TrainingTensors& tensors, dist::Group* ranks) {
  dist::agree(ranks, [&]() -> std::string {
    if (!tensors.late_weights.empty()) Loader(folder, tensors).read_late_weights();
    return "";
  });
}

}  // namespace snug::checkpoint
