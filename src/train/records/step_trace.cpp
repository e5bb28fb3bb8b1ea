// SPDX-License-Identifier: Apache-2.0
#include "train/records/step_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"

namespace snug::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTracks[] = {"computation", "copies", "disk", "collectives"};
// Lanes of one track that a viewer shows below each other.
constexpr int kLanes = 100;

double microseconds(double seconds) { return seconds * 1e6; }

// A viewer nests the spans of a lane. Spans that overlap otherwise, such as collectives that run at
// the same time, get lanes of their own. `ends` has for each lane the ends of the spans around.
int lane_of(const trace::Span& span, std::vector<std::vector<double>>& ends) {
  for (size_t lane = 0;; ++lane) {
    if (lane == ends.size()) ends.emplace_back();
    std::vector<double>& open = ends[lane];
    while (!open.empty() && open.back() <= span.begin) open.pop_back();
    if (!open.empty() && open.back() < span.end) continue;
    open.push_back(span.end);
    return static_cast<int>(lane);
  }
}

Json name_of_thread(int rank, int thread, const std::string& name) {
  return {{"ph", "M"},
          {"pid", rank},
          {"tid", thread},
          {"name", "thread_name"},
          {"args", {{"name", name}}}};
}

void append_spans(std::vector<trace::Span> spans, int rank, Json& events) {
  // Outer spans first, so that lane_of() meets them before those inside.
  std::ranges::sort(spans, [](const trace::Span& a, const trace::Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  for (size_t track = 0; track < std::size(kTracks); ++track) {
    std::vector<std::vector<double>> ends;
    const int first = static_cast<int>(track) * kLanes;
    for (const trace::Span& span : spans) {
      if (static_cast<size_t>(span.track) != track) continue;
      const int lane = lane_of(span, ends);
      events.push_back({{"ph", "X"},
                        {"pid", rank},
                        {"tid", first + lane},
                        {"name", span.unit.empty() ? span.what : span.what + " " + span.unit},
                        {"cat", kTracks[track]},
                        {"ts", microseconds(span.begin)},
                        {"dur", microseconds(span.end - span.begin)},
                        {"args", {{"phase", span.what}, {"unit", span.unit}}}});
    }
    for (size_t lane = 0; lane < ends.size(); ++lane)
      events.push_back(name_of_thread(rank, first + static_cast<int>(lane), kTracks[track]));
  }
}

}  // namespace

StepTrace::StepTrace(memory::Ledger& device, memory::Ledger& host)
    : watched_{Watched{device, "device memory", {}}, Watched{host, "host memory", {}}} {
  for (Watched& watched : watched_) watch(watched);
  trace::start();
}

StepTrace::~StepTrace() { stop(); }

void StepTrace::watch(Watched& watched) {
  watched.course.push_back({monotonic_seconds(), watched.ledger.by_category()});
  watched.ledger.observe([&watched](const memory::Change& change) {
    watched.course.push_back({monotonic_seconds(), *change.live});
  });
}

std::vector<trace::Span> StepTrace::stop() {
  for (const Watched& watched : watched_) watched.ledger.observe({});
  return trace::stop();
}

void StepTrace::write(const std::filesystem::path& file, int rank) {
  Json events = Json::array();
  append_spans(stop(), rank, events);
  for (const Watched& watched : watched_)
    for (const Bytes& moment : watched.course) {
      Json bytes;
      for (size_t i = 0; i < memory::kNumCategories; ++i)
        bytes[memory::name(static_cast<memory::Category>(i))] = moment.live[i];
      events.push_back({{"ph", "C"},
                        {"pid", rank},
                        {"name", watched.name},
                        {"ts", microseconds(moment.at)},
                        {"args", std::move(bytes)}});
    }
  const Json trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  write_file_atomically(file, trace.dump());
}

}  // namespace snug::train
