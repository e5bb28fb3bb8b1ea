// Rows of instruction data as text, from JSON, JSONL or Parquet. Two shapes are taken: Alpaca's
// columns (instruction, optional input, output) and chats ({"messages": [{"role", "content"}, …]},
// ShareGPT's "conversations" with from/value, or a plain list of turns that alternate user and
// assistant). The input is foreign: whatever is wrong with it ends in one UserError that names file
// and row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace snug::data {

using tokenizer::Message;  // {role, content}: one turn of a chat

// A chat row keeps its turns in `messages`; its first question and answer also stand in
// `instruction` and `output`, so that styles without turns can use it.
struct Row {
  std::string instruction, input, output;
  std::vector<Message> messages;
};

// Which columns hold what; sets that use other names say so here. An empty name: no such column.
struct Columns {
  std::string instruction = "instruction";
  std::string input = "input";
  std::string output = "output";
};

// All rows of one file, by its ending: .json (an array, or an object whose "data" is one), .jsonl,
// .parquet. Extra columns are ignored. Throws UserError, also when there is no row.
std::vector<Row> read_rows(const std::filesystem::path& path, const Columns& columns = {});

// Every question with its answer as a row of its own, without what was said before it.
std::vector<Row> split_conversations(const std::vector<Row>& rows);

}  // namespace snug::data
