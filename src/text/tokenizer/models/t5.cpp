// T5 directories with only spiece.model. transformers converts it to a Unigram pipeline, whose ids
// differ from sentencepiece's for rare combining marks and white space. Models are used with
// transformers' ids, so we make the same pipeline. The library reads the file, except the character
// map, which it does not expose and which is read from the bytes.
// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "text/tokenizer/directory.h"

namespace snug::tokenizer {
namespace {

using nlohmann::json;

constexpr size_t kMaxSpieceBytes = size_t{1} << 30;
constexpr uint64_t kNormalizerSpec = 3, kCharsmap = 2;  // fields of ModelProto, of NormalizerSpec

// The last bytes field `number` of a protocol buffer; empty if there is none.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  std::string_view find(uint64_t number) {
    std::string_view found;
    while (at_ < bytes_.size()) {
      const uint64_t tag = varint();
      const uint64_t kind = tag & 7;
      const size_t length = kind == 0   ? (varint(), 0)
                            : kind == 1 ? 8
                            : kind == 5 ? 4
                                        : static_cast<size_t>(varint());
      const std::string_view value = bytes_.substr(std::min(at_, bytes_.size()), length);
      if (kind == 2 && tag >> 3 == number) found = value;
      at_ += length;
    }
    return found;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

// As tokenizer.json holds bytes.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i)
      out += at + i > bytes.size() ? '=' : kLetters[bits >> (18 - 6 * i) & 63];
  }
  return out;
}

json vocabulary_of(const sentencepiece::SentencePieceProcessor& processor, int32_t num_extra_ids) {
  json pieces = json::array();
  for (int32_t id = 0; id < processor.GetPieceSize(); ++id)
    pieces.push_back({processor.IdToPiece(id), processor.GetScore(id)});
  for (int32_t i = num_extra_ids - 1; i >= 0; --i)
    pieces.push_back({fmt::format("<extra_id_{}>", i), 0.0});
  return pieces;
}

json special_tokens(const json& vocabulary, int32_t num_pieces) {
  json tokens = json::array();
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.size()); ++id) {
    const auto& text = vocabulary[static_cast<size_t>(id)][0].get_ref<const std::string&>();
    const bool named = text == "<pad>" || text == "</s>" || text == "<unk>";
    if (!named && id < num_pieces) continue;
    tokens.push_back({{"id", id},
                      {"content", text},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  }
  return tokens;
}

}  // namespace

json t5_files(const std::filesystem::path& directory, int32_t num_extra_ids) {
  const std::filesystem::path path = directory / "spiece.model";
  if (!std::filesystem::exists(path)) return nullptr;
  const std::string bytes = read_file(path, kMaxSpieceBytes);
  sentencepiece::SentencePieceProcessor processor;
  load_sentencepiece(processor, bytes, path.string());
  const std::string_view charsmap = Fields(Fields(bytes).find(kNormalizerSpec)).find(kCharsmap);
  const json metaspace = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
  const json vocabulary = vocabulary_of(processor, num_extra_ids);
  json end = {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
              {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}};
  json result = {
      {"added_tokens", special_tokens(vocabulary, processor.GetPieceSize())},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", json::array({{{"type", "WhitespaceSplit"}}, metaspace})}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", std::move(end)},
        {"special_tokens",
         {{"</s>", {{"id", "</s>"}, {"ids", {processor.eos_id()}}, {"tokens", {"</s>"}}}}}}}},
      {"decoder", metaspace},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", processor.unk_id()},
        {"vocab", vocabulary},
        {"byte_fallback", false}}}};
  if (!charsmap.empty())
    result["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", base64(charsmap)}};
  return result;
}

}  // namespace snug::tokenizer
