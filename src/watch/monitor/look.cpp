// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/look.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace snug::monitor {
namespace {

using Json = nlohmann::ordered_json;

const RankLook* first_gone(const Look& look) {
  const auto found = std::ranges::find_if(look.ranks, &RankLook::is_gone);
  return found == look.ranks.end() ? nullptr : &*found;
}

bool has_outcome(const Look& look, const char* outcome) {
  return std::ranges::any_of(look.ranks, [&](const RankLook& rank) {
    return rank.has_ended() && rank.live.outcome == outcome;
  });
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json rank_json(const RankLook& rank) {
  Json json = Json::parse(report::live_json(rank.live));
  json["here"] = rank.is_here;
  json["gone"] = rank.is_gone;
  json["silent_seconds"] = rank.silent_seconds;
  json["processor_percent"] = or_null(rank.processor_percent);
  json["resident_bytes"] = rank.use ? Json(rank.use->resident) : Json();
  json["threads"] = rank.use ? Json(rank.use->threads) : Json();
  return json;
}

Json gpu_json(const machine::Gpu& gpu) {
  Json processes = Json::object();
  for (const auto& [pid, bytes] : gpu.process_bytes) processes[std::to_string(pid)] = bytes;
  return {{"index", gpu.index},
          {"name", gpu.name},
          {"memory_total", gpu.memory_total},
          {"memory_used", gpu.memory_used},
          {"busy_percent", or_null(gpu.busy_percent)},
          {"memory_busy_percent", or_null(gpu.memory_busy_percent)},
          {"temperature", or_null(gpu.temperature)},
          {"power_watts", or_null(gpu.power_watts)},
          {"power_limit_watts", or_null(gpu.power_limit_watts)},
          {"process_bytes", processes}};
}

Json suite_json(const SuiteLook& suite) {
  Json newest = Json::array();
  for (const auto& [id, outcome] : suite.newest)
    newest.push_back({{"id", id}, {"outcome", outcome}});
  return {{"name", suite.name},         {"mode", suite.mode},       {"done", suite.done},
          {"total", suite.total},       {"current", suite.current}, {"over", suite.is_over},
          {"newest", std::move(newest)}};
}

std::string suite_sentence(const SuiteLook& suite) {
  if (suite.done >= suite.total)
    return fmt::format("the suite {} ended: {} rows are done", printable(suite.name), suite.done);
  return fmt::format("the suite {} stopped{}: {} of {} rows are done; the same command continues",
                     printable(suite.name),
                     suite.current.empty() ? "" : " in " + printable(suite.current), suite.done,
                     suite.total);
}

}  // namespace

bool is_over(const Look& look) {
  if (look.suite) return look.suite->is_over;
  if (look.ranks.empty()) return false;
  // A silent process on another machine counts as over when rank 0 is.
  return std::ranges::all_of(look.ranks, [&](const RankLook& rank) {
    return rank.is_over() || (!rank.is_here && look.ranks.front().is_over());
  });
}

std::string state_word(const Look& look) {
  if (look.ranks.empty()) return "waiting";
  // A rank that ran out of memory or is gone takes down the others, which then report an error.
  if (has_outcome(look, "oom")) return "oom";
  if (first_gone(look) != nullptr) return "gone";
  if (has_outcome(look, "error")) return "error";
  const report::LiveState& first = look.ranks.front().live;
  return printable(first.state == "ended" ? first.outcome : first.state);
}

std::string ending_sentence(const Look& look) {
  if (look.suite) return suite_sentence(*look.suite);
  const std::string word = state_word(look);
  if (const RankLook* gone = word == "gone" ? first_gone(look) : nullptr)
    return fmt::format("rank {} (process {}) stopped unexpectedly while {}: killed, or crashed",
                       gone->live.rank, gone->live.pid, printable(gone->live.state));
  const auto ended = std::ranges::find_if(
      look.ranks, [&](const RankLook& rank) { return rank.live.outcome == word; });
  const report::LiveState live = ended == look.ranks.end() ? report::LiveState{} : ended->live;
  std::string text = word == "ok"    ? fmt::format("the run ended: ok after {} steps", live.step)
                     : word == "oom" ? std::string("the run ended: out of memory")
                     : word == "interrupted" ? std::string("the run was interrupted")
                                             : std::string("the run ended: error");
  if (!live.reason.empty()) text += fmt::format(": {}", printable(live.reason));
  return text;
}

std::string look_json(const Look& look) {
  Json ranks = Json::array(), gpus = Json::array();
  for (const RankLook& rank : look.ranks) ranks.push_back(rank_json(rank));
  for (const machine::Gpu& gpu : look.gpus.gpus) gpus.push_back(gpu_json(gpu));
  const Json json{{"time", look.time},
                  {"folder", look.run_folder.string()},
                  {"state", state_word(look)},
                  {"over", is_over(look)},
                  {"suite", look.suite ? suite_json(*look.suite) : Json()},
                  {"ranks", std::move(ranks)},
                  {"gpus", std::move(gpus)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace snug::monitor
