// Questions and answers to train on, about the packages in this machine's package index or about
// numbers. Choice, order and split depend only on a hash of seed and subject, so that the same
// subjects give the same files on every machine. No subject is both trained on and held out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace snug::demo {

struct Question {
  std::string question;
  std::string answer;
  int form = 0;  // questions of one form have answers of one kind
  std::string rejected = {};
};

// At most `count` questions about packages: half ask what a package is, half which package is
// described.
std::vector<Question> package_questions(const std::map<std::string, std::string>& packages,
                                        size_t count);

// Questions about the numbers from 1 to `count` (at most 3,999), a quarter each: in words, in
// digits, as a Roman numeral, and back.
std::vector<Question> number_questions(int count);
std::string in_words(int number);
std::string in_roman(int number);

// Gives each question a wrong answer: the next one's of its form. The first `num_held_out` take
// each other's.
void add_rejected(std::vector<Question>& questions, size_t num_held_out);

// Writes the first `num_held_out` questions to held_out.jsonl, the others to train.jsonl. Refuses
// to replace files that have other rows, but in a folder that is the program's `own`.
void write_questions(const std::vector<Question>& questions, size_t num_held_out,
                     const std::filesystem::path& folder, bool own = false);

// This machine's Debian or Ubuntu package index as text (apt-cache dumpavail); empty without one.
std::string package_index();

// Names and one-line descriptions of packages, without libraries and without parts of other
// packages, which repeat their descriptions.
std::map<std::string, std::string> described_packages(std::string_view index);

}  // namespace snug::demo
