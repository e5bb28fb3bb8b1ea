// index.json of a checkpoint written by several ranks: its files, and the pieces of tensors in
// each. A piece that several ranks hold is written by one of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "files/checkpoint/piece.h"
#include "files/weights/dtype.h"

namespace snug::checkpoint {

enum class Contents { Model, Optimizer, LateWeights };
inline constexpr Contents kAllContents[] = {Contents::Model, Contents::Optimizer,
                                            Contents::LateWeights};
const char* name(Contents contents);  // "model", …: the beginning of its files' names

struct StoredPiece {
  Contents contents = Contents::Model;
  std::string name;
  files::DType dtype = files::DType::F32;
  PieceOf piece;

  bool operator==(const StoredPiece&) const = default;
};

struct PieceFile {
  std::string name;
  int64_t bytes = 0;
  std::vector<StoredPiece> pieces;  // all of the same contents
};

struct Index {
  // An id of this save, also stored in its files, so that files of another save are recognized.
  std::string save_id;
  int num_ranks = 1;
  std::string mesh;  // "fsdp=4", for people who read the index
  std::vector<PieceFile> files;
};

inline constexpr const char* kIndexName = "index.json";
inline constexpr const char* kSaveIdKey = "snug_save";  // in the metadata of a file

// "model.safetensors", or "model-of-rank-0003-of-0004.safetensors" with several ranks.
std::string file_name(Contents contents, int rank, int num_ranks);

std::string index_text(const Index& index);
// None if the folder has no index because a single process wrote it. Throws UserError if the index
// is damaged.
std::optional<Index> read_index(const std::filesystem::path& folder);

// A text that tells the other ranks which pieces this rank holds.
std::string pieces_text(const std::vector<StoredPiece>& pieces);
std::vector<StoredPiece> parse_pieces(const std::string& text);

// Assigns each piece to one of the ranks that hold it, so that all write about the same amount.
// Returns for each rank the indices of its pieces to write; the same result on every rank.
std::vector<std::vector<size_t>> deal(const std::vector<std::vector<StoredPiece>>& held);

// Throws InternalError with the name of a tensor that the pieces do not cover.
void check_complete(const std::vector<std::vector<StoredPiece>>& held);

}  // namespace snug::checkpoint
