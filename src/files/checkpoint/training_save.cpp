// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "core/dist/agreement.h"
#include "core/memory/disk_file.h"
#include "files/checkpoint/folders.h"
#include "files/checkpoint/stored_tensors.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/checkpoint/training_checkpoint.h"
#include "files/checksums.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<files::TensorInfo> infos_of_held(const std::vector<const HeldTensor*>& tensors) {
  std::vector<files::TensorInfo> infos;
  for (const HeldTensor* held : tensors)
    infos.push_back(
        files::make_tensor_info(held->stored.name, held->stored.dtype, held->stored.piece.shape()));
  return infos;
}

void write_tensors(const fs::path& path, const std::vector<const HeldTensor*>& tensors,
                   const std::string& save_id) {
  std::map<std::string, std::string> metadata;
  if (!save_id.empty()) metadata[kSaveIdKey] = save_id;
  files::SafetensorsWriter writer(path, infos_of_held(tensors), metadata);
  for (const HeldTensor* held : tensors) {
    memory::read_ahead(held->tensor);
    const at::Tensor host = held->tensor.cpu();  // no copy if it is on the host
    writer.write(held->stored.name, bytes_of(host));
    memory::write_behind(held->tensor);
  }
  writer.finish();
}

// Removes the temporary folder unless the save succeeded.
struct Temporary {
  fs::path path;
  ~Temporary() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

std::string state_json(const TrainingState& s) {
  return nlohmann::json{{"step", s.step},
                        {"epoch", s.epoch},
                        {"next_index", s.next_index},
                        {"micro_batches", s.micro_batches},
                        {"tokens", s.tokens},
                        {"micro_batch_size", s.micro_batch_size},
                        {"samples_per_epoch", s.samples_per_epoch},
                        {"loss_scale", s.loss_scale},
                        {"good_steps", s.good_steps},
                        {"data_fingerprint", s.data_fingerprint}}
             .dump(2) +
         "\n";
}

// One save, run by all ranks.
class Save {
 public:
  Save(const fs::path& out_dir, int64_t step, dist::Group* ranks)
      : ranks_(ranks),
        rank_(ranks == nullptr ? 0 : ranks->rank()),
        num_ranks_(ranks == nullptr ? 1 : ranks->size()),
        target_(out_dir / folder_name(step)),
        folder_(temporary_name(target_)) {}

  fs::path run(const TrainingState& state, const TrainingTensors& tensors,
               const std::string& run_record, const std::string& mesh) {
    make_folder();
    share_out(tensors);
    write_files();
    by_rank_0([&] {
      if (num_ranks_ > 1) {
        index_.mesh = mesh;
        write_file_atomically(folder_ / kIndexName, index_text(index_));
        fs::remove(mark_);
      }
      write_file_atomically(folder_ / kRecordName, run_record);
      write_file_atomically(folder_ / kStateName, state_json(state));
      files::write_checksums(folder_, checksums_);
      put_in_place(folder_, target_);
      temporary_.path.clear();
    });
    return target_;
  }

  // Bytes of all ranks' files without the index.
  int64_t measure(const TrainingTensors& tensors) {
    share_out(tensors);
    int64_t total = 0;
    for (const std::string& own : agree([&] { return std::to_string(own_bytes()); }))
      total += std::stoll(own);
    // state.json and run.json beside the tensors.
    return total + files::checksums_bytes(total, std::ssize(index_.files) + 2);
  }

 private:
  int64_t own_bytes() const {
    int64_t total = 0;
    std::map<std::string, std::string> metadata;
    if (num_ranks_ > 1) metadata[kSaveIdKey] = random_id();
    for (const Contents contents : kAllContents)
      if (const auto own = own_tensors(contents); !own.empty())
        total += files::safetensors_bytes(infos_of_held(own), metadata);
    return total;
  }

