// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/stored_tensors.h"

#include <algorithm>

#include "base/error.h"
#include "core/kernels/optimizers.h"
#include "files/checkpoint/quantized_state.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/checksums.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

// The index of a folder without one: its files hold whole tensors.
Index index_of_single(const fs::path& folder,
                      std::vector<std::unique_ptr<files::TensorSource>>& sources) {
  Index index;
  for (const Contents contents : kAllContents) {
    const std::string name = file_name(contents, 0, 1);
    if (contents == Contents::LateWeights && !fs::exists(folder / name)) continue;
    sources.push_back(files::open_safetensors(folder / name));
    PieceFile& file = index.files.emplace_back(PieceFile{.name = name});
    for (const files::TensorInfo& info : sources.back()->tensors())
      file.pieces.push_back({contents, info.name, info.dtype, PieceOf::whole(info.shape)});
  }
  return index;
}

std::string fault_of_file(const fs::path& path, int64_t bytes) {
  std::error_code error;
  const auto found = fs::file_size(path, error);
  if (error) return fmt::format("{} is missing", path.filename().string());
  if (bytes > 0 && found != static_cast<uintmax_t>(bytes))
    return fmt::format("{} has {} bytes instead of {}", path.filename().string(), found, bytes);
  return "";
}

// Throws UserError if the file is not the one in the index.
void check_file(const fs::path& path, const files::TensorSource& source, const PieceFile& file,
                const std::string& save_id) {
  const auto metadata = files::read_safetensors_metadata(path);
  const auto id = metadata.find(kSaveIdKey);
  const bool all_there = std::ranges::all_of(file.pieces, [&](const StoredPiece& piece) {
    const files::TensorInfo* found = source.find(piece.name);
    return found != nullptr && found->dtype == piece.dtype &&
           found->num_elements() == piece.piece.num_elements();
  });
  if (id == metadata.end() || id->second != save_id || !all_there)
    throw UserError(
        "{} and {} come from different saves; copy all files of the checkpoint again, or resume "
        "from an earlier one",
        path.string(), kIndexName);
}

}  // namespace

StoredTensors::StoredTensors(const fs::path& folder) : folder_(folder) {
  if (std::optional<Index> index = read_index(folder)) {
    index_ = std::move(*index);
    if (const std::string fault = fault_of(folder); !fault.empty())
      throw UserError("{}: {}; copy the checkpoint again, or resume from an earlier one",
                      folder.string(), fault);
    sources_.resize(index_.files.size());
  } else {
    index_ = index_of_single(folder, sources_);
  }
  for (size_t i = 0; i < index_.files.size(); ++i)
    for (const StoredPiece& piece : index_.files[i].pieces) {
      StoredTensor& tensor =
          tensors_[static_cast<size_t>(piece.contents)]
              .try_emplace(piece.name,
                           StoredTensor{piece.name, piece.dtype, piece.piece.whole_shape, {}})
              .first->second;
      if (tensor.dtype != piece.dtype || tensor.whole_shape != piece.piece.whole_shape)
        throw UserError(
            "{}: its files do not agree on {}; copy the checkpoint again, or resume from an "
            "earlier one",
            folder.string(), piece.name);
      tensor.tiling.add(piece.piece, i);
    }
}

const StoredTensor* StoredTensors::find(Contents contents, const std::string& name) const {
  const auto found = of(contents).find(name);
  return found == of(contents).end() ? nullptr : &found->second;
}

std::vector<const StoredTensor*> StoredTensors::beginning_with(Contents contents,
                                                               const std::string& prefix) const {
  std::vector<const StoredTensor*> found;
  for (const auto& [name, tensor] : of(contents))
    if (name.starts_with(prefix)) found.push_back(&tensor);
  return found;
}

const files::TensorSource& StoredTensors::open(size_t file) {
  if (sources_[file] == nullptr) {
    const fs::path path = folder_ / index_.files[file].name;
    sources_[file] = files::open_safetensors(path);
    check_file(path, *sources_[file], index_.files[file], index_.save_id);
  }
  return *sources_[file];
}

void StoredTensors::read(const StoredTensor& tensor, const PieceOf& wanted, files::DType target,
                         void* out) {
  auto* bytes = static_cast<std::byte*>(out);
  for (int64_t done = 0; done < wanted.num_elements();) {
    const Run run = run_from(wanted, done);
    const std::optional<Tiling::Found> found = tensor.tiling.find(run.in_whole);
    if (!found)
      throw UserError(
          "{}: element {} of {} is missing from its files; copy the checkpoint again, or resume "
          "from "
          "an earlier one",
          folder_.string(), run.in_whole, tensor.name);
    const int64_t count = std::min(run.count, found->run.count);
    const files::TensorSource& source = open(found->id);
    source.read(*source.find(tensor.name), target, bytes + files::bytes_for(target, done),
                found->run.in_piece, count);
    done += count;
  }
}

