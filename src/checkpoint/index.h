// What a checkpoint of several ranks has in its index.json: its files, and which piece of which
// tensor lies in each. A piece that several ranks hold is written by one of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/piece.h"
#include "formats/dtype.h"

namespace snug::checkpoint {

enum class Contents { Model, Optimizer, LateWeights };
inline constexpr Contents kAllContents[] = {Contents::Model, Contents::Optimizer,
                                            Contents::LateWeights};
const char* name(Contents contents);  // "model" …, which its files begin with

struct StoredPiece {
  Contents contents = Contents::Model;
  std::string name;
  formats::DType dtype = formats::DType::F32;
  PieceOf piece;

  bool operator==(const StoredPiece&) const = default;
};

struct PieceFile {
  std::string name;
  int64_t bytes = 0;
  std::vector<StoredPiece> pieces;  // of one kind of contents
};

struct Index {
  // Of the save: its files say it too, so that those of another are not taken for its own.
  std::string save_id;
  int num_ranks = 1;
  std::string mesh;  // "fsdp=4", for the reader's information
  std::vector<PieceFile> files;
};

inline constexpr const char* kIndexName = "index.json";
inline constexpr const char* kSaveIdKey = "snug_save";  // in the metadata of a file

// "model.safetensors"; "model-of-rank-0003-of-0004.safetensors" where there are several.
std::string file_name(Contents contents, int rank, int num_ranks);

std::string index_text(const Index& index);
// None where the folder has no index: a single process wrote it. Throws UserError where it is
// damaged.
std::optional<Index> read_index(const std::filesystem::path& folder);

// What a rank tells the others that it holds.
std::string pieces_text(const std::vector<StoredPiece>& pieces);
std::vector<StoredPiece> parse_pieces(const std::string& text);

// Of the pieces that each rank holds, the numbers of those that it is to write: each piece once, so
// that all write about as much. The same on every rank.
std::vector<std::vector<size_t>> deal(const std::vector<std::vector<StoredPiece>>& held);

// Throws InternalError naming a tensor that the pieces do not make up.
void check_complete(const std::vector<std::vector<StoredPiece>>& held);

}  // namespace snug::checkpoint
