// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/directory.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                        "sep_token", "cls_token", "mask_token"};
constexpr const char* kFiles[] = {"tokenizer.json",
                                  "tokenizer.model",
                                  "spiece.model",
                                  "tokenizer_config.json",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "chat_template.jinja",
                                  "chat_template.json",
                                  "vocab.json",
                                  "merges.txt"};
constexpr size_t kMaxTemplateBytes = size_t{1} << 24;

std::optional<nlohmann::json> read_if_present(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  return read_json(path);
}

// "<s>" or {"content": "<s>", …}; nothing for null or an absent key.
std::string token_text(const Node& node, const char* key) {
  const auto found = node.find(key);
  if (!found) return "";
  return found->is_object() ? (*found)["content"].string() : found->string();
}

void read_named_tokens(const Node& node, Sidecars& out) {
  for (const char* key : kNamedTokens) {
    std::string text = token_text(node, key);
    if (!text.empty()) out.named_tokens.try_emplace(key, std::move(text));
  }
  const auto more = node.find("additional_special_tokens");
  if (!more || !more->is_array()) return;
  for (const Node& entry : more->items()) {
    AddedToken token;
    token.content = entry.is_object() ? entry["content"].string() : entry.string();
    token.special = true;
    out.options.add_token(std::move(token));
  }
}

int32_t parse_id(const Node& parent, const std::string& key) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc{} || end != key.data() + key.size() || id < 0) {
    throw UserError("{}: the key '{}' is not a token id", parent.where(), key);
  }
  return id;
}

// The template named "default" where there are several.
std::string template_text(const Node& node) {
  if (node.is_string()) return node.string();
  for (const Node& entry : node.items()) {
    if (entry["name"].string() == "default") return entry["template"].string();
  }
  return "";
}

void read_tokenizer_config(const Node& node, Sidecars& out) {
  read_named_tokens(node, out);
  if (const auto listed = node.find("added_tokens_decoder")) {
    if (!listed->is_object()) listed->refuse("an object of id: token");
    for (const auto& [key, value] : listed->json().items()) {
      const Node entry(value, listed->where() + "." + key);
      out.options.add_token(read_added_token(entry, parse_id(*listed, key)));
    }
  }
  if (const auto add = node.find("add_bos_token")) out.options.add_bos = add->boolean();
  if (const auto add = node.find("add_eos_token")) out.options.add_eos = add->boolean();
  out.options.legacy = node.boolean_or("legacy", true);
  if (const auto extra = node.find("extra_ids")) out.num_extra_ids = extra->token_id();
  if (const auto chat = node.find("chat_template")) {
    out.chat_template = template_text(*chat);
    out.chat_template_where = chat->where();
  }
}

// A processor's file, which models that see pictures have in place of the other two.
void read_template_file(const Node& node, Sidecars& out) {
  if (!out.chat_template.empty()) return;
  if (const auto chat = node.find("chat_template")) {
    out.chat_template = template_text(*chat);
    out.chat_template_where = chat->where();
  }
}

void read_added_tokens_file(const Node& node, Sidecars& out) {
  if (!node.is_object()) node.refuse("an object of token: id");
  for (const auto& [token, id] : node.json().items()) {
    AddedToken added;
    added.content = token;
    added.id = Node(id, node.where() + "." + token).token_id();
    out.options.add_token(std::move(added));
  }
}

void read_generation_config(const Node& node, Sidecars& out) {
  const auto eos = node.find("eos_token_id");
  if (!eos || (eos->is_array() && eos->size() == 0)) return;
  out.generation_eos = (eos->is_array() ? eos->item(0) : *eos).token_id();
}

// Named tokens are special even where no list of added tokens holds them.
void add_named_tokens(Sidecars& out) {
  for (const auto& [key, text] : out.named_tokens) {
    AddedToken token;
    token.content = text;
    token.special = true;
    out.options.add_token(std::move(token));
  }
  const auto text_of = [&](const char* key) {
    const auto found = out.named_tokens.find(key);
    return found == out.named_tokens.end() ? std::string() : found->second;
  };
  out.options.bos = text_of("bos_token");
  out.options.eos = text_of("eos_token");
}

}  // namespace

Sidecars read_sidecars(const fs::path& directory, const TokenizerChanges& changes) {
  Sidecars out;
  const auto read = [&](const char* name, void (*take)(const Node&, Sidecars&)) {
    const fs::path path = directory / name;
    if (const auto json = read_if_present(path)) take(Node(*json, path.string()), out);
  };
  read("tokenizer_config.json", read_tokenizer_config);
  read("special_tokens_map.json", read_named_tokens);
  read("added_tokens.json", read_added_tokens_file);
  read("generation_config.json", read_generation_config);
  read("chat_template.json", read_template_file);
  if (!changes.eos_token.empty()) out.named_tokens["eos_token"] = changes.eos_token;
  for (const std::string& token : changes.tokens)
    out.options.add_token({.content = token, .id = kNextId, .special = true});
  add_named_tokens(out);
  const fs::path jinja = directory / "chat_template.jinja";
  if (fs::exists(jinja)) {
    out.chat_template = repair_utf8(read_file(jinja, kMaxTemplateBytes));
    out.chat_template_where = jinja.string();
  }
  if (!changes.chat_template.empty()) {
    out.chat_template = changes.chat_template;
    out.chat_template_where = changes.where;
  }
  return out;
}

