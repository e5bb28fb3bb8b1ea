// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/training_checkpoint.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/tensor_bytes.h"
#include "formats/safetensors.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "step-";

void write_tensors(const fs::path& path, const std::vector<optim::NamedTensor>& tensors) {
  std::vector<formats::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors)
    infos.push_back(formats::make_tensor_info(name, dtype_of(tensor), tensor.sizes().vec()));
  formats::SafetensorsWriter writer(path, infos);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor host = tensor.cpu();  // the tensor itself where it is there already
    writer.write(name, bytes_of(host));
  }
  writer.finish();
}

void read_tensors(const fs::path& path, const std::vector<optim::NamedTensor>& tensors) {
  const auto source = formats::open_safetensors(path);
  for (const auto& [name, tensor] : tensors) {
    const formats::TensorInfo* found = source->find(name);
    if (found == nullptr || found->shape != tensor.sizes().vec() ||
        found->dtype != dtype_of(tensor))
      throw UserError(
          "{}: {} is not what this recipe trains (missing, or of another shape or type); resume "
          "with the recipe of the first run, or start afresh with --resume false",
          path.string(), name);
    const at::Tensor host =
        tensor.is_cpu() ? tensor
                        : at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()));
    source->read(*found, found->dtype, host.mutable_data_ptr());
    source->release(*found);
    if (!tensor.is_cpu()) tensor.detach().copy_(host);
  }
}

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

int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return -1;
  const std::string digits = name.substr(std::string_view(kPrefix).size());
  if (digits.empty() || digits.size() > 12 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return -1;
  return std::stoll(digits);
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

fs::path save(const fs::path& out_dir, const TrainingState& state, const TrainingTensors& tensors) {
  try {
    fs::create_directories(out_dir);
    remove_temporaries(out_dir);
    const std::string name = fmt::format("{}{:06}", kPrefix, state.step);
    const fs::path target = out_dir / name;
    Temporary temporary{out_dir / (".tmp-" + name)};
    fs::create_directory(temporary.path);
    write_tensors(temporary.path / "model.safetensors", tensors.parameters);
    write_tensors(temporary.path / "optimizer.safetensors", tensors.optimizer_states);
    write_file_atomically(temporary.path / "state.json", state_json(state));
    fs::remove_all(target);
    fs::rename(temporary.path, target);
    temporary.path.clear();
    sync_path(out_dir);
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

void set_aside(const fs::path& out_dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out_dir, error))
    if (step_of(entry.path()) >= 0) found.push_back(entry.path());
  if (found.empty()) return;
  const fs::path earlier = out_dir / "earlier";
  try {
    fs::remove_all(earlier);
    fs::create_directories(earlier);
    for (const fs::path& folder : found) fs::rename(folder, earlier / folder.filename());
  } catch (const fs::filesystem_error& failure) {
    throw UserError("cannot set the checkpoints of an earlier run aside: {}", failure.what());
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
  read_tensors(folder / "model.safetensors", tensors.parameters);
  read_tensors(folder / "optimizer.safetensors", tensors.optimizer_states);
}

}  // namespace snug::checkpoint
