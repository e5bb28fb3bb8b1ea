// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/directory.h"
#include "text/tokenizer/engine.h"
#include "text/tokenizer/gguf/gguf.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

namespace fs = std::filesystem;

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return id >= 0 && std::find(ids.begin(), ids.end(), id) != ids.end();
}

nlohmann::json minimal_config(const std::map<std::string, std::string>& named_tokens) {
  nlohmann::json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                           {"clean_up_tokenization_spaces", false}};
  for (const auto& [key, text] : named_tokens) config[key] = text;
  return config;
}

[[noreturn]] void refuse_eos(const std::string& token, const std::string& where) {
  throw UserError(
      "eos_token = {}: the vocabulary of {} has no such token; give one that it has with "
      "--data.eos_token, as the mark with which the chat template ends an answer, or add it with "
      "--tokens.add",
      token, where);
}

// Whether it is new: then it takes the place of the first of those behind the vocabulary that stand
// for rows without a token.
bool add_control_token(const std::string& token, GgufVocabulary& vocabulary) {
  std::vector<int32_t>& types = vocabulary.token_types;
  types.resize(vocabulary.tokens.size(), kNormal);
  const auto known = std::ranges::find(vocabulary.tokens, token);
  auto id = static_cast<size_t>(known - vocabulary.tokens.begin());
  const bool is_new = known == vocabulary.tokens.end();
  while (is_new && id > 0 && types[id - 1] == kUnused) --id;
  if (id == vocabulary.tokens.size()) {
    vocabulary.tokens.emplace_back();
    types.push_back(kControl);
    if (!vocabulary.scores.empty()) vocabulary.scores.push_back(0);
  }
  vocabulary.tokens[id] = token;
  types[id] = kControl;
  return is_new;
}

void write_json(const fs::path& path, const nlohmann::json& json) {
  write_file_atomically(path, json.dump(2) + "\n");
}

}  // namespace

struct Tokenizer::State {
  std::unique_ptr<Engine> engine;
  SpecialTokens special;
  std::map<std::string, std::string> named_tokens;  // "bos_token" -> "<s>", …
  std::unique_ptr<ChatTemplate> chat_template;
  std::string chat_template_text;
  TokenizerChanges changes;
  int64_t num_new_tokens = 0;  // by changes
  fs::path source;             // the directory it came from; empty for a GGUF
  std::string tokenizer_json;  // the conversion of a GGUF vocabulary
  nlohmann::json config;

  int32_t find_named(const char* key) const {
    const auto found = named_tokens.find(key);
    return found == named_tokens.end() ? -1 : engine->find(found->second);
  }
  void set_special();
  void set_chat_template(std::string_view text, std::string where);
};

void Tokenizer::State::set_special() {
  special.bos = find_named("bos_token");
  special.eos = find_named("eos_token");
  special.pad = find_named("pad_token");
  special.unk = find_named("unk_token");
  special.add_bos = contains(engine->frame().before, special.bos);
  special.add_eos = contains(engine->frame().after, special.eos);
}

