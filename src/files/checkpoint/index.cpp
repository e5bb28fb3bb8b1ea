// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/index.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace snug::checkpoint {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;

json span_json(const Span& span) { return json::array({span.begin, span.end}); }

Span parse_span(const json& value, int64_t size) {
  const Span span{value.at(0), value.at(1)};
  if (span.begin < 0 || span.begin > span.end || span.end > size)
    throw UserError("{} is not between 0 and {}", value.dump(), size);
  return span;
}

// Omits the box and the range if they cover everything.
json piece_json(const StoredPiece& stored) {
  const PieceOf& piece = stored.piece;
  json value{{"name", stored.name},
             {"dtype", files::name(stored.dtype)},
             {"whole_shape", piece.whole_shape}};
  if (piece.box_elements() != piece.whole_elements())
    for (const Span& range : piece.box) value["box"].push_back(span_json(range));
  if (piece.num_elements() != piece.box_elements()) value["stretch"] = span_json(piece.range);
  return value;
}

files::DType parse_dtype(const std::string& text) {
  for (const auto type :
       {files::DType::F32, files::DType::BF16, files::DType::F16, files::DType::U8})
    if (text == files::name(type)) return type;
  throw UserError("tensors are not written as {}", text);
}

StoredPiece parse_piece(const json& value, Contents contents) {
  StoredPiece stored{.contents = contents,
                     .name = value.at("name"),
                     .dtype = parse_dtype(value.at("dtype")),
                     .piece = PieceOf::whole(value.at("whole_shape"))};
  PieceOf& piece = stored.piece;
  if (value.contains("box"))
    for (size_t d = 0; d < piece.box.size(); ++d)
      piece.box[d] = parse_span(value["box"].at(d), piece.whole_shape[d]);
  piece.range = {0, piece.box_elements()};
  if (value.contains("stretch")) piece.range = parse_span(value["stretch"], piece.range.end);
  return stored;
}

Contents parse_contents(const std::string& text) {
  for (const Contents contents : kAllContents)
    if (text == name(contents)) return contents;
  throw UserError("unknown contents {}", text);
}

PieceFile parse_file(const json& value) {
  PieceFile file{.name = value.at("name"), .bytes = value.at("bytes")};
  if (file.name != std::filesystem::path(file.name).filename())
    throw UserError("{} is not a file name", file.name);
  const Contents contents = parse_contents(value.at("contents"));
  for (const json& piece : value.at("pieces")) file.pieces.push_back(parse_piece(piece, contents));
  return file;
}

// A key that identifies a piece.
std::string key_of(const StoredPiece& piece) {
  return std::string(name(piece.contents)) + piece_json(piece).dump();
}

int64_t bytes_of_piece(const StoredPiece& piece) {
  return files::bytes_for(piece.dtype, piece.piece.num_elements());
}

}  // namespace

const char* name(Contents contents) {
  switch (contents) {
    case Contents::Model:
      return "model";
    case Contents::Optimizer:
      return "optimizer";
    case Contents::LateWeights:
      return "late_weights";
  }
  return "";
}

std::string file_name(Contents contents, int rank, int num_ranks) {
  if (num_ranks == 1) return fmt::format("{}.safetensors", name(contents));
  return fmt::format("{}-of-rank-{:04}-of-{:04}.safetensors", name(contents), rank, num_ranks);
}

std::string index_text(const Index& index) {
  json files = json::array();
  for (const PieceFile& file : index.files) {
    json pieces = json::array();
    for (const StoredPiece& piece : file.pieces) pieces.push_back(piece_json(piece));
    files.push_back({{"name", file.name},
                     {"contents", name(file.pieces.front().contents)},
                     {"bytes", file.bytes},
                     {"pieces", pieces}});
  }
  return json{{"schema", kSchema},
              {"save", index.save_id},
              {"num_ranks", index.num_ranks},
              {"mesh", index.mesh},
              {"files", files}}
             .dump() +
         "\n";
}

