// Rows of training data as text, from JSON, JSONL, CSV, TSV or Parquet. The columns decide what a
// row is: a question and its answer (Alpaca's instruction, input and output, or question and
// answer, and the like), a chat ({"messages": [{"role", "content"}, …]}, ShareGPT's "conversations"
// with from/value, a plain list of turns that alternate user and assistant, pairs of a question and
// an answer), a ready prompt with its completion, or a plain text. Chats may have pictures, as
// parts of a turn or listed beside it or all of them; so may questions for a model that looks at
// pictures. Any fault in the input throws a UserError with file
// and row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace snug::data {

using tokenizer::Message;  // one turn of a chat

enum class RowKind {
  Question,    // instruction, input, output; for a chat its first exchange
  Completion,  // instruction is a ready prompt, which output continues
  Text,        // only output
};

// A chat row has its turns in `messages`, and its first question and answer also in `instruction`
// and `output`, for styles without turns.
struct Row {
  std::string instruction, input, output;
  std::vector<Message> messages;
  std::vector<std::string> pictures;  // files, in the order of their kPictureMark in the text
  std::string tools;                  // of a chat: what the model may call, a JSON array; or empty
  bool needs_template = false;        // an answer calls tools, which only a chat template writes
  RowKind kind = RowKind::Question;
  int64_t number = 0;            // in its data set, from 1; 0: not numbered
  std::vector<Row> others = {};  // of a preference: the rejected answer's
  bool desirable = true;         // of a rated answer
  std::string label = {};        // of a text that is sorted: the name of its label
  double value = 0;              // the label's number, or a pair's margin
};

// Column names; data sets with other names set them here. An empty name: no such column.
struct Columns {
  std::string instruction = "instruction";
  std::string input = "input";
  std::string output = "output";
  bool pictures = false;     // the model looks at pictures: those beside a question are its own
  bool preferences = false;  // rows say which of two answers is better
  bool margins = false;      // and by how much, where they have a "margin"
  bool ratings = false;      // rows say of an answer whether it is good
  bool classes = false;      // rows are texts, each with its label
  // Those that labels may be, by number; null: any.
  const std::vector<std::string>* labels = nullptr;
  // Where given, gets the names of columns that nothing reads.
  std::set<std::string>* unread = nullptr;
};

// All rows of one file, by its ending: .json (an array, or an object whose "data" or "train" is
// one), .jsonl, .csv and .tsv (with a line of column names), .parquet; all but the last also as .gz
// or .zst. A row that is an array is a chat. Rows made for another objective than to learn answers
// (preferences, ratings, classes) are a UserError; other columns are not read. Names of
// pictures are relative to the file's folder. Throws UserError, also when there is no row.
std::vector<Row> read_rows(const std::filesystem::path& path, const Columns& columns = {});

// ".jsonl" for rows.jsonl.gz.
std::string ending_of(const std::filesystem::path& path);
// A file's text, also a compressed one's, without a byte order mark. Throws UserError if it is not
// UTF-8.
std::string read_text(const std::filesystem::path& path);

// Makes each question with its answer a separate row, without the earlier turns.
std::vector<Row> split_conversations(const std::vector<Row>& rows);

// Makes each answer of a chat a separate row, behind all turns before it, which are its prompt:
// what the model sees when it has to give that answer. Answers without loss get none.
std::vector<Row> split_turns(const std::vector<Row>& rows);

// Makes each chosen answer of preferences a desirable row of its own, then each rejected one an
// undesirable row. Rows of one answer stay where they are, before the rejected ones.
std::vector<Row> unpaired(std::vector<Row> rows);

}  // namespace snug::data
