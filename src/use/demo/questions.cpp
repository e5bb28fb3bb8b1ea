// SPDX-License-Identifier: Apache-2.0
#include "use/demo/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "files/hub/digest.h"

namespace snug::demo {
namespace {

constexpr int kOrderSeed = 42, kFormSeed = 43;

std::string digest(int seed, const std::string& subject) {
  hub::Digest sha256(hub::Digest::Kind::Sha256);
  sha256.update(fmt::format("{}/{}", seed, subject));
  return sha256.hex();
}

// Byte `index` of the hash, to choose one of a few.
size_t choice(const std::string& hex, size_t index) {
  return std::stoul(hex.substr(2 * index, 2), nullptr, 16);
}

std::vector<std::string> shuffled(std::vector<std::string> subjects, size_t count) {
  std::vector<std::pair<std::string, std::string>> keyed;
  for (std::string& subject : subjects)
    keyed.emplace_back(digest(kOrderSeed, subject), std::move(subject));
  std::sort(keyed.begin(), keyed.end());
  keyed.resize(std::min(count, keyed.size()));
  subjects.clear();
  for (auto& [key, subject] : keyed) subjects.push_back(std::move(subject));
  return subjects;
}

std::string without_points(std::string text) {
  while (text.ends_with('.')) text.pop_back();
  return text;
}

Question package_question(const std::string& name, const std::string& text) {
  const std::string key = digest(kFormSeed, name);
  if (choice(key, 0) % 2 == 0) {
    const std::array questions = {fmt::format("What is the Debian package {}?", name),
                                  fmt::format("What does the Debian package {} provide?", name),
                                  fmt::format("Describe the Debian package {} in one line.", name)};
    return {questions[choice(key, 1) % questions.size()], text, 0};
  }
  const std::string what = without_points(text);
  const std::array questions = {fmt::format("Which Debian package is described as: {}?", what),
                                fmt::format("Name the Debian package that provides: {}.", what)};
  return {questions[choice(key, 1) % questions.size()], name, 1};
}

Question number_question(int number) {
  switch (choice(digest(kFormSeed, std::to_string(number)), 0) % 4) {
    case 0:
      return {fmt::format("Write {} in words.", number), in_words(number), 0};
    case 1:
      return {fmt::format("Write {} in digits.", in_words(number)), std::to_string(number), 1};
    case 2:
      return {fmt::format("Write {} as a Roman numeral.", number), in_roman(number), 2};
    default:
      return {fmt::format("Which number is the Roman numeral {}?", in_roman(number)),
              std::to_string(number), 3};
  }
}

std::string text_of(std::span<const Question> questions) {
  std::string text;
  for (const Question& question : questions) {
    nlohmann::ordered_json row{{"instruction", question.question}, {"input", ""}};
    row[question.rejected.empty() ? "output" : "chosen"] = question.answer;
    if (!question.rejected.empty()) row["rejected"] = question.rejected;
    text += row.dump() + "\n";
  }
  return text;
}

// Rows of the user's own may have the same name.
void refuse_other_content(const std::filesystem::path& path, const std::string& content) {
  if (std::filesystem::exists(path) && read_file(path) != content)
    throw UserError(
        "{} exists already with other rows; give another --data_dir, or remove it first",
        path.string());
}

}  // namespace

std::vector<Question> package_questions(const std::map<std::string, std::string>& packages,
                                        size_t count) {
  std::vector<std::string> names;
  for (const auto& [name, text] : packages) names.push_back(name);
  std::vector<Question> questions;
  for (const std::string& name : shuffled(std::move(names), count))
    questions.push_back(package_question(name, packages.at(name)));
  return questions;
}

std::vector<Question> number_questions(int count) {
  std::vector<std::string> numbers;
  for (int number = 1; number <= count; ++number) numbers.push_back(std::to_string(number));
  std::vector<Question> questions;
  for (const std::string& number : shuffled(std::move(numbers), static_cast<size_t>(count)))
    questions.push_back(number_question(std::stoi(number)));
  return questions;
}

void add_rejected(std::vector<Question>& questions, size_t num_held_out) {
  const std::span<Question> all(questions);
  for (const std::span<Question> part : {all.first(num_held_out), all.subspan(num_held_out)})
    for (size_t i = 0; i < part.size(); ++i)
      // Of another form where there is no other of its own.
      for (const bool same_form : {true, false})
        for (size_t k = 1; k < part.size() && part[i].rejected.empty(); ++k) {
          const Question& next = part[(i + k) % part.size()];
          if ((next.form == part[i].form) == same_form && next.answer != part[i].answer)
            part[i].rejected = next.answer;
        }
}

std::string in_words(int number) {
  static constexpr std::array kSmall = {"zero",    "one",     "two",       "three",    "four",
                                        "five",    "six",     "seven",     "eight",    "nine",
                                        "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                        "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static constexpr std::array kTens = {"",      "",      "twenty",  "thirty", "forty",
                                       "fifty", "sixty", "seventy", "eighty", "ninety"};
  SNUG_CHECK(number >= 0 && number < 10000, "{} in words", number);
  const auto small = [&](int n) { return std::string(kSmall[static_cast<size_t>(n)]); };
  const auto and_rest = [](int rest, const char* sign) {
    return rest == 0 ? std::string() : sign + in_words(rest);
  };
  if (number >= 1000) return small(number / 1000) + " thousand" + and_rest(number % 1000, " ");
  if (number >= 100) return small(number / 100) + " hundred" + and_rest(number % 100, " ");
  if (number < 20) return small(number);
  return kTens[static_cast<size_t>(number / 10)] + and_rest(number % 10, "-");
}

std::string in_roman(int number) {
  static constexpr std::array<std::pair<int, const char*>, 13> kSigns = {{{1000, "M"},
                                                                          {900, "CM"},
                                                                          {500, "D"},
                                                                          {400, "CD"},
                                                                          {100, "C"},
                                                                          {90, "XC"},
                                                                          {50, "L"},
                                                                          {40, "XL"},
                                                                          {10, "X"},
                                                                          {9, "IX"},
                                                                          {5, "V"},
                                                                          {4, "IV"},
                                                                          {1, "I"}}};
  SNUG_CHECK(number > 0 && number < 4000, "{} as a Roman numeral", number);
  std::string text;
  for (const auto& [value, sign] : kSigns)
    for (; number >= value; number -= value) text += sign;
  return text;
}

void write_questions(const std::vector<Question>& questions, size_t num_held_out,
                     const std::filesystem::path& folder, bool own) {
  const std::span<const Question> all(questions);
  const std::array<std::pair<std::filesystem::path, std::string>, 2> files = {
      {{folder / "held_out.jsonl", text_of(all.first(num_held_out))},
       {folder / "train.jsonl", text_of(all.subspan(num_held_out))}}};
  for (const auto& [path, content] : files)
    if (!own) refuse_other_content(path, content);
  for (const auto& [path, content] : files) write_file_atomically(path, content);
}

namespace {

constexpr size_t kShortest = 20, kLongest = 80;  // characters of a description

bool is_part_of_another(std::string_view name) {
  static constexpr std::array<std::string_view, 14> kEndings = {
      "-dev",  "-dbg",      "-dbgsym", "-doc",   "-data",    "-common", "-bin",
      "-perl", "-examples", "-test",   "-tests", "-headers", "-udeb",   "-l10n"};
  return name.starts_with("lib") || name.find("-l10n") != name.npos ||
         std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

bool says_little(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* word : {"transitional", "dummy", "metapackage", "debug symbols"})
    if (text.find(word) != text.npos) return true;
  if (text.find('(') == text.npos) return false;
  return text.ends_with("files)") || text.ends_with("module)") || text.ends_with("headers)");
}

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// The value of the first field with this name in a stanza; empty without one.
std::string_view field(std::string_view stanza, std::string_view name) {
  for (size_t at = 0; at < stanza.size();) {
    const size_t end = std::min(stanza.find('\n', at), stanza.size());
    const std::string_view line = stanza.substr(at, end - at);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(": "))
      return line.substr(name.size() + 2);
    at = end + 1;
  }
  return {};
}

std::string trimmed_end(std::string_view text) {
  return std::string(text.substr(0, text.find_last_not_of(" \t\r") + 1));
}

}  // namespace

std::string package_index() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
      ::popen("apt-cache dumpavail 2>/dev/null", "r"), ::pclose);
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (pipe) {
    const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    if (got == 0) break;
    text.append(buffer.data(), got);
  }
  return text;
}

std::map<std::string, std::string> described_packages(std::string_view index) {
  std::map<std::string, std::string> found;
  for (size_t at = 0; at < index.size();) {
    const size_t end = std::min(index.find("\n\n", at), index.size());
    const std::string_view stanza = index.substr(at, end - at);
    at = end + 2;
    const std::string name = trimmed_end(field(stanza, "Package"));
    std::string text = trimmed_end(field(stanza, "Description"));
    if (text.empty()) text = trimmed_end(field(stanza, "Description-en"));
    const size_t length = num_characters(text);
    const bool sound = !name.empty() && find_invalid_utf8(text) == text.npos;
    if (sound && length >= kShortest && length <= kLongest && !is_part_of_another(name) &&
        !says_little(text))
      found[name] = text;
  }
  return found;
}

}  // namespace snug::demo