void Tokenizer::State::set_chat_template(std::string_view text, std::string where) {
  if (!text.empty()) chat_template = std::make_unique<ChatTemplate>(text, std::move(where));
  chat_template_text = text;
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::from_directory(const fs::path& directory,
                                                     const TokenizerChanges& changes) {
  if (directory.empty())
    throw UserError(
        "rows of text need a tokenizer, and a model that is only a configuration has none: name a "
        "folder that has one (--checkpoint_dir), or take made-up samples (--data Synthetic)");
  const fs::path json = directory / "tokenizer.json", model = directory / "tokenizer.model";
  auto state = std::make_unique<State>();
  state->source = directory;
  state->changes = changes;
  Sidecars sidecars = read_sidecars(directory, changes);
  if (fs::exists(json)) {
    state->engine = make_pipeline(Node(read_json(json), json.string()), sidecars.options);
  } else if (fs::exists(model)) {
    state->engine = make_sentencepiece(model, sidecars.options);
  } else if (const nlohmann::json t5 = t5_files(directory, sidecars.num_extra_ids); !t5.is_null()) {
    state->engine =
        make_pipeline(Node(t5, (directory / "spiece.model").string()), sidecars.options);
    state->config = {{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", sidecars.num_extra_ids}};
    for (const auto& [key, text] : {std::pair("eos_token", "</s>"), std::pair("pad_token", "<pad>"),
                                    std::pair("unk_token", "<unk>")})
      sidecars.named_tokens.try_emplace(key, text);
  } else if (const nlohmann::json bytes = byte_level_files(directory); !bytes.is_null()) {
    state->engine =
        make_pipeline(Node(bytes, (directory / "vocab.json").string()), sidecars.options);
  } else {
    throw UserError(
        "{}: neither tokenizer.json nor tokenizer.model nor spiece.model nor vocab.json with "
        "merges.txt is there; "
        "copy the tokenizer's files beside the weights",
        directory.string());
  }
  state->named_tokens = std::move(sidecars.named_tokens);
  if (fs::exists(model) && !fs::exists(json)) {
    // A sentencepiece model has its own special tokens; files beside it may be missing.
    for (const auto& [key, text] : {std::pair("bos_token", "<s>"), std::pair("eos_token", "</s>"),
                                    std::pair("unk_token", "<unk>")}) {
      if (state->engine->find(text) >= 0) state->named_tokens.try_emplace(key, text);
    }
  }
  if (!state->named_tokens.contains("eos_token") && sidecars.generation_eos >= 0) {
    std::string text = state->engine->token(sidecars.generation_eos);
    if (!text.empty()) state->named_tokens["eos_token"] = std::move(text);
  }
  const nlohmann::json own = state->config;
  state->config = minimal_config(state->named_tokens);
  if (own.is_object()) state->config.update(own);
  state->num_new_tokens = state->engine->num_appended();
  state->set_special();
  if (!changes.eos_token.empty() && state->special.eos < 0)
    refuse_eos(changes.eos_token, directory.string());
  state->set_chat_template(sidecars.chat_template, sidecars.chat_template_where);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(state)));
}

std::unique_ptr<Tokenizer> Tokenizer::from_gguf(GgufVocabulary vocabulary,
                                                const TokenizerChanges& changes) {
  auto state = std::make_unique<State>();
  state->changes = changes;
  if (!changes.chat_template.empty()) vocabulary.chat_template = changes.chat_template;
  for (const std::string& token : changes.tokens)
    state->num_new_tokens += add_control_token(token, vocabulary) ? 1 : 0;
  if (!changes.eos_token.empty()) {
    const auto found = std::ranges::find(vocabulary.tokens, changes.eos_token);
    if (found == vocabulary.tokens.end()) refuse_eos(changes.eos_token, "the GGUF file");
    const auto id = static_cast<int32_t>(found - vocabulary.tokens.begin());
    vocabulary.special.eos = id;
    if (id < std::ssize(vocabulary.token_types)) vocabulary.token_types[id] = kControl;
  }
  const nlohmann::json json = gguf_tokenizer_json(vocabulary);
  state->engine = make_pipeline(Node(json, "GGUF, tokenizer.ggml"), {});
  state->tokenizer_json = json.dump();
  state->config = gguf_tokenizer_config(vocabulary);
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    if (state->config.contains(key)) state->named_tokens[key] = state->config[key];
  }
  state->set_special();
  state->set_chat_template(vocabulary.chat_template, changes.chat_template.empty()
                                                         ? "GGUF, tokenizer.chat_template"
                                                         : changes.where);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(state)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::string repaired;
  if (find_invalid_utf8(text) != std::string_view::npos) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  const Frame& frame = state_->engine->frame();
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = frame.before;
  state_->engine->encode(text, ids);
  if (add_special_tokens) ids.insert(ids.end(), frame.after.begin(), frame.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  return state_->engine->decode(ids, skip_special_tokens);
}

int64_t Tokenizer::vocabulary_size() const { return state_->engine->end_id(); }
const SpecialTokens& Tokenizer::special() const { return state_->special; }
int64_t Tokenizer::num_new_tokens() const { return state_->num_new_tokens; }
bool Tokenizer::has_other_eos() const { return !state_->changes.eos_token.empty(); }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int32_t id = state_->engine->find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::string Tokenizer::id_to_token(int32_t id) const { return state_->engine->token(id); }

bool Tokenizer::is_special(int32_t id) const {
  return decode({&id, 1}).empty() && !decode({&id, 1}, false).empty();
}

bool Tokenizer::has_chat_template() const { return state_->chat_template != nullptr; }

const ChatTemplate& Tokenizer::chat_template() const {
  if (state_->chat_template) return *state_->chat_template;
  throw UserError("{}: the tokenizer has no chat template; choose another prompt style",
                  state_->source.empty() ? "GGUF" : state_->source.string());
}

std::string Tokenizer::apply_chat_template(std::span<const Message> messages,
                                           bool add_generation_prompt,
                                           std::string_view tools) const {
  return chat_template().apply(messages, add_generation_prompt, tools, state_->named_tokens);
}

RenderedChat Tokenizer::render_chat(std::span<const Message> messages,
                                    std::string_view tools) const {
  return chat_template().render_chat(messages, tools, state_->named_tokens);
}

std::vector<int32_t> Tokenizer::ends_of_answers() const {
  if (!has_chat_template()) return {};
  const Message question{"user", "q"}, answer{"assistant", "xq7"};  // no template has this word
  std::vector<int32_t> ends;
  for (const auto& turns : {std::vector{question, answer}, {question, answer, question}}) {
    try {
      const RenderedChat chat = render_chat(turns);
      if (chat.answers.empty()) continue;
      // Behind the word, in this turn or at the beginning of the next.
      const size_t word = chat.text.find(answer.content, chat.answers.front().begin);
      if (word == std::string::npos) continue;
      const std::string_view behind =
          std::string_view(chat.text).substr(word + answer.content.size());
      for (const int32_t id : encode(behind, false)) {
        if (!is_special(id)) continue;
        ends.push_back(id);
        break;
      }
    } catch (const UserError&) {
      // Some refuse this conversation.
    }
  }
  return ends;
}

void Tokenizer::write_directory(const fs::path& directory) const {
  fs::create_directories(directory);
  if (state_->source.empty()) {
    write_file_atomically(directory / "tokenizer.json", state_->tokenizer_json);
  } else {
    copy_tokenizer_files(state_->source, directory);
  }
  if (!fs::exists(directory / "tokenizer_config.json")) {
    write_json(directory / "tokenizer_config.json", state_->config);
  }
  if (!fs::exists(directory / "special_tokens_map.json")) {
    write_json(directory / "special_tokens_map.json", state_->named_tokens);
  }
  if (state_->changes.empty()) return;
  std::vector<int32_t> ids;
  for (const std::string& token : state_->changes.tokens)
    ids.push_back(state_->engine->find(token));
  write_changes(directory, state_->changes, ids);
}

int64_t Tokenizer::directory_bytes() const {
  if (state_->source.empty()) return std::ssize(state_->tokenizer_json);
  return tokenizer_files_bytes(state_->source) + std::ssize(state_->changes.chat_template);
}

GgufVocabulary Tokenizer::gguf_vocabulary(int64_t num_tokens) const {
  GgufVocabulary out;
  set_gguf_tokens(*state_->engine, num_tokens, out);
  out.special = state_->special;
  // A vocabulary may add a token around texts that no file names as bos or eos.
  const Frame& frame = state_->engine->frame();
  if (out.special.bos < 0 && frame.before.size() == 1) {
    out.special.bos = frame.before.front();
    out.special.add_bos = true;
  }
  if (out.special.eos < 0 && frame.after.size() == 1) {
    out.special.eos = frame.after.front();
    out.special.add_eos = true;
  }
  for (int32_t* id : {&out.special.bos, &out.special.eos, &out.special.pad, &out.special.unk})
    if (*id >= num_tokens) *id = -1;
  out.chat_template = state_->chat_template_text;
  const fs::path json = state_->source / "tokenizer.json";
  const std::string where = state_->source.empty() ? "GGUF" : state_->source.string();
  if (state_->source.empty())
    set_gguf_rules(nlohmann::json::parse(state_->tokenizer_json), where, out);
  else if (fs::exists(json))
    set_gguf_rules(read_json(json), where, out);
  else if (const nlohmann::json t5 = t5_files(state_->source, 0); !t5.is_null())
    set_gguf_rules(t5, where, out);
  else if (const nlohmann::json bytes = byte_level_files(state_->source);
           !fs::exists(state_->source / "tokenizer.model") && !bytes.is_null())
    set_gguf_rules(bytes, where, out);
  else
    set_gguf_rules(state_->source / "tokenizer.model", out);
  if (out.model == "llama" && out.special.unk >= 0) out.token_types[out.special.unk] = kUnknown;
  check_gguf_ids(*this, out, where);
  return out;
}

// Text of a token may depend on the tokens before it (a space that is stripped at the start) and
// may end inside a character. So a few emitted ids are kept as context, and text that ends in
// U+FFFD waits.

namespace {

// A character has at most four bytes, so more waiting ids cannot complete one.
constexpr size_t kMaxWaiting = 8;

}  // namespace

std::string StreamingDecoder::push(int32_t id) {
  window_.push_back(id);
  const std::string text = tokenizer_.decode(window_);
  // Ids without text do not enter the context: without words in it the next word would be decoded
  // like the first.
  if (!emitted_.empty() && text == emitted_ && tokenizer_.decode({&id, 1}).empty()) {
    window_.pop_back();
    return "";
  }
  const bool waits = window_.size() - num_context_ < kMaxWaiting;
  if (waits && (text.ends_with("\xEF\xBF\xBD") || text.size() <= emitted_.size())) return "";
  return flush();
}

std::string StreamingDecoder::flush() {
  const std::string text = tokenizer_.decode(window_);
  size_t begin = std::min(emitted_.size(), text.size());
  // Only after incomplete bytes that were emitted as they were: do not emit the completed character
  // too.
  while (begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;
  std::string fresh = text.substr(begin);
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(num_context_));
  num_context_ = window_.size();
  emitted_ = tokenizer_.decode(window_);
  return fresh;
}

}  // namespace snug::tokenizer
