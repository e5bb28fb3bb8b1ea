// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/training_checkpoint.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/tensor_bytes.h"
#include "formats/safetensors.h"
#include "memory/disk_file.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "step-";
constexpr const char* kLateWeights = "late_weights.safetensors";

std::string master_of(const std::string& weight) {
  return weight + std::string(optim::kMasterSuffix);
}

void write_tensors(const fs::path& path, const std::vector<optim::NamedTensor>& tensors) {
  std::vector<formats::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors)
    infos.push_back(formats::make_tensor_info(name, dtype_of(tensor), tensor.sizes().vec()));
  formats::SafetensorsWriter writer(path, infos);
  for (const auto& [name, tensor] : tensors) {
    memory::read_ahead(tensor);
    const at::Tensor host = tensor.cpu();  // the tensor itself where it is there already
    writer.write(name, bytes_of(host));
    memory::write_behind(tensor);
  }
  writer.finish();
}

bool has_shape_of(const formats::TensorInfo* found, const at::Tensor& tensor) {
  return found != nullptr && found->shape == tensor.sizes().vec();
}
bool is_like(const formats::TensorInfo* found, const at::Tensor& tensor) {
  return has_shape_of(found, tensor) && found->dtype == dtype_of(tensor);
}

void read(const formats::TensorSource& source, const formats::TensorInfo& found,
          const at::Tensor& tensor) {
  const at::Tensor host =
      tensor.is_cpu() ? tensor
                      : at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()));
  source.read(found, dtype_of(tensor), host.mutable_data_ptr());
  source.release(found);
  if (!tensor.is_cpu()) tensor.detach().copy_(host);
  memory::write_behind(tensor);
}

[[noreturn]] void refuse(const fs::path& file, const std::string& name) {
  throw UserError(
      "{}: {} is not what this recipe trains (missing, or of another shape or type); resume with "
      "the recipe of the first run, or start afresh with --resume false",
      file.string(), name);
}

// The two files of a checkpoint. Where a weight has a float32 master, that lies with the model if
// it was updated in host memory and with the optimizer's states if not: each is read where this
// run wants it, so that a run may be resumed with its updates in another place.
class TensorFiles {
 public:
  explicit TensorFiles(const fs::path& folder)
      : folder_(folder),
        model_(formats::open_safetensors(folder / "model.safetensors")),
        states_(formats::open_safetensors(folder / "optimizer.safetensors")) {}

  void read_parameter(const optim::NamedTensor& parameter, bool has_master) const {
    const auto& [name, tensor] = parameter;
    const formats::TensorInfo* found = model_->find(name);
    const formats::TensorInfo* master = states_->find(master_of(name));
    if (is_like(found, tensor))
      read(*model_, *found, tensor);
    else if (tensor.scalar_type() == at::kFloat && is_like(master, tensor))
      read(*states_, *master, tensor);
    else if (has_master && has_shape_of(found, tensor) && found->dtype == formats::DType::F32)
      read(*model_, *found, tensor);  // rounded as the update rounds it
    else
      refuse(folder_ / "model.safetensors", name);
  }

  void read_state(const optim::NamedTensor& state) const {
    const auto& [name, tensor] = state;
    const formats::TensorInfo* found = states_->find(name);
    const formats::TensorInfo* weight =
        name.ends_with(optim::kMasterSuffix)
            ? model_->find(name.substr(0, name.size() - optim::kMasterSuffix.size()))
            : nullptr;
    if (is_like(found, tensor))
      read(*states_, *found, tensor);
    else if (is_like(weight, tensor))
      read(*model_, *weight, tensor);
    else
      refuse(folder_ / "optimizer.safetensors", name);
  }

 private:
  fs::path folder_;
  std::unique_ptr<formats::TensorSource> model_;
  std::unique_ptr<formats::TensorSource> states_;
};

// Removes leftovers of a run that was killed while saving.
void remove_temporaries(const fs::path& out_dir) {
  for (const auto& entry : fs::directory_iterator(out_dir))
    if (entry.path().filename().string().starts_with(std::string(".tmp-") + kPrefix))
      fs::remove_all(entry.path());
}

// Takes the temporary folder away unless the save came to its end.
struct Temporary {
  fs::path path;
  ~Temporary() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

// What a checkpoint is called while it is being deleted.
fs::path doomed_name(const fs::path& folder) {
  return folder.parent_path() / (".tmp-" + folder.filename().string() + ".old");
}

// Deletes a checkpoint. Under its own name it is there whole or not at all; what a kill leaves of
// it goes with the next remove_temporaries().
void discard(const fs::path& folder) {
  const fs::path doomed = doomed_name(folder);
  fs::remove_all(doomed);
  fs::rename(folder, doomed);
  fs::remove_all(doomed);
}

int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return -1;
  const std::string digits = name.substr(std::string_view(kPrefix).size());
  if (digits.empty() || digits.size() > 12 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return -1;
  return std::stoll(digits);
}

// Checkpoints of steps first … last, newest first.
std::vector<fs::path> checkpoints_between(const fs::path& out_dir, int64_t first, int64_t last) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out_dir, error)) {
    const int64_t step = step_of(entry.path());
    if (step >= std::max<int64_t>(0, first) && step <= last) found.push_back(entry.path());
  }
  std::ranges::sort(found, std::greater(), step_of);
  return found;
}