void StoredTensors::release(const StoredTensor& tensor) {
  for (const auto& source : sources_)
    if (source != nullptr)
      if (const files::TensorInfo* info = source->find(tensor.name)) source->release(*info);
}

fs::path StoredTensors::label(Contents contents) const {
  return index_.num_ranks == 1 ? folder_ / file_name(contents, 0, 1) : folder_;
}

std::string fault_of(const fs::path& folder) try {
  const std::optional<Index> index = read_index(folder);
  if (!index) {
    for (const Contents contents : {Contents::Model, Contents::Optimizer})
      if (std::string fault = fault_of_file(folder / file_name(contents, 0, 1), 0); !fault.empty())
        return fault;
    return files::fault_of_files(folder);
  }
  for (const PieceFile& file : index->files)
    if (std::string fault = fault_of_file(folder / file.name, file.bytes); !fault.empty())
      return fault;
  return files::fault_of_files(folder);
} catch (const UserError&) {
  return fmt::format("{} or {} is damaged", kIndexName, files::kChecksumsName);
}

namespace {

// A state's name is its parameter's name, a dot and a suffix.
std::string parameter_of(const std::string& state) { return state.substr(0, state.rfind('.')); }

StoredPiece blocks_of_state(const std::string& name, const PieceOf& parameter) {
  constexpr int64_t kBlock = kernels::kQuantizedBlock;
  StoredPiece stored{.contents = Contents::Optimizer, .name = name};
  if (const std::optional<PieceOf> blocks = blocks_of(parameter, kBlock)) {
    stored.piece = *blocks;
    return stored;
  }
  PieceOf alone = PieceOf::whole({parameter.box_elements()});
  alone.range = parameter.range;
  const std::optional<PieceOf> blocks = blocks_of(alone, kBlock);
  SNUG_CHECK(blocks, "{}: elements {} to {} of a parameter do not consist of whole blocks", name,
             parameter.range.begin, parameter.range.end);
  stored.name += box_name(parameter);
  stored.piece = *blocks;
  return stored;
}

}  // namespace

HeldTensor held_parameter(const TrainingTensors& tensors, const optim::NamedTensor& parameter,
                          Contents contents) {
  const std::string& name = parameter.name;
  const at::Tensor& tensor = parameter.tensor;
  StoredPiece stored{.contents = contents, .name = name, .dtype = dtype_of(tensor)};
  const auto piece = tensors.pieces.find(name);
  stored.piece =
      piece == tensors.pieces.end() ? PieceOf::whole(tensor.sizes().vec()) : piece->second;
  // If only the states are sharded, weights such as late weights are whole on every rank.
  if (tensor.numel() == stored.piece.box_elements())
    stored.piece.range = {0, stored.piece.box_elements()};
  SNUG_CHECK(tensor.numel() == stored.piece.num_elements(),
             "{} has {} elements, but its piece has {}", name, tensor.numel(),
             stored.piece.num_elements());
  return {std::move(stored), tensor};
}

HeldTensor held_state(const TrainingTensors& tensors, const optim::NamedTensor& state) {
  const std::string& name = state.name;
  const at::Tensor& tensor = state.tensor;
  StoredPiece stored{.contents = Contents::Optimizer, .name = name};
  const auto piece = tensors.pieces.find(parameter_of(name));
  if (piece == tensors.pieces.end())
    stored.piece = PieceOf::whole(tensor.sizes().vec());
  else if (name.ends_with(optim::kBlockStateSuffix))
    stored = blocks_of_state(name, piece->second);
  else
    stored.piece = piece->second;
  stored.dtype = dtype_of(tensor);
  SNUG_CHECK(tensor.numel() == stored.piece.num_elements(),
             "{} has {} elements, which does not match a piece of {}", name, tensor.numel(),
             stored.piece.num_elements());
  return {std::move(stored), tensor};
}

std::vector<HeldTensor> all_held(const TrainingTensors& tensors) {
  std::vector<HeldTensor> all;
  for (const auto& parameter : tensors.parameters)
    all.push_back(held_parameter(tensors, parameter));
  for (const auto& state : tensors.optimizer_states) all.push_back(held_state(tensors, state));
  for (const auto& late : tensors.late_weights)
    all.push_back(held_parameter(tensors, late, Contents::LateWeights));
  return all;
}

}  // namespace snug::checkpoint
