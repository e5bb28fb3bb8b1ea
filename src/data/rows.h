// Rows of training data as text, from JSON, JSONL, CSV, TSV or Parquet. What a row is, its columns
// say: a question and its answer (Alpaca's instruction, input and output, or question and answer,
// and the like), a chat ({"messages": [{"role", "content"}, …]}, ShareGPT's "conversations" with
// from/value, a plain list of turns that alternate user and assistant, pairs of a question and an
// answer), a ready prompt with its completion, or a text alone. The input is foreign: whatever is
// wrong with it ends in one UserError that names file and row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace snug::data {

using tokenizer::Message;  // {role, content}: one turn of a chat

enum class RowKind {
  Question,    // instruction, input, output; of a chat the first ones
  Completion,  // instruction is a ready prompt, which output goes on from
  Text,        // output is all there is
};

// A chat row keeps its turns in `messages`; its first question and answer also stand in
// `instruction` and `output`, so that styles without turns can use it.
struct Row {
  std::string instruction, input, output;
  std::vector<Message> messages;
  RowKind kind = RowKind::Question;
  int64_t number = 0;  // in its data, from 1 on; 0: not counted
};

// Which columns hold what; sets that use other names say so here. An empty name: no such column.
struct Columns {
  std::string instruction = "instruction";
  std::string input = "input";
  std::string output = "output";
};

// All rows of one file, by its ending: .json (an array, or an object whose "data" is one), .jsonl,
// .csv and .tsv (with a line of column names), .parquet. Extra columns are ignored. Throws
// UserError, also when there is no row.
std::vector<Row> read_rows(const std::filesystem::path& path, const Columns& columns = {});

// Every question with its answer as a row of its own, without what was said before it.
std::vector<Row> split_conversations(const std::vector<Row>& rows);

}  // namespace snug::data
