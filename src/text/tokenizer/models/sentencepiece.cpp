// tokenizer.model through sentencepiece's own library. The library knows nothing of special tokens
// in a text, so they are cut out first, as LLaMA's tokenizer does: in legacy mode every text
// between them gets the prefix space, otherwise only the one at the beginning.
// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "text/tokenizer/engine.h"
#include "text/tokenizer/gguf/gguf.h"
#include "text/tokenizer/steps/decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer {
namespace {

constexpr size_t kMaxModelBytes = size_t{1} << 30;

// Protocol buffers merge what is appended: NormalizerSpec (field 3) with add_dummy_prefix (field 3)
// false.
constexpr std::string_view kNoDummyPrefix("\x1A\x02\x18\x00", 4);

const nlohmann::json& decoder_json(bool strips_prefix) {
  static const auto make = [](bool strips) {
    auto steps = nlohmann::json::array(
        {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
         {{"type", "ByteFallback"}},
         {{"type", "Fuse"}}});
    if (strips) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return nlohmann::json{{"type", "Sequence"}, {"decoders", steps}};
  };
  static const nlohmann::json with = make(true), without = make(false);
  return strips_prefix ? with : without;
}

// What is wrong with it; empty: nothing. Its trie throws where others return a status.
std::string load_fault(sentencepiece::SentencePieceProcessor& processor, std::string_view bytes) {
  try {
    const auto status = processor.LoadFromSerializedProto({bytes.data(), bytes.size()});
    if (!status.ok()) return status.ToString();
  } catch (const std::exception& error) {
    return error.what();
  }
  return processor.GetPieceSize() <= 0 ? "it has no pieces" : "";
}

bool has_prefix(const sentencepiece::SentencePieceProcessor& processor) {
  std::vector<std::string> probe;
  return processor.Encode("a", &probe).ok() && !probe.empty() && probe.front().starts_with("▁");
}

class SentencePiece : public Engine {
 public:
  SentencePiece(const std::filesystem::path& path, const EngineOptions& options);
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  int32_t end_id() const override {
    return std::max(static_cast<int32_t>(processor_.GetPieceSize()), added_.end_id());
  }
  int32_t find(std::string_view token) const override;
  std::string token(int32_t id) const override;
  const AddedToken* added_token(int32_t id) const override { return added_.by_id(id); }

 private:
  void read_pieces();
  void read_added_tokens(const EngineOptions& options);

  std::string where_;
  sentencepiece::SentencePieceProcessor processor_;
  // Encodes without the prefix space; loaded only where it is needed.
  std::unique_ptr<sentencepiece::SentencePieceProcessor> continuing_;
  Vocabulary vocabulary_;
  std::unique_ptr<Decoder> decoder_;
  AddedTokens added_;
};

SentencePiece::SentencePiece(const std::filesystem::path& path, const EngineOptions& options)
    : where_(path.string()) {
  const std::string bytes = read_file(path, kMaxModelBytes);
  load_sentencepiece(processor_, bytes, where_);
  if (!options.legacy) {
    continuing_ = std::make_unique<sentencepiece::SentencePieceProcessor>();
    load_sentencepiece(*continuing_, bytes + std::string(kNoDummyPrefix), where_);
  }
  read_pieces();
  read_added_tokens(options);
  decoder_ = make_decoder(Node(decoder_json(has_prefix(processor_)), where_));
  if (processor_.bos_id() >= 0) frame_.before = {processor_.bos_id()};
  override_frame(options);
}

void SentencePiece::read_pieces() {
  for (int32_t id = 0; id < processor_.GetPieceSize(); ++id) {
    vocabulary_.add(processor_.IdToPiece(id), id, where_);
  }
}

void SentencePiece::read_added_tokens(const EngineOptions& options) {
  for (int32_t id = 0; id < processor_.GetPieceSize(); ++id) {
    if (processor_.IsControl(id) || processor_.IsUnknown(id)) {
      AddedToken token;
      token.content = processor_.IdToPiece(id);
      token.id = id;
      token.special = true;
      added_.add(std::move(token), vocabulary_, where_);
    }
  }
  for (AddedToken token : options.added_tokens) {
    const bool known = vocabulary_.find(token.content) >= 0;
    if (!known && token.id == kNextId) {
      token.id = end_id();
      ++num_appended_;
    }
    if (known || (token.id >= 0 && !vocabulary_.has(token.id))) {
      token.normalized = false;
      added_.add(std::move(token), vocabulary_, where_);
    }
  }
  added_.index(nullptr);
}

void SentencePiece::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> pieces;
  for (const Segment& segment : added_.find_raw(text)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const auto& processor = segment.begin > 0 && continuing_ ? *continuing_ : processor_;
    const auto part = text.substr(segment.begin, segment.end - segment.begin);
    const auto status = processor.Encode({part.data(), part.size()}, &pieces);
    if (!status.ok()) throw UserError("{}: sentencepiece: {}", where_, status.ToString());
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }
}

std::string SentencePiece::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  Decoder::Tokens tokens;
  for (const int32_t id : ids) {
    const bool skipped = skip_special_tokens && added_.is_special(id);
    if (!skipped && id >= 0 && id < end_id()) tokens.push_back(token(id));
  }
  std::string text;
  for (const auto& part : decoder_->apply(std::move(tokens))) text += part;
  return text;
}

int32_t SentencePiece::find(std::string_view token) const {
  const AddedToken* added = added_.by_content(token);
  return added ? added->id : vocabulary_.find(token);
}

std::string SentencePiece::token(int32_t id) const {
  const AddedToken* added = added_.by_id(id);
  return added ? added->content : std::string(vocabulary_.token(id));
}

}  // namespace

void load_sentencepiece(sentencepiece::SentencePieceProcessor& processor, std::string_view bytes,
                        const std::string& where) {
  if (const std::string fault = load_fault(processor, bytes); !fault.empty())
    throw UserError("{}: not a sentencepiece model: {}; fetch the file again", where, fault);
}

std::unique_ptr<Engine> make_sentencepiece(const std::filesystem::path& model,
                                           const EngineOptions& options) {
  return std::make_unique<SentencePiece>(model, options);
}

void set_gguf_rules(const std::filesystem::path& sentencepiece_model, GgufVocabulary& out) {
  sentencepiece::SentencePieceProcessor processor;
  load_sentencepiece(processor, read_file(sentencepiece_model, kMaxModelBytes),
                     sentencepiece_model.string());
  out.model = "llama";
  out.pre = "default";
  out.add_space_prefix = has_prefix(processor);
  out.scores.assign(out.tokens.size(), 0.0F);
  for (int32_t id = 0; id < std::ssize(out.tokens) && id < processor.GetPieceSize(); ++id) {
    out.scores[id] = processor.GetScore(id);
    if (processor.IsByte(id)) out.token_types[id] = kByte;
    if (processor.IsUnknown(id)) out.token_types[id] = kUnknown;
    if (processor.IsUnused(id)) out.token_types[id] = kUnused;
  }
}

}  // namespace snug::tokenizer
