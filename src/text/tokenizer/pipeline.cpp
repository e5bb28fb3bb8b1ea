// The pipeline of a tokenizer.json: added tokens are cut out of the raw text; what lies between is
// normalized, searched for normalized added tokens, cut into words, and each word encoded by the
// model.
// SPDX-License-Identifier: Apache-2.0

#include <mutex>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/engine.h"
#include "text/tokenizer/models/model.h"
#include "text/tokenizer/steps/decoder.h"
#include "text/tokenizer/steps/pre_tokenizer.h"

namespace snug::tokenizer {
namespace {

// The tokens that "post_processor" adds around a single text.
Frame read_post_processor(const Node& node, int depth = 0);

std::vector<int32_t> template_ids(const Node& specials, const std::string& name) {
  std::vector<int32_t> ids;
  for (const Node& id : specials[name.c_str()]["ids"].items()) ids.push_back(id.token_id());
  return ids;
}

Frame read_template(const Node& node) {
  Frame frame;
  bool text_seen = false;
  for (const Node& piece : node["single"].items()) {
    if (piece.find("Sequence")) {
      if (text_seen) piece.refuse("the text only once in a template");
      text_seen = true;
      continue;
    }
    auto& side = text_seen ? frame.after : frame.before;
    const auto ids = template_ids(node["special_tokens"], piece["SpecialToken"]["id"].string());
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) node["single"].refuse("a template that holds the text");
  return frame;
}

// Later steps add their tokens outside those of earlier steps.
Frame read_sequence(const Node& node, int depth) {
  if (depth >= kMaxSequenceDepth) node.refuse("post-processors that are nested less deeply");
  Frame frame;
  for (const Node& step : node["processors"].items()) {
    const Frame outer = read_post_processor(step, depth + 1);
    frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
    frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
  }
  return frame;
}

Frame read_post_processor(const Node& node, int depth) {
  if (node.is_null()) return {};
  const std::string& type = node["type"].string();
  if (type == "ByteLevel") return {};  // only moves offsets
  if (type == "TemplateProcessing") return read_template(node);
  if (type == "Sequence") return read_sequence(node, depth);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{node["cls"].item(1).token_id()}, {node["sep"].item(1).token_id()}};
  }
  throw UserError(
      "{}: the post-processor '{}' is unknown; supported: ByteLevel, TemplateProcessing, Sequence, "
      "BertProcessing, RobertaProcessing",
      node.where(), type);
}

// A pool of word caches and scratch memory, one per running encode(), so that encode() is
// thread-safe and caches stay warm between calls.
class ScratchPool {
 public:
  explicit ScratchPool(const Model& model) : model_(model) {}

  std::unique_ptr<Model::Scratch> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return model_.make_scratch();
    auto scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Model::Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  const Model& model_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Model::Scratch>> free_;
};

class Pipeline : public Engine {
 public:
  Pipeline(const Node& node, const EngineOptions& options);
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  int32_t end_id() const override {
    return std::max(model_->vocabulary().end_id(), added_.end_id());
  }
  int32_t find(std::string_view token) const override;
  std::string token(int32_t id) const override;
  const AddedToken* added_token(int32_t id) const override { return added_.by_id(id); }

