// Questions and answers to train on. Which ones, in what order and which are held out follows from
// a hash of the seed and the subject alone, so that the same subjects give the same files on every
// machine. A subject (a package, a number) is trained on or held out, never both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace snug::demo {

struct Question {
  std::string question;
  std::string answer;
};

// Of packages with their descriptions, in equal parts what one is and which one it is; at most
// `count`.
std::vector<Question> package_questions(const std::map<std::string, std::string>& packages,
                                        size_t count);

// Of the numbers from 1 to `count`, at most 3,999, in equal parts: in words, in digits, as a Roman
// numeral and back.
std::vector<Question> number_questions(int count);
std::string in_words(int number);
std::string in_roman(int number);

// The first `num_held_out` to held_out.jsonl, the others to train.jsonl.
void write_questions(const std::vector<Question>& questions, size_t num_held_out,
                     const std::filesystem::path& folder);

}  // namespace snug::demo
