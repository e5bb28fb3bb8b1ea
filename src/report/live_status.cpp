// SPDX-License-Identifier: Apache-2.0
#include "report/live_status.h"

#include <fmt/format.h>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"

namespace snug::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr size_t kMostLosses = 200;

// JSON has no NaN and infinities; they become null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// Another program's status is not guessed at: a field may have changed its meaning.
void check_schema(int schema, const fs::path& path) {
  if (schema == kSchema) return;
  throw UserError(
      "{}: the run uses {} version of snug (its live status has schema {}, this version reads {}); "
      "watch it with the version that runs it",
      path.string(), schema > kSchema ? "a newer" : "an older", schema, kSchema);
}

LiveState from_json(const Json& json) {
  LiveState s;
  json.at("state").get_to(s.state);
  json.at("outcome").get_to(s.outcome);
  json.at("reason").get_to(s.reason);
  json.at("pid").get_to(s.pid);
  json.at("rank").get_to(s.rank);
  json.at("world_size").get_to(s.world_size);
  json.at("time").get_to(s.time);
  json.at("started").get_to(s.started);
  json.at("command").get_to(s.command);
  json.at("model").get_to(s.model);
  json.at("device").get_to(s.device);
  json.at("host").get_to(s.host);
  json.at("step").get_to(s.step);
  json.at("total_steps").get_to(s.total_steps);
  s.loss = number_of(json.at("loss"));
  for (const Json& loss : json.at("losses")) s.losses.push_back(number_of(loss));
  json.at("tokens_per_second").get_to(s.tokens_per_second);
  json.at("share_of_peak").get_to(s.share_of_peak);
  json.at("step_seconds").get_to(s.step_seconds);
  if (const Json& left = json.at("seconds_left"); !left.is_null()) s.seconds_left = left;
  const Json& memory = json.at("memory");
  memory.at("allocated").get_to(s.allocated);
  memory.at("peak").get_to(s.peak);
  memory.at("reserved").get_to(s.reserved);
  memory.at("budget").get_to(s.budget);
  memory.at("predicted_peak").get_to(s.predicted_peak);
  memory.at("host").get_to(s.host_bytes);
  memory.at("by_category").get_to(s.by_category);
  memory.at("peak_by_category").get_to(s.peak_by_category);
  return s;
}

// Not synced to disk: it is for those who watch, not for after a power cut. The temporary file's
// name is always the same, so that runs that are killed leave one at most.
bool replace(const fs::path& file, const std::string& text) {
  fs::path temporary = file;
  temporary += ".new";
  std::error_code error;
  std::ofstream out(temporary, std::ios::trunc);
  out << text;
  out.close();
  if (out) fs::rename(temporary, file, error);
  if (out && !error) return true;
  fs::remove(temporary, error);
  return false;
}

}  // namespace

void ThinnedSeries::add(double value) {
  if (count_++ % stride_ != 0) return;
  if (values_.size() == kMostLosses) {
    for (size_t i = 0; 2 * i < values_.size(); ++i) values_[i] = values_[2 * i];
    values_.resize(values_.size() / 2);
    stride_ *= 2;
  }
  values_.push_back(value);
}

std::string live_json(const LiveState& s) {
  Json losses = Json::array();
  for (const double loss : s.losses) losses.push_back(number(loss));
  const Json json{{"schema", kSchema},
                  {"state", s.state},
                  {"outcome", s.outcome},
                  {"reason", s.reason},
                  {"pid", s.pid},
                  {"rank", s.rank},
                  {"world_size", s.world_size},
                  {"time", s.time},
                  {"started", s.started},
                  {"command", s.command},
                  {"model", s.model},
                  {"device", s.device},
                  {"host", s.host},
                  {"step", s.step},
                  {"total_steps", s.total_steps},
                  {"loss", number(s.loss)},
                  {"losses", std::move(losses)},
                  {"tokens_per_second", s.tokens_per_second},
                  {"share_of_peak", s.share_of_peak},
                  {"step_seconds", s.step_seconds},
                  {"seconds_left", s.seconds_left ? Json(*s.seconds_left) : Json()},
                  {"memory", Json{{"allocated", s.allocated},
                                  {"peak", s.peak},
                                  {"reserved", s.reserved},
                                  {"budget", s.budget},
                                  {"predicted_peak", s.predicted_peak},
                                  {"host", s.host_bytes},
                                  {"by_category", s.by_category},
                                  {"peak_by_category", s.peak_by_category}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

LiveState read_live_json(const fs::path& path) {
  const std::string text = read_file(path, size_t{1} << 24);
  try {
    const Json json = Json::parse(text);
    check_schema(json.at("schema"), path);
    return from_json(json);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw UserError("{}: not the live status of a run of this version of snug: {}", path.string(),
                    error.what());
  }
}

fs::path live_file(const fs::path& out_dir, int rank) {
  return out_dir / "live" / fmt::format("rank-{}.json", rank);
}

LiveWriter::LiveWriter(fs::path file, double per_second)
    : file_(std::move(file)), interval_(1 / per_second) {}

bool LiveWriter::is_due() const { return monotonic_seconds() - last_ >= interval_; }

void LiveWriter::write(const LiveState& state, bool force) noexcept {
  if (!force && !is_due()) return;
  last_ = monotonic_seconds();
  try {
    const std::string text = live_json(state);
    // The folder is made on the way, and again when somebody removes it; those above it once only:
    // later they are missing where their disk was unmounted.
    const fs::path folder = file_.parent_path();
    std::error_code error;
    if (!has_written_)
      fs::create_directories(folder, error);
    else if (!fs::exists(folder, error))
      fs::create_directory(folder, error);
    if (!error && replace(file_, text)) has_written_ = true;
  } catch (const std::exception&) {
  }
}

}  // namespace snug::report
