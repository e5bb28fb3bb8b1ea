// Text to token ids and back, equal to Hugging Face's `tokenizers` id by id, from a tokenizer.json,
// a sentencepiece tokenizer.model or spiece.model or the vocabulary inside a GGUF file; and the
// chat template that belongs to the vocabulary. All const methods are thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug::tokenizer {

class ChatTemplate;

// Ids are -1 if the vocabulary has no such token. add_*: whether encode(…, true) adds the token.
struct SpecialTokens {
  int32_t bos = -1, eos = -1, pad = -1, unk = -1;
  bool add_bos = false, add_eos = false;
};

// Names of a thought that stands beside its answer, the first of them transformers' own.
inline constexpr const char* kThoughtKeys[] = {"reasoning_content", "thinking", "reasoning"};

struct Message {
  std::string role, content;
  bool learnt = true;  // of an answer in a training set; templates do not see it
  // What else templates may read (tool_calls, reasoning_content, name, …), as a JSON object; where
  // it says that "content" is null, there is none. Empty: nothing.
  std::string more = {};
  bool in_prompt = false;  // an answer in a training set that counts as prompt
  // `content` is the text of the calls in `more`: for templates that write no tool_calls.
  bool calls_are_content = false;

  // What an answer thinks, from a key of its own or from <think> in its content; or empty.
  std::string thought() const;
  bool calls_tools() const;
};

// A whole conversation as a template writes it.
struct RenderedChat {
  // Bytes of the text that are an assistant's own words: what it says and thinks, its calls, and
  // the end of its turn, without what a prompt ends with. In order; a turn may have several.
  struct Answer {
    size_t begin, end;
    size_t turn;
  };
  // What a turn has and the text has not: shown at this byte.
  struct LeftOut {
    size_t at;
    size_t turn;
    std::string what;  // "thought", "call", "answer", "turn of role critic", "list of tools"
    std::string words;
  };
  std::string text;
  std::vector<Answer> answers;
  std::vector<LeftOut> left_out;
};

// The keys tokenizer.ggml.* of a GGUF file, unchanged.
struct GgufVocabulary {
  std::string model;  // "gpt2" (byte-level BPE) or "llama" (sentencepiece by scores)
  std::string pre;    // tokenizer.ggml.pre: "smollm", "llama-bpe", "qwen2", …
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> token_types;
  std::vector<std::string> merges;  // "left right", best first
  SpecialTokens special;
  bool add_space_prefix = true;
  std::string chat_template;
};

// What stands in place of what a model's own files say. An empty text changes nothing.
struct TokenizerChanges {
  std::string chat_template = {}, where = {};  // Jinja, and how messages name its place
  std::string eos_token = {};                  // a token of the vocabulary, which is special then
  std::vector<std::string> tokens = {};  // special ones that are behind it, unless it has them

  bool empty() const { return chat_template.empty() && eos_token.empty() && tokens.empty(); }
};

// What the small files in a folder say of template and end of sequence: beside an adapter, what it
// was trained with.
TokenizerChanges changes_in(const std::filesystem::path& directory);

class Tokenizer {
 public:
  // tokenizer.json where there is one, else tokenizer.model, else T5's spiece.model, else
  // vocab.json and merges.txt; the small JSON files beside them and chat_template.jinja are read
  // where present. Throws UserError naming the file, or a token that the vocabulary lacks.
  static std::unique_ptr<Tokenizer> from_directory(const std::filesystem::path& directory,
                                                   const TokenizerChanges& changes = {});
  static std::unique_ptr<Tokenizer> from_gguf(GgufVocabulary vocabulary,
                                              const TokenizerChanges& changes = {});
  ~Tokenizer();

  // Special tokens written out in the text are recognised. Invalid UTF-8 becomes U+FFFD.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  // Ids outside the vocabulary are left out.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // One more than the largest id.
  int64_t vocabulary_size() const;
  const SpecialTokens& special() const;
  bool has_other_eos() const;  // by TokenizerChanges
  // How many tokens are behind those of its own files, by TokenizerChanges.
  int64_t num_new_tokens() const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::string id_to_token(int32_t id) const;  // "" for an id without a token
  bool is_special(int32_t id) const;          // decode() skips it

  bool has_chat_template() const;
  // The conversation as the model saw it in training. `tools`: those that the model may call, a
  // JSON array; empty: none. Throws UserError where the template refuses it, or does not write a
  // message's calls.
  std::string apply_chat_template(std::span<const Message> messages, bool add_generation_prompt,
                                  std::string_view tools = {}) const;
  // The same without the beginning of an answer, and whose words are where.
  RenderedChat render_chat(std::span<const Message> messages, std::string_view tools = {}) const;
  // The marks with which a model that learnt this template ends its answers, the last one of a
  // conversation and others. Empty where it writes none.
  std::vector<int32_t> ends_of_answers() const;

  // A directory that transformers' AutoTokenizer loads and that encodes identically.
  void write_directory(const std::filesystem::path& directory) const;
  // The size of its large files.
  int64_t directory_bytes() const;
  // The same vocabulary for a GGUF file of a model with `num_tokens` embedding rows. Throws
  // UserError if GGUF cannot express it or ids would change.
  GgufVocabulary gguf_vocabulary(int64_t num_tokens) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  const ChatTemplate& chat_template() const;
  std::unique_ptr<State> state_;
};

// Decodes ids one at a time, holding text back until it is complete UTF-8. The tokenizer must
// outlive it.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string push(int32_t id);
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t>
      window_;  // ids whose text may still change, after the ids that give its context
  size_t num_context_ = 0;
  std::string emitted_;  // decode(window_[0, num_context_))
};

}  // namespace snug::tokenizer
