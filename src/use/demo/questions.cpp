// SPDX-License-Identifier: Apache-2.0
#include "use/demo/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "files/hub/digest.h"

namespace snug::demo {
namespace {

constexpr int kOrderSeed = 42, kFormSeed = 43;

std::string digest(int seed, const std::string& subject) {
  hub::Digest sha256(hub::Digest::Kind::Sha256);
  sha256.update(fmt::format("{}/{}", seed, subject));
  return sha256.hex();
}

// Byte `index` of the hash, which chooses among few.
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
    return {questions[choice(key, 1) % questions.size()], text};
  }
  const std::string what = without_points(text);
  const std::array questions = {fmt::format("Which Debian package is described as: {}?", what),
                                fmt::format("Name the Debian package that provides: {}.", what)};
  return {questions[choice(key, 1) % questions.size()], name};
}

Question number_question(int number) {
  switch (choice(digest(kFormSeed, std::to_string(number)), 0) % 4) {
    case 0:
      return {fmt::format("Write {} in words.", number), in_words(number)};
    case 1:
      return {fmt::format("Write {} in digits.", in_words(number)), std::to_string(number)};
    case 2:
      return {fmt::format("Write {} as a Roman numeral.", number), in_roman(number)};
    default:
      return {fmt::format("Which number is the Roman numeral {}?", in_roman(number)),
              std::to_string(number)};
  }
}

void write_rows(const std::filesystem::path& path, std::span<const Question> questions) {
  std::string text;
  for (const Question& question : questions)
    text +=
        nlohmann::ordered_json{
            {"instruction", question.question}, {"input", ""}, {"output", question.answer}}
            .dump() +
        "\n";
  write_file_atomically(path, text);
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
                     const std::filesystem::path& folder) {
  const std::span<const Question> all(questions);
  write_rows(folder / "held_out.jsonl", all.first(num_held_out));
  write_rows(folder / "train.jsonl", all.subspan(num_held_out));
}

}  // namespace snug::demo