  // The tensors of these contents that this rank writes.
  std::vector<const HeldTensor*> own_tensors(Contents contents) const {
    std::vector<const HeldTensor*> own;
    for (const size_t i : written_[static_cast<size_t>(rank_)])
      if (held_[i].stored.contents == contents) own.push_back(&held_[i]);
    return own;
  }

  // Runs `work` on every rank and tells all of them the results; throws on all if one failed.
  std::vector<std::string> agree(const std::function<std::string()>& work) const {
    return dist::agree(ranks_, [&] {
      try {
        return work();
      } catch (const fs::filesystem_error& error) {
        throw UserError("cannot write a checkpoint: {}", error.what());
      }
    });
  }
  void by_rank_0(const std::function<void()>& work) const {
    agree([&]() -> std::string {
      if (rank_ == 0) work();
      return "";
    });
  }

  void make_folder() {
    index_.num_ranks = num_ranks_;
    index_.save_id = agree([&]() -> std::string {
      if (rank_ > 0) return "";
      fs::create_directories(target_.parent_path());
      remove_temporaries(target_.parent_path());
      temporary_.path = folder_;
      fs::create_directory(folder_);
      if (num_ranks_ == 1) return "";
      const std::string id = random_id();
      mark_ = leave_mark(folder_, id);
      return id;
    })[0];
  }

  // Decides which rank writes which piece.
  void share_out(const TrainingTensors& tensors) {
    const auto texts = agree([&] {
      if (rank_ > 0 && !index_.save_id.empty()) wait_for_mark(folder_, index_.save_id);
      held_ = all_held(tensors);
      std::vector<StoredPiece> own;
      for (const HeldTensor& held : held_) own.push_back(held.stored);
      return pieces_text(own);
    });
    std::vector<std::vector<StoredPiece>> all;
    for (const std::string& text : texts) all.push_back(parse_pieces(text));
    check_complete(all);
    written_ = deal(all);
    for (int rank = 0; rank < num_ranks_; ++rank)
      for (const Contents contents : kAllContents) {
        PieceFile file{.name = file_name(contents, rank, num_ranks_)};
        for (const size_t i : written_[rank])
          if (all[rank][i].contents == contents) file.pieces.push_back(all[rank][i]);
        if (!file.pieces.empty()) index_.files.push_back(std::move(file));
      }
  }

  void write_files() {
    const auto by_rank = agree([&] {
      files::FolderChecksums written;
      for (const Contents contents : kAllContents) {
        const std::vector<const HeldTensor*> own = own_tensors(contents);
        const bool always = num_ranks_ == 1 && contents != Contents::LateWeights;
        if (own.empty() && !always) continue;
        const std::string name = file_name(contents, rank_, num_ranks_);
        write_tensors(folder_ / name, own, index_.save_id);
        written[name] = files::checksums_of(folder_ / name);
      }
      return files::to_text(written);
    });
    for (const std::string& text : by_rank) checksums_.merge(files::from_text(text));
    for (PieceFile& file : index_.files)
      file.bytes = static_cast<int64_t>(checksums_.at(file.name).bytes);
  }

  dist::Group* ranks_;
  int rank_;
  int num_ranks_;
  fs::path target_;
  fs::path folder_;
  Temporary temporary_;  // of rank 0
  fs::path mark_;        // of rank 0
  Index index_;
  files::FolderChecksums checksums_;  // of all ranks' files
  std::vector<HeldTensor> held_;
  std::vector<std::vector<size_t>> written_;  // by rank: indices of the pieces it writes
};

}  // namespace

fs::path save(const fs::path& out_dir, const TrainingState& state, const TrainingTensors& tensors,
              const std::string& run_record, dist::Group* ranks, const std::string& mesh) {
  return Save(out_dir, state.step, ranks).run(state, tensors, run_record, mesh);
}

int64_t bytes_to_save(const TrainingTensors& tensors, dist::Group* ranks) {
  return Save({}, 0, ranks).measure(tensors);
}

}  // namespace snug::checkpoint
