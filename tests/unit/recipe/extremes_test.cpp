// Numbers at their limits: every option that takes one says from where to where, and holds to it.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <random>

#include "recipe/check.h"
#include "recipe/options/command_table.h"
#include "recipe/options/help.h"
#include "recipe/parse.h"
#include "support.h"

namespace snug::recipe {
namespace {

template <class T>
constexpr bool is_number() {
  return std::is_same_v<T, int64_t*> || std::is_same_v<T, uint64_t*> ||
         std::is_same_v<T, double*> || std::is_same_v<T, std::optional<int64_t>*> ||
         std::is_same_v<T, std::optional<double>*> || std::is_same_v<T, PairSlot>;
}
bool takes_number(const Row& row) {
  return std::visit([](auto slot) { return is_number<decltype(slot)>(); }, row.slot);
}
bool has_bounds(const Row& row) { return std::abs(row.min) < 1e300 && std::abs(row.max) < 1e300; }

// What the row holds, as a number; empty where it holds none.
std::optional<double> held(const Row& row) {
  return std::visit(
      [](auto slot) -> std::optional<double> {
        using Slot = decltype(slot);
        if constexpr (std::is_same_v<Slot, PairSlot>)
          return *slot.first;
        else if constexpr (!is_number<Slot>())
          return std::nullopt;
        else if constexpr (std::is_same_v<Slot, std::optional<int64_t>*> ||
                           std::is_same_v<Slot, std::optional<double>*>)
          return *slot ? std::optional<double>(static_cast<double>(**slot)) : std::nullopt;
        else
          return static_cast<double>(*slot);
      },
      row.slot);
}

std::vector<std::string> extremes(const Row& row, std::mt19937& random) {
  std::vector<std::string> texts = {"-1",
                                    "0",
                                    "1",
                                    "2147483647",
                                    "2147483648",
                                    "-2147483649",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "9223372036854775808",
                                    "18446744073709551616",
                                    "1e18",
                                    "1e308",
                                    "1e309",
                                    "-1e308",
                                    "4.9e-324",
                                    "nan",
                                    "inf",
                                    "-inf",
                                    "1e",
                                    std::string(1 << 20, '9'),
                                    std::string(1 << 20, 'a'),
                                    "0." + std::string(1 << 16, '0') + "1"};
  for (const double bound : {row.min, row.max})
    for (const double step : {-1.0, 0.0, 1.0}) texts.push_back(fmt::format("{:.0f}", bound + step));
  for (int i = 0; i < 20; ++i)
    texts.push_back(fmt::format("{}", static_cast<int64_t>((uint64_t{random()} << 32) + random())));
  return texts;
}

TEST(Extremes, EveryNumberHasBoundsWhichHelpShows) {
  for (const CommandInfo& info : command_table()) {
    ParsedCommand parsed;
    parsed.command = info.command;
    const std::string help = help_text(info.names[0], 4000, false, HelpOf::All);
    for (const Row& row : rows_of(parsed)) {
      if (takes_number(row) || row.kind == TextKind::Bytes) {
        EXPECT_TRUE(has_bounds(row)) << info.names[0] << " --" << row.key;
      }
      if (has_bounds(row)) {
        EXPECT_CONTAINS(help, range_text(row));
      }
    }
  }
}

TEST(Extremes, NothingBeyondTheBoundsIsTaken) {
  std::mt19937 random(7);
  for (const CommandInfo& info : command_table()) {
    ParsedCommand parsed, fresh;
    parsed.command = fresh.command = info.command;
    const std::vector<Row> rows = rows_of(parsed), defaults = rows_of(fresh);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!takes_number(rows[i])) continue;
      for (const std::string& text : extremes(rows[i], random)) {
        SCOPED_TRACE(fmt::format("{} --{} {}", info.names[0], rows[i].key, text.substr(0, 40)));
        Value value{.kind = Value::Kind::Text, .text = text};
        if (std::holds_alternative<PairSlot>(rows[i].slot))
          value = {.kind = Value::Kind::List, .items = {text, text}};
        const std::string fault = store(rows[i], value, defaults[i]);
        EXPECT_LT(fault.size(), 400U);
        if (!fault.empty()) {
          EXPECT_CONTAINS(fault, range_text(rows[i]));
        } else if (const std::optional<double> number = held(rows[i])) {
          EXPECT_GE(*number, rows[i].min);
          EXPECT_LE(*number, rows[i].max);
        }
      }
    }
  }
}

TEST(Extremes, AFaultNamesTheOptionAndItsBound) {
  const auto fault_of = [](const std::vector<std::string>& words) -> std::string {
    try {
      parse_command_line(words);
      return "taken";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  EXPECT_CONTAINS(fault_of({"plan", "m", "--lora_r", "9223372036854775807"}), "lora_r");
  EXPECT_CONTAINS(fault_of({"plan", "m", "--lora_r", "9223372036854775807"}), "from 1 to 65536");
  EXPECT_CONTAINS(fault_of({"finetune", "m", "--train.global_batch_size", "1000000000"}),
                  "from 1 to 1048576");
  EXPECT_CONTAINS(fault_of({"generate", "m", "--max_new_tokens", "1e12"}), "max_new_tokens");
  EXPECT_CONTAINS(fault_of({"plan", "m", "--memory_budget", "9000000000000000000"}),
                  "memory_budget");
}

// Each number is allowed, and their product is not.
TEST(Extremes, ProductsOfNumbersAreBoundedToo) {
  const ParsedCommand parsed = parse(
      "finetune_full m --data JSON --data.json_path rows.jsonl --train.micro_batch_size 65536 "
      "--train.accumulate_grad_batches 1048576 --devices 65536");
  std::string fault;
  try {
    check_recipe(parsed.command, parsed.recipe, "");
  } catch (const UserError& error) {
    fault = error.what();
  }
  EXPECT_CONTAINS(fault, "a step has 4503599627370496 samples; 1048576 are the most");
}

}  // namespace
}  // namespace snug::recipe