std::string state_json(const TrainingState& s) {
  return nlohmann::json{{"step", s.step},
                        {"epoch", s.epoch},
                        {"next_index", s.next_index},
                        {"micro_batches", s.micro_batches},
                        {"tokens", s.tokens},
                        {"micro_batch_size", s.micro_batch_size},
                        {"loss_scale", s.loss_scale},
                        {"good_steps", s.good_steps},
                        {"data_fingerprint", s.data_fingerprint}}
             .dump(2) +
         "\n";
}

}  // namespace

fs::path save(const fs::path& out_dir, const TrainingState& state, const TrainingTensors& tensors,
              const std::string& run_record) {
  try {
    fs::create_directories(out_dir);
    remove_temporaries(out_dir);
    const std::string name = fmt::format("{}{:06}", kPrefix, state.step);
    const fs::path target = out_dir / name;
    Temporary temporary{out_dir / (".tmp-" + name)};
    fs::create_directory(temporary.path);
    write_tensors(temporary.path / "model.safetensors", tensors.parameters);
    write_tensors(temporary.path / "optimizer.safetensors", tensors.optimizer_states);
    if (!tensors.late_weights.empty())
      write_tensors(temporary.path / kLateWeights, tensors.late_weights);
    write_file_atomically(temporary.path / kRecordName, run_record);
    write_file_atomically(temporary.path / "state.json", state_json(state));
    const fs::path doomed = doomed_name(target);
    const bool replaces = fs::exists(target);
    if (replaces) fs::rename(target, doomed);
    fs::rename(temporary.path, target);
    temporary.path.clear();
    sync_path(out_dir);
    if (replaces) fs::remove_all(doomed);
    return target;
  } catch (const fs::filesystem_error& error) {
    throw UserError("cannot write a checkpoint: {}", error.what());
  }
}

std::optional<fs::path> find_latest(const fs::path& out_dir) {
  std::error_code error;
  std::optional<fs::path> best;
  for (const auto& entry : fs::directory_iterator(out_dir, error)) {
    const bool whole = step_of(entry.path()) >= 0 && fs::exists(entry.path() / "state.json");
    if (whole && (!best || step_of(entry.path()) > step_of(*best))) best = entry.path();
  }
  return best;
}

int64_t size_bytes(const fs::path& folder) {
  uintmax_t total = 0;
  for (const auto& entry : fs::directory_iterator(folder)) total += entry.file_size();
  return static_cast<int64_t>(total);
}

void keep_newest(const fs::path& out_dir, int64_t step, int64_t count) {
  std::vector<fs::path> found = checkpoints_between(out_dir, 0, step);
  try {
    for (size_t i = static_cast<size_t>(count); i < found.size(); ++i) discard(found[i]);
  } catch (const fs::filesystem_error& failure) {
    warn("an older checkpoint cannot be deleted: {}", failure.what());
  }
}

std::optional<fs::path> set_aside(const fs::path& out_dir, int64_t step) {
  const auto found = checkpoints_between(out_dir, step + 1, std::numeric_limits<int64_t>::max());
  if (found.empty()) return std::nullopt;
  fs::path earlier = out_dir / "earlier";
  for (int n = 2; fs::exists(earlier); ++n) earlier = out_dir / fmt::format("earlier-{}", n);
  try {
    fs::create_directories(earlier);
    for (const fs::path& folder : found) fs::rename(folder, earlier / folder.filename());
    return earlier;
  } catch (const fs::filesystem_error& failure) {
    throw UserError("cannot set checkpoints that are not this run's aside: {}", failure.what());
  }
}

TrainingState load_state(const fs::path& folder) {
  const fs::path path = folder / "state.json";
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

void load_tensors(const fs::path& folder, const TrainingTensors& tensors) {
  const TensorFiles files(folder);
  const auto& states = tensors.optimizer_states;
  std::unordered_set<std::string_view> state_names;
  for (const optim::NamedTensor& state : states) state_names.insert(state.name);
  for (const optim::NamedTensor& parameter : tensors.parameters)
    files.read_parameter(parameter, state_names.contains(master_of(parameter.name)));
  for (const optim::NamedTensor& state : states) files.read_state(state);
}

void load_late_weights(const fs::path& folder, const TrainingTensors& tensors) {
  const fs::path path = folder / kLateWeights;
  if (tensors.late_weights.empty() || !fs::exists(path)) return;
  const auto source = formats::open_safetensors(path);
  for (const auto& [name, tensor] : tensors.late_weights) {
    const formats::TensorInfo* found = source->find(name);
    if (!is_like(found, tensor)) refuse(path, name);
    read(*source, *found, tensor);
  }
}

}  // namespace snug::checkpoint