TokenizerChanges changes_in(const fs::path& directory) {
  if (!fs::is_directory(directory)) return {};
  const Sidecars read = read_sidecars(directory);
  const auto eos = read.named_tokens.find("eos_token");
  return {.chat_template = read.chat_template,
          .where = read.chat_template_where,
          .eos_token = eos == read.named_tokens.end() ? "" : eos->second};
}

namespace {

// As "added_tokens_decoder" has it, and with its id as an entry of "added_tokens".
nlohmann::json entry_of(const std::string& token) {
  return {{"content", token}, {"lstrip", false},     {"rstrip", false},
          {"special", true},  {"normalized", false}, {"single_word", false}};
}

// In tokenizer.json, or in what stands beside a tokenizer.model. Returns what is said of each.
std::vector<nlohmann::json> write_tokens(const fs::path& directory,
                                         const std::vector<std::string>& tokens,
                                         const std::vector<int32_t>& ids) {
  std::vector<nlohmann::json> said;
  const fs::path whole = directory / "tokenizer.json", more = directory / "added_tokens.json";
  const bool is_whole = fs::exists(whole);
  nlohmann::json file =
      is_whole ? read_json(whole) : read_if_present(more).value_or(nlohmann::json::object());
  if (is_whole && !file["added_tokens"].is_array()) file["added_tokens"] = nlohmann::json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    said.push_back(entry_of(tokens[i]));
    if (!is_whole) {
      file[tokens[i]] = ids[i];
      continue;
    }
    // What else the file says of a token that it has stays.
    nlohmann::json& list = file["added_tokens"];
    auto entry = std::ranges::find_if(
        list, [&](const nlohmann::json& known) { return known.value("id", -1) == ids[i]; });
    if (entry == list.end()) {
      list.push_back(said.back());
      entry = list.end() - 1;
    }
    (*entry)["special"] = true;
    said.back() = *entry;
    said.back().erase("id");
    (*entry)["id"] = ids[i];
  }
  write_file_atomically(is_whole ? whole : more, file.dump(2) + "\n");
  return said;
}

}  // namespace

void write_changes(const fs::path& directory, const TokenizerChanges& changes,
                   const std::vector<int32_t>& ids) {
  const bool writes = !changes.chat_template.empty();
  const std::vector<nlohmann::json> said = changes.tokens.empty()
                                               ? std::vector<nlohmann::json>()
                                               : write_tokens(directory, changes.tokens, ids);
  if (writes) {
    write_file_atomically(directory / "chat_template.jinja", changes.chat_template);
    fs::remove(directory / "chat_template.json");
  }
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    std::optional<nlohmann::json> file = read_if_present(directory / name);
    if (!file || !file->is_object()) continue;
    if (writes) file->erase("chat_template");
    if (!changes.eos_token.empty()) (*file)["eos_token"] = changes.eos_token;
    for (size_t i = 0; i < said.size() && std::string_view(name) == "tokenizer_config.json"; ++i)
      (*file)["added_tokens_decoder"][std::to_string(ids[i])] = said[i];
    write_file_atomically(directory / name, file->dump(2) + "\n");
  }
}

nlohmann::json byte_level_files(const fs::path& directory) {
  const fs::path vocabulary = directory / "vocab.json", merges = directory / "merges.txt";
  if (!fs::exists(vocabulary) || !fs::exists(merges)) return nullptr;
  bool add_prefix_space = false;
  const fs::path config = directory / "tokenizer_config.json";
  if (const auto json = read_if_present(config))
    add_prefix_space = Node(*json, config.string()).boolean_or("add_prefix_space", false);
  nlohmann::json rules = nlohmann::json::array();
  const std::string text = repair_utf8(read_file(merges, size_t{1} << 28));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !(at == 0 && line.starts_with("#version"))) rules.push_back(line);
    at = end + 1;
  }
  const nlohmann::json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}};
  return {
      {"pre_tokenizer", bytes},
      {"decoder", bytes},
      {"added_tokens", nlohmann::json::array()},
      {"model", {{"type", "BPE"}, {"vocab", read_json(vocabulary)}, {"merges", std::move(rules)}}}};
}

int64_t tokenizer_files_bytes(const fs::path& directory) {
  std::error_code error;
  int64_t total = 0;
  for (const char* name : kFiles) {
    const uintmax_t bytes = fs::file_size(directory / name, error);
    if (!error) total += static_cast<int64_t>(bytes);
  }
  return total;
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  if (fs::equivalent(from, to, ignored)) return;
  for (const char* name : kFiles) {
    if (fs::exists(from / name)) write_file_atomically(to / name, read_file(from / name));
  }
}

}  // namespace snug::tokenizer
