// SPDX-License-Identifier: Apache-2.0
#include "recipe/options/row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <type_traits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "recipe/numbers.h"
#include "recipe/options/names.h"

namespace snug::recipe {
namespace {

template <class T>
struct Unwrap {
  using type = T;
  static constexpr bool kOptional = false;
};
template <class T>
struct Unwrap<std::optional<T>> {
  using type = T;
  static constexpr bool kOptional = true;
};
// The plain type behind a slot: int64_t for both int64_t* and std::optional<int64_t>*.
template <class Pointer>
using Plain = typename Unwrap<std::remove_pointer_t<Pointer>>::type;
template <class Pointer>
constexpr bool kIsOptional = Unwrap<std::remove_pointer_t<Pointer>>::kOptional;

bool has_min(const Row& row) { return row.min > -1e300; }
bool has_max(const Row& row) { return row.max < 1e300; }

std::string bound_text(const Row& row, double bound) {
  if (row.kind == TextKind::Bytes) return format_bytes(static_cast<int64_t>(bound));
  if (bound == 0x1p64) return fmt::format("{}", std::numeric_limits<uint64_t>::max());
  return std::abs(bound) < 1e16 && bound == std::trunc(bound) ? fmt::format("{:.0f}", bound)
                                                              : fmt::format("{}", bound);
}

std::string range_words(const Row& row) {
  const std::string range = range_text(row);
  return range.empty() ? "" : " " + range;
}

std::string quoted(std::string_view text) {
  return text.size() > 80 ? fmt::format("\"{}…\"", text.substr(0, 80))
                          : fmt::format("\"{}\"", text);
}

template <class T>
std::string store_number(const Row& row, std::string_view text, std::optional<T> value, T& out) {
  const std::string_view wanted =
      std::is_floating_point_v<T> ? "a finite number" : "a whole number";
  if (!value) return fmt::format("{} is not {}{}", quoted(text), wanted, range_words(row));
  const auto real = static_cast<double>(*value);
  if (real < row.min || real > row.max)
    return fmt::format("{} is out of range; give {}{}", text.size() > 80 ? quoted(text) : text,
                       wanted, range_words(row));
  out = *value;
  return {};
}

// Capitals do not matter: DPO is the choice dpo.
std::string as_choice(const Row& row, std::string word) {
  if (row.open) return word;
  for (const std::string& choice : row.choices)
    if (lower(choice) == lower(word)) return choice;
  return word;
}

std::string store_choice(const Row& row, std::string_view text) {
  if (row.choices.empty() || row.open) return {};
  for (const auto* taken : {&row.choices, &row.quiet_choices})
    if (std::find(taken->begin(), taken->end(), text) != taken->end()) return {};
  std::error_code ignored;
  if (!row.for_a_path.empty() && std::filesystem::exists(text, ignored))
    return fmt::format("{} is a path; give it as {}", quoted(text), row.for_a_path);
  const std::string near = nearest_name(text, row.choices);
  return fmt::format("{} is not one of {}{}", quoted(text), fmt::join(row.choices, ", "),
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

// Longer ones are no names, nor paths that a system would take (PATH_MAX); a prompt may be a page.
size_t most_bytes(const Row& row) {
  return row.kind == TextKind::Verbatim || row.kind == TextKind::Tree ? 1 << 20 : 4096;
}

// Expands ~ in a path of a file, which no shell has expanded: ~/runs, disk:~/states.
std::string with_home(std::string word) {
  constexpr std::string_view kDisk = "disk:";
  const size_t at = word.starts_with(kDisk) ? kDisk.size() : 0;
  const char* home = std::getenv("HOME");
  if (word.compare(at, 2, "~/") == 0 && home != nullptr && *home != '\0') word.replace(at, 1, home);
  return word;
}

std::string store_word(const Row& row, std::string_view text, std::string& out) {
  if (text.size() > most_bytes(row))
    return fmt::format("{} has {} bytes; give {} at most", quoted(text), text.size(),
                       most_bytes(row));
  std::string word = as_choice(row, row.normalise ? row.normalise(text) : std::string(text));
  const bool is_verbatim = row.kind == TextKind::Verbatim || row.kind == TextKind::Tree;
  if (!is_verbatim) word = with_home(std::move(word));
  if (std::string fault = store_choice(row, word); !fault.empty()) return fault;
  if (row.kind == TextKind::Bytes) {
    try {
      const int64_t bytes = parse_bytes(word, row.key);
      const bool is_number = word.find_first_not_of("0123456789. ") == std::string::npos;
      if (has_min(row) && static_cast<double>(bytes) < row.min && is_number)
        return fmt::format("{} is {} byte{}; write the unit too, such as {}GiB", quoted(text),
                           bytes, bytes == 1 ? "" : "s", bytes);
      if ((has_min(row) && static_cast<double>(bytes) < row.min) ||
          (has_max(row) && static_cast<double>(bytes) > row.max))
        return fmt::format("{} is out of range; give a size{}", quoted(text), range_words(row));
    } catch (const UserError&) {
      return fmt::format("{} is not a size; write it as 2GiB, 512MiB or a number of bytes",
                         quoted(text));
    }
  }
  out = std::move(word);
  return {};
}

// One scalar into one plain type.
template <class T>
std::string store_scalar(const Row& row, std::string_view text, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::optional<bool> value = parse_bool(text);
    if (!value) return fmt::format("{} is neither true nor false", quoted(text));
    out = *value;
    return {};
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return store_number(row, text, parse_int(text), out);
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return store_number(row, text, parse_uint(text), out);
  } else if constexpr (std::is_same_v<T, double>) {
    return store_number(row, text, parse_float(text), out);
  } else {
    return store_word(row, text, out);
  }
}

std::string store_pair(const Row& row, const Value& value, const PairSlot& slot) {
  if (value.kind != Value::Kind::List || value.items.size() != 2)
    return fmt::format("must be a list of two numbers, as in [{}, {}]", float_text(*slot.first),
                       float_text(*slot.second));
  double first = 0, second = 0;
  if (std::string fault = store_scalar(row, value.items[0], first); !fault.empty()) return fault;
  if (std::string fault = store_scalar(row, value.items[1], second); !fault.empty()) return fault;
  *slot.first = first;
  *slot.second = second;
  return {};
}

std::string store_items(const Row& row, const Value& value, ListSlot slot) {
  const bool is_list = value.kind == Value::Kind::List;
  for (const std::string& item : is_list ? value.items : std::vector<std::string>{value.text}) {
    std::string word;
    if (std::string fault = store_word(row, item, word); !fault.empty()) return fault;
    slot->push_back(std::move(word));
  }
  return {};
}

std::string store_null(const Row& row, const Row& fallback) {
  if (row.automatic != nullptr) *row.automatic = *fallback.automatic;
  if (!row.null_means.empty())
    return store(row, {.kind = Value::Kind::Text, .text = std::string(row.null_means)}, fallback);
  std::visit(
      [&](auto slot) {
        using Pointer = decltype(slot);
        if constexpr (std::is_same_v<Pointer, PairSlot>) {
          const auto from = std::get<PairSlot>(fallback.slot);
          *slot.first = *from.first;
          *slot.second = *from.second;
        } else if constexpr (kIsOptional<Pointer>) {
          slot->reset();
        } else {
          *slot = *std::get<Pointer>(fallback.slot);
        }
      },
      row.slot);
  return {};
}

bool holds_word_none(const Row& row) {
  if (const auto* text = std::get_if<std::string*>(&row.slot)) return **text == "none";
  const auto* text = std::get_if<std::optional<std::string>*>(&row.slot);
  return text != nullptr && **text == "none";
}

bool none_is_a_choice(const Row& row) {
  return std::count(row.choices.begin(), row.choices.end(), "none") > 0;
}

// Letters that need no quotes in YAML wherever they stand.
bool is_plain_word(std::string_view text) {
  if (text.empty() || parse_float(text) || parse_bool(text) || is_null_word(text)) return false;
  if (!std::isalpha(static_cast<unsigned char>(text[0])) && text[0] != '/' && text[0] != '.')
    return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-./+").find(c) != std::string_view::npos;
  });
}

std::string yaml_string(std::string_view text) {
  if (is_plain_word(text)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

template <class T>
std::string scalar_text(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return yaml_string(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return float_text(value);
  } else {
    return fmt::format("{}", value);
  }
}

}  // namespace

std::string range_text(const Row& row) {
  const auto bound = [&row](double value) { return bound_text(row, value); };
  if (has_min(row) && has_max(row))
    return fmt::format("from {} to {}", bound(row.min), bound(row.max));
  if (has_min(row)) return fmt::format("from {}", bound(row.min));
  if (has_max(row)) return fmt::format("up to {}", bound(row.max));
  return "";
}

std::string store(const Row& row, const Value& value, const Row& fallback) {
  if (value.is_tree && row.kind != TextKind::Tree)
    return "the list contains a list or mapping; give plain values";
  const bool verbatim = row.kind == TextKind::Verbatim && value.kind == Value::Kind::Text;
  if (!verbatim && unsets(row, value, fallback)) return store_null(row, fallback);
  return std::visit(
      [&](auto slot) -> std::string {
        using Pointer = decltype(slot);
        if constexpr (std::is_same_v<Pointer, PairSlot>) {
          return store_pair(row, value, slot);
        } else if constexpr (std::is_same_v<Pointer, ListSlot>) {
          return store_items(row, value, slot);
        } else {
          const bool is_list = value.kind == Value::Kind::List;
          if (is_list && !row.joins_list) return "must be one value, not a list";
          const std::string text =
              is_list ? fmt::format("{}", fmt::join(value.items, ",")) : value.text;
          const bool is_auto = row.automatic != nullptr && text == "auto";
          if (row.automatic != nullptr) *row.automatic = is_auto;
          if (is_auto) return {};
          Plain<Pointer> plain{};
          if (std::string fault = store_scalar(row, text, plain); !fault.empty()) return fault;
          *slot = std::move(plain);
          return {};
        }
      },
      row.slot);
}

Value reworded(const Row& row, std::string_view key, const Value& value) {
  if (value.kind != Value::Kind::Text) return value;
  const std::optional<bool> flag = parse_bool(value.text);
  const std::string_view word = !flag ? std::string_view(value.text) : *flag ? "true" : "false";
  for (const Rewording& other : row.rewordings) {
    if (other.key != key || other.word != word) continue;
    if (other.value.empty()) return {};
    return {.kind = Value::Kind::Text, .text = std::string(other.value)};
  }
  return value;
}

bool unsets(const Row& row, const Value& value, const Row& fallback) {
  if (value.kind != Value::Kind::Text) return value.kind == Value::Kind::Null;
  if (value.quoted) return false;
  if (is_null_word(value.text)) return true;
  const bool may_be_empty = is_optional(row) || !row.null_means.empty() || !holds_value(fallback);
  return value.text == "none" && may_be_empty && row.kind != TextKind::Verbatim &&
         !none_is_a_choice(row);
}

std::string yaml_text(const Row& row) {
  if (!holds_value(row)) return "null";
  // A folder of that name, not the lack of one.
  if (holds_word_none(row) && !none_is_a_choice(row)) return "\"none\"";
  if (row.kind == TextKind::Tree) return plain_text(row);
  return std::visit(
      [](auto slot) -> std::string {
        using Pointer = decltype(slot);
        if constexpr (std::is_same_v<Pointer, PairSlot>) {
          return fmt::format("[{}, {}]", float_text(*slot.first), float_text(*slot.second));
        } else if constexpr (std::is_same_v<Pointer, ListSlot>) {
          std::vector<std::string> items;
          for (const std::string& item : *slot) items.push_back(yaml_string(item));
          return fmt::format("[{}]", fmt::join(items, ", "));
        } else if constexpr (kIsOptional<Pointer>) {
          return scalar_text(**slot);
        } else {
          return scalar_text(*slot);
        }
      },
      row.slot);
}

std::string plain_text(const Row& row) {
  if (!holds_value(row)) return "none";
  if (const auto* text = std::get_if<std::string*>(&row.slot)) return **text;
  if (const auto* text = std::get_if<std::optional<std::string>*>(&row.slot)) return ***text;
  return yaml_text(row);
}

bool holds_value(const Row& row) {
  return std::visit(
      [](auto slot) {
        using Pointer = decltype(slot);
        if constexpr (kIsOptional<Pointer>) {
          return slot->has_value();
        } else if constexpr (std::is_same_v<Pointer, std::string*> ||
                             std::is_same_v<Pointer, ListSlot>) {
          return !slot->empty();
        } else {
          return true;
        }
      },
      row.slot);
}

std::string_view value_name(const Row& row) {
  if (std::holds_alternative<PairSlot>(row.slot)) return "[FLOAT,FLOAT]";
  if (is_flag(row)) return row.automatic != nullptr ? "true|false|auto" : "true|false";
  if (std::holds_alternative<double*>(row.slot) ||
      std::holds_alternative<std::optional<double>*>(row.slot))
    return "FLOAT";
  const bool text = std::holds_alternative<std::string*>(row.slot) ||
                    std::holds_alternative<ListSlot>(row.slot) ||
                    std::holds_alternative<std::optional<std::string>*>(row.slot);
  if (!text) return "INT";
  switch (row.kind) {
    case TextKind::File:
      return "FILE";
    case TextKind::Directory:
      return "DIR";
    case TextKind::Bytes:
      return "SIZE";
    case TextKind::Verbatim:
      return "TEXT";
    case TextKind::Tree:
      return "LIST";
    case TextKind::Word:
      break;
  }
  return "NAME";
}

bool is_flag(const Row& row) {
  return std::holds_alternative<bool*>(row.slot) ||
         std::holds_alternative<std::optional<bool>*>(row.slot);
}

bool is_flag(const Row& row, std::string_view key) {
  return is_flag(row) ||
         std::any_of(row.rewordings.begin(), row.rewordings.end(), [&](const Rewording& other) {
           return other.key == key && other.word == "true";
         });
}

bool is_optional(const Row& row) {
  return std::visit(
      [](auto slot) {
        if constexpr (std::is_same_v<decltype(slot), PairSlot>)
          return false;
        else
          return kIsOptional<decltype(slot)>;
      },
      row.slot);
}

std::string option_name(const Row& row) { return row.shown.empty() ? row.key : row.shown; }

const Row* find_row(const std::vector<Row>& rows, std::string_view key) {
  for (const Row& row : rows) {
    if (row.key == key) return &row;
    for (const std::string& alias : row.aliases)
      if (alias == key) return &row;
  }
  return nullptr;
}

}  // namespace snug::recipe