 private:
  void read_added_tokens(const Node& node, const EngineOptions& options);
  void encode_stretch(const Word& word, Model::Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_words(const Word& word, Model::Scratch& scratch, std::vector<int32_t>& ids) const;

  std::unique_ptr<Normalizer> normalizer_;
  PreTokenization pre_tokenization_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Decoder> decoder_;
  AddedTokens added_;
  mutable std::optional<ScratchPool> scratch_;
};

// An optional part of the file; absent means null.
Node optional_part(const Node& node, const char* key) {
  static const nlohmann::json null;
  return node.find(key).value_or(Node(null, node.where() + "." + key));
}

Pipeline::Pipeline(const Node& node, const EngineOptions& options)
    : normalizer_(make_normalizer(optional_part(node, "normalizer"))),
      pre_tokenization_(make_pre_tokenization(optional_part(node, "pre_tokenizer"))),
      model_(make_model(node["model"])),
      decoder_(make_decoder(optional_part(node, "decoder"))) {
  read_added_tokens(node, options);
  added_.index(normalizer_.get());
  frame_ = read_post_processor(optional_part(node, "post_processor"));
  override_frame(options);
  scratch_.emplace(*model_);
}

void Pipeline::read_added_tokens(const Node& node, const EngineOptions& options) {
  if (const auto listed = node.find("added_tokens")) {
    for (const Node& entry : listed->items()) {
      added_.add(read_added_token(entry, entry["id"].token_id()), model_->vocabulary(),
                 entry.where());
    }
  }
  // Tokens that tokenizer_config.json adds, if the vocabulary has them or room for them.
  for (AddedToken token : options.added_tokens) {
    if (added_.by_content(token.content)) {
      if (token.special) added_.make_special(token.content);
      continue;
    }
    const int32_t known = model_->vocabulary().find(token.content);
    if (known < 0 && token.id == kNextId) {
      token.id = end_id();
      ++num_appended_;
    }
    if (known < 0 &&
        (token.id < 0 || model_->vocabulary().has(token.id) || added_.by_id(token.id))) {
      continue;
    }
    added_.add(std::move(token), model_->vocabulary(), node.where());
  }
}

void Pipeline::encode(std::string_view text, std::vector<int32_t>& ids) const {
  auto scratch = scratch_->take();
  for (const Segment& segment : added_.find_raw(text)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else {
      const auto part = text.substr(segment.begin, segment.end - segment.begin);
      encode_stretch({part, segment.begin == 0}, *scratch, ids);
    }
  }
  scratch_->give_back(std::move(scratch));
}

void Pipeline::encode_stretch(const Word& word, Model::Scratch& scratch,
                              std::vector<int32_t>& ids) const {
  std::string normalized;
  std::string_view text = word.text;
  if (normalizer_) {
    normalized = normalizer_->apply(std::string(text));
    text = normalized;
  }
  for (const Segment& segment : added_.find_normalized(text)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else {
      const auto part = text.substr(segment.begin, segment.end - segment.begin);
      encode_words({part, word.at_start && segment.begin == 0}, scratch, ids);
    }
  }
}

void Pipeline::encode_words(const Word& word, Model::Scratch& scratch,
                            std::vector<int32_t>& ids) const {
  const bool byte_level = pre_tokenization_.byte_level;
  if (!pre_tokenization_.steps) return model_->encode(word.text, byte_level, scratch, ids);
  pre_tokenization_.steps->split(
      word, [&](const Word& part) { model_->encode(part.text, byte_level, scratch, ids); });
}

std::string Pipeline::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  Decoder::Tokens tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const AddedToken* added = added_.by_id(id);
    if (added) {
      if (!(skip_special_tokens && added->special)) tokens.push_back(added->text);
    } else if (model_->vocabulary().has(id)) {
      tokens.emplace_back(model_->vocabulary().token(id));
    }
  }
  std::string text;
  if (decoder_) {
    for (const auto& part : decoder_->apply(std::move(tokens))) text += part;
    return text;
  }
  for (const auto& token : tokens) text.append(text.empty() ? "" : " ").append(token);
  return text;
}

int32_t Pipeline::find(std::string_view token) const {
  const AddedToken* added = added_.by_content(token);
  return added ? added->id : model_->vocabulary().find(token);
}

std::string Pipeline::token(int32_t id) const {
  const AddedToken* added = added_.by_id(id);
  return added ? added->text : std::string(model_->vocabulary().token(id));
}

}  // namespace

void Engine::override_frame(const EngineOptions& options) {
  if (!options.add_bos && !options.add_eos) return;
  frame_ = {};
  const int32_t bos = find(options.bos), eos = find(options.eos);
  if (options.add_bos.value_or(false) && bos >= 0) frame_.before = {bos};
  if (options.add_eos.value_or(false) && eos >= 0) frame_.after = {eos};
}

std::unique_ptr<Model> make_model(const Node& node) {
  // Older files without a type are BPE if they have merges.
  const std::string type = node.string_or("type", node.find("merges")   ? "BPE"
                                                  : node.find("unk_id") ? "Unigram"
                                                                        : "");
  if (type == "BPE") return make_bpe(node);
  if (type == "Unigram") return make_unigram(node);
  throw UserError("{}: the model '{}' is not supported; supported: BPE, Unigram", node.where(),
                  type);
}

std::unique_ptr<Engine> make_pipeline(const Node& tokenizer_json, const EngineOptions& options) {
  return std::make_unique<Pipeline>(tokenizer_json, options);
}

}  // namespace snug::tokenizer