std::optional<Index> read_index(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kIndexName;
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto refuse = [&](const std::string& reason) {
    throw UserError("{} is damaged ({}); copy the checkpoint again, or resume from an earlier one",
                    path.string(), reason);
  };
  const json value = json::parse(read_file(path), nullptr, false);
  try {
    if (const int schema = value.at("schema"); schema != kSchema)
      throw UserError(
          "{}: schema {} belongs to another version of snug; use that version, since this one "
          "reads schema {}",
          path.string(), schema, kSchema);
    Index index{
        .save_id = value.at("save"), .num_ranks = value.at("num_ranks"), .mesh = value.at("mesh")};
    try {
      for (const json& file : value.at("files")) index.files.push_back(parse_file(file));
    } catch (const UserError& error) {
      refuse(error.what());
    }
    return index;
  } catch (const json::exception& error) {
    refuse(error.what());
  }
  return std::nullopt;
}

std::string pieces_text(const std::vector<StoredPiece>& pieces) {
  json value = json::array();
  for (const StoredPiece& piece : pieces)
    value.push_back({name(piece.contents), piece_json(piece)});
  return value.dump();
}

std::vector<StoredPiece> parse_pieces(const std::string& text) {
  std::vector<StoredPiece> pieces;
  for (const json& entry : json::parse(text))
    pieces.push_back(parse_piece(entry.at(1), parse_contents(entry.at(0))));
  return pieces;
}

std::vector<std::vector<size_t>> deal(const std::vector<std::vector<StoredPiece>>& held) {
  // A holder of a piece: the rank, and the index among its pieces.
  using Holder = std::pair<size_t, size_t>;
  std::map<std::string, std::vector<Holder>> holders;
  for (size_t rank = 0; rank < held.size(); ++rank)
    for (size_t i = 0; i < held[rank].size(); ++i)
      holders[key_of(held[rank][i])].emplace_back(rank, i);
  std::vector<std::vector<size_t>> result(held.size());
  std::vector<int64_t> load(held.size());
  const auto give = [&](const Holder& holder) {
    result[holder.first].push_back(holder.second);
    load[holder.first] += bytes_of_piece(held[holder.first][holder.second]);
  };
  // First pieces with only one holder, then the largest.
  std::vector<const std::vector<Holder>*> shared;
  for (const auto& [key, ranks] : holders) {
    if (ranks.size() == 1) give(ranks.front());
    if (ranks.size() > 1) shared.push_back(&ranks);
  }
  const auto size = [&](const auto* ranks) {
    return bytes_of_piece(held[ranks->front().first][ranks->front().second]);
  };
  std::ranges::stable_sort(shared, std::greater(), size);
  for (const std::vector<Holder>* ranks : shared)
    give(*std::ranges::min_element(*ranks, {}, [&](const Holder& h) { return load[h.first]; }));
  for (std::vector<size_t>& own : result) std::ranges::sort(own);
  return result;
}

void check_complete(const std::vector<std::vector<StoredPiece>>& held) {
  struct Whole {
    const StoredPiece* first;
    Tiling tiling;
  };
  std::map<std::pair<Contents, std::string>, Whole> tensors;
  for (const auto& pieces : held)
    for (const StoredPiece& piece : pieces) {
      Whole& whole =
          tensors.try_emplace({piece.contents, piece.name}, Whole{&piece, {}}).first->second;
      SNUG_CHECK(piece.dtype == whole.first->dtype &&
                     piece.piece.whole_shape == whole.first->piece.whole_shape,
                 "{} is not the same tensor on all ranks", piece.name);
      whole.tiling.add(piece.piece, 0);
    }
  for (const auto& [key, whole] : tensors)
    SNUG_CHECK(whole.tiling.is_complete(),
               "no rank holds some elements of {}, or two boxes overlap", key.second);
}

}  // namespace snug::checkpoint
