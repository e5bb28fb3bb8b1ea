// SPDX-License-Identifier: Apache-2.0
#include "support/lab_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/bytes.h"

namespace snug::test {

using lab::Expected;
using lab::Figures;
using lab::Group;
using lab::LabRun;
using lab::Moment;
using lab::Outcome;
using lab::Row;
using lab::RowResult;

namespace {

constexpr int64_t kLimit = 79 * kGiB;
constexpr int kBlocks = 150;

int64_t gib(double value) { return static_cast<int64_t>(value * static_cast<double>(kGiB)); }

Moment moment(const std::string& unit, const std::string& phase, lab::Bytes bytes) {
  Moment out{unit, phase, 0, std::move(bytes)};
  for (const auto& [category, size] : out.by_category) out.allocated += size;
  return out;
}

// Activations grow block by block and shrink again, gradients the other way round.
void add_timeline(Figures& figures) {
  const lab::Bytes peak = figures.by_category;
  const auto part = [&](const char* category, int block) {
    return peak.at(category) / kBlocks * block;
  };
  const lab::Bytes still{{"parameters", peak.at("parameters")},
                         {"optimizer", peak.at("optimizer")}};
  figures.timeline.push_back(moment("outside any unit", "setup", still));
  for (int pass = 0; pass < 2; ++pass)
    for (int i = 1; i <= kBlocks; ++i) {
      const int block = pass == 0 ? i : kBlocks + 1 - i;
      lab::Bytes now = still;
      now["activations"] = part("activations", block);
      now["workspace"] = pass == 0 ? 0 : peak.at("workspace") / 2;
      if (pass == 1) now["gradients"] = part("gradients", i);
      figures.timeline.push_back(
          moment(fmt::format("block {}", block), pass == 0 ? "forward" : "backward", now));
    }
  figures.timeline.push_back(moment("head", "backward", peak));
  lab::Bytes last = still;
  last["gradients"] = peak.at("gradients");
  figures.timeline.push_back(moment("outside any unit", "step", last));
}

void plan_row(RowResult& result, const Figures& figures) {
  result.predicted = figures;
  result.predicted->fits = figures.peak_reserved <= kLimit;
  result.outcome = result.predicted->fits ? Outcome::Ok : Outcome::OutOfMemory;
  result.limit_bytes = kLimit;
  result.device = "a100-80";
  result.parameters = 1100048384;
  result.trained = 1100048384;
  result.plan_command = "snug plan --config recipes/tiny-llama/full.yaml --device a100-80";
  result.command = "snug finetune_full --config recipes/tiny-llama/full.yaml --out_dir 'out/a b'";
}

// The other program takes half as much again for activations.
void count_row(RowResult& result) {
  Figures like = *result.predicted;
  const int64_t more = like.by_category["activations"] / 2;
  like.by_category["activations"] += more;
  like.peak_allocated += more;
  like.peak_reserved += more;
  like.after_forward += more;
  like.step_seconds = 0;
  like.timeline.clear();
  like.fits = like.peak_reserved <= kLimit;
  result.like = like;
  result.like_program = "litgpt";
}

LabRun empty_run(lab::Mode mode) {
  LabRun run;
  run.mode = mode;
  run.record.suite = "sample";
  run.record.title = "TinyLlama on one A100 80 GB";
  run.record.about =
      "The same training with one technique changed from row to row, and what it does to memory "
      "and "
      "time.";
  run.record.source = "a tutorial";
  run.record.mode = lab::name(mode);
  run.record.command = "snug lab run sample --plan";
  run.record.started = "2026-11-22T08:00:00Z";
  run.record.version = "0.1.0";
  run.record.device = run.suite.device = "a100-80";
  run.record.hardware = "a processor, 2 cores, 24.0 GiB, no GPU";
  run.record.versions = {{"libtorch", "2.11.0"}, {"Arrow", "26.0.1"}};
  run.record.seconds = 83;
  run.suite.name = "sample";
  run.suite.scaled_about = "Models have two blocks.";
  return run;
}

void add_sweep(LabRun& run) {
  run.suite.groups.push_back({Group::Kind::Sweep, "wide", "Batches that grow", "batch_size"});
  for (const int value : {1, 2, 4, 8, 16}) {
    RowResult& result = add_row(run, fmt::format("wide-b{}", value));
    Row& row = run.rows.back();
    row.title = fmt::format("Batch {}", value);
    row.group = "wide";
    row.value = value;
    row.model = "wide";
    row.options = {{"train.micro_batch_size", std::to_string(value)}};
    row.expected = value == 16 ? Expected::OutOfMemory : Expected::Ok;
    Figures figures =
        sample_figures(8, 8, 16, 4.0 * value, 0.2 + 0.05 * value + 0.004 * value * value);
    figures.tokens_per_second = 1024.0 * value / figures.step_seconds;
    figures.model_flops_per_second = 6e12 * value / figures.step_seconds;
    figures.device_use = 1 - 0.4 / value;
    plan_row(result, figures);
    if (value == 16) continue;
    row.published.reserved = {static_cast<double>(figures.peak_reserved) * 1.04};
    row.published.iteration_seconds = figures.step_seconds * 1.3;
    row.published.teraflops_per_second = figures.model_flops_per_second / 1.3e12;
    row.published.device_use = 0.7 + 0.02 * value;
  }
}

void add_search(LabRun& run) {
  run.suite.groups.push_back(
      {Group::Kind::Search, "largest", "Largest micro-batch that fits", "train.micro_batch_size"});
  for (const int value : {1, 2, 4, 3}) {
    RowResult& result = add_row(run, fmt::format("largest-{}", value));
    Row& row = run.rows.back();
    row.title = fmt::format("Micro-batch {}", value);
    row.group = "largest";
    row.value = value;
    plan_row(result, sample_figures(4, 4, 8, 17.0 * value, 0.3 * value));
  }
}

}  // namespace

Figures sample_figures(double weights_gib, double gradients_gib, double states_gib,
                       double activations_gib, double step_seconds) {
  Figures figures;
  figures.by_category = {{"parameters", gib(weights_gib)}, {"gradients", gib(gradients_gib)},
                         {"optimizer", gib(states_gib)},   {"activations", gib(activations_gib)},
                         {"workspace", gib(0.25)},         {"communication", 0},
                         {"data", int64_t{229444}}};
  for (const auto& [category, bytes] : figures.by_category) figures.peak_allocated += bytes;
  figures.peak_reserved = figures.peak_allocated + gib(0.5);
  figures.after_forward = figures.peak_allocated - gib(gradients_gib) - gib(0.25);
  figures.parameter_bytes = gib(weights_gib);
  figures.step_seconds = step_seconds;
  figures.tokens_per_second = step_seconds > 0 ? 16384 / step_seconds : 0;
  figures.model_flops_per_second = figures.tokens_per_second * 6.6e9;
  figures.share_of_peak = 0.42;
  add_timeline(figures);
  return figures;
}

RowResult& add_row(LabRun& run, const std::string& id, const std::string& from) {
  Row row;
  row.id = id;
  row.title = "Row " + id;
  row.from = from;
  row.model = "tiny-llama";
  row.command = "finetune_full";
  run.rows.push_back(row);
  RowResult result;
  result.id = id;
  run.results.push_back(result);
  run.record.rows.push_back(id);
  return run.results.back();
}

Row& row_of(LabRun& run, const std::string& id) {
  return *std::find_if(run.rows.begin(), run.rows.end(), [&](const Row& r) { return r.id == id; });
}

LabRun planned_sample() {
  LabRun run = empty_run(lab::Mode::Plan);
  struct Shape {
    const char* id;
    const char* title;
    const char* from;
    lab::Settings options;
    double weights, gradients, states, activations, seconds;
    Expected expected;
  };
  const Shape shapes[] = {
      {"ls01-baseline",
       "Baseline",
       "",
       {{"precision", "32-true"}, {"train.micro_batch_size", "32"}},
       4.1,
       4.1,
       8.2,
       95,
       1.9,
       Expected::OutOfMemory},
      {"ls02-small-batch",
       "Reduced batch size",
       "ls01-baseline",
       {{"precision", "32-true"}, {"train.micro_batch_size", "8"}},
       4.1,
       4.1,
       8.2,
       24,
       0.61,
       Expected::Ok},
      {"ls03-accumulate",
       "Gradient accumulation",
       "ls02-small-batch",
       {{"precision", "32-true"},
        {"train.micro_batch_size", "8"},
        {"train.global_batch_size", "32"}},
       4.1,
       4.1,
       8.2,
       24,
       2.4,
       Expected::Ok},
      {"ls04-bf16-true",
       "Reduced precision",
       "ls03-accumulate",
       {{"precision", "bf16-true"},
        {"train.micro_batch_size", "8"},
        {"train.global_batch_size", "32"}},
       2.05,
       2.05,
       4.1,
       12,
       0.42,
       Expected::Ok},
      {"ls05-bf16-mixed",
       "Mixed precision",
       "ls03-accumulate",
       {{"precision", "bf16-mixed"}, {"train.micro_batch_size", "8"}},
       6.15,
       4.1,
       8.2,
       14,
       0.47,
       Expected::Ok},
      {"ls06-checkpointing",
       "Activation checkpointing",
       "ls04-bf16-true",
       {{"precision", "bf16-true"}, {"activation_checkpointing", "all"}},
       2.05,
       2.05,
       4.1,
       2.1,
       0.55,
       Expected::Ok},
      {"ls07-tiny-batch",
       "Baseline again, smaller",
       "ls01-baseline",
       {{"precision", "32-true"}, {"train.micro_batch_size", "16"}},
       4.1,
       4.1,
       8.2,
       47,
       1.1,
       Expected::OutOfMemory},
  };
  for (const Shape& shape : shapes) {
    RowResult& result = add_row(run, shape.id, shape.from);
    Row& row = run.rows.back();
    row.title = shape.title;
    row.options = shape.options;
    row.expected = shape.expected;
    row.like = "litgpt";
    row.hardware = "1x NVIDIA A100 80 GB";
    plan_row(result, sample_figures(shape.weights, shape.gradients, shape.states, shape.activations,
                                    shape.seconds));
    if (shape.weights == 2.05) result.predicted->by_category["parameters"] = 2 * result.parameters;
    count_row(result);
  }
  // As published within a tenth, and beyond it.
  row_of(run, "ls02-small-batch").published.reserved = {
      static_cast<double>(run.find("ls02-small-batch")->like->peak_reserved) * 1.03};
  row_of(run, "ls04-bf16-true").published.allocated_after_forward = {
      static_cast<double>(run.find("ls04-bf16-true")->like->after_forward) * 1.3};
  row_of(run, "ls04-bf16-true").notes = {"The source saves a checkpoint inside the timed run."};
  add_row(run, "ls08-announced");
  run.rows.back().not_run = "the source announces it and gives no configuration";
  add_sweep(run);
  add_search(run);
  return run;
}

LabRun measured_sample() {
  LabRun run = empty_run(lab::Mode::Run);
  run.record.device = "NVIDIA A100-SXM4-80GB";
  const char* ids[] = {"m1-good", "m2-oom", "m3-crash", "m4-slow", "m5-later"};
  const Outcome outcomes[] = {Outcome::Ok, Outcome::OutOfMemory, Outcome::Crashed,
                              Outcome::TimedOut, Outcome::NotRun};
  for (size_t i = 0; i < std::size(ids); ++i) {
    RowResult& result = add_row(run, ids[i], i == 0 ? "" : "m1-good");
    run.rows.back().expected = i == 1 ? Expected::OutOfMemory : Expected::Ok;
    plan_row(result, sample_figures(4.1, 4.1, 8.2, i == 1 ? 95 : 24, 0.61));
    result.outcome = outcomes[i];
    result.seconds = 30;
  }
  RowResult& good = run.results[0];
  good.measured = sample_figures(4.1, 4.1, 8.2, 23.4, 0.64);
  good.measured->timeline.clear();
  for (int64_t step = 1; step <= 120; ++step) {
    good.losses.push_back({step, 2 + 1.5 * std::exp(-static_cast<double>(step) / 30)});
    for (const char* phase : {"before_fwd", "after_fwd", "after_bwd", "after_opt_step"})
      if (step == 1 || step == 60 || step == 120)
        good.phases.push_back({step,
                               phase,
                               {{"parameters", gib(4.1)}, {"optimizer", gib(8.2)}},
                               gib(12.3),
                               gib(39.9),
                               gib(41)});
  }
  run.results[1].reason = "out of memory in forward, block 3: 1.25 GiB asked for, 310 MiB missing";
  run.results[2].reason = "ended by signal 11 (SIGSEGV)";
  run.results[3].reason = "longer than 3600 s";
  run.results[4] = RowResult{};
  run.results[4].id = "m5-later";
  return run;
}

LabRun hostile_sample() {
  const std::string evil =
      "</script><script>document.title='owned'</script><img src=x "
      "onerror=\"document.title='owned'\">"
      " \"quoted\" 'single' & \xe2\x80\xae"
      "reversed\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d | <!-- ]]> ${x}`";
  LabRun run = planned_sample();
  run.record.title = evil;
  run.record.about = evil + std::string(3000, 'W');
  run.record.source = evil;
  run.record.command = evil;
  run.record.hardware = evil;
  run.record.versions[evil] = evil;
  run.suite.groups[0].title = evil;
  run.suite.groups[0].over = evil;
  for (size_t i = 0; i < run.rows.size(); ++i) {
    const std::string id = fmt::format("{}<b>\"'&/{}", i, std::string(i == 0 ? 300 : 3, 'x'));
    for (Row& other : run.rows)
      if (other.from == run.rows[i].id) other.from = id;
    run.rows[i].id = run.results[i].id = id;
    run.rows[i].title = evil;
    run.rows[i].model = evil;
    run.rows[i].notes = {evil, std::string(2000, 'n')};
    run.results[i].reason = evil;
    run.results[i].command = evil;
    run.results[i].like_notes = {evil};
    if (i % 3 == 0) run.results[i].outcome = Outcome::Crashed;
    if (run.results[i].predicted) run.results[i].predicted->timeline[3].unit = evil;
  }
  return run;
}

void write_logs(const LabRun& run) {
  for (const Row& row : run.rows) {
    if (row.id.find('/') != std::string::npos) continue;
    const std::filesystem::path folder = run.folder / "rows" / row.id;
    std::filesystem::create_directories(folder);
    std::ofstream log(folder / "output.log", std::ios::binary);
    log << "\x1b[31mred\x1b[0m </pre><script>document.title='owned'</script>\n";
    for (int i = 0; i < 3000; ++i) log << "step " << i << "\r";
    log << "step 3000\nSegmentation fault\n\n";
  }
}

}  // namespace snug::test
