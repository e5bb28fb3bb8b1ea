// SPDX-License-Identifier: Apache-2.0
#include "data/sampler.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "data/random.h"

namespace snug::data {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Part `index` of `count` items cut into `parts` ranges whose sizes differ by one at most.
struct IndexRange {
  int64_t begin, end;
};
IndexRange cut(int64_t count, int64_t parts, int64_t index) {
  const int64_t small = count / parts, larger = count % parts;
  const int64_t begin = index * small + std::min(index, larger);
  return {begin, begin + small + (index < larger ? 1 : 0)};
}

// Puts off the samples that the epoch before, `before`, has ended with, until any `apart` samples
// one after the other are different ones; those behind them move up.
void keep_apart(std::vector<int64_t>& order, std::span<const int64_t> before, int64_t apart) {
  std::unordered_map<int64_t, int64_t> earliest;  // places
  for (int64_t back = 1; back < apart; ++back)
    earliest[before[before.size() - static_cast<size_t>(back)]] = apart - back;
  std::vector<int64_t> result, waiting;
  for (auto next = order.begin(); result.size() < order.size();) {
    const auto may_come = [&, place = std::ssize(result)](int64_t sample) {
      const auto found = earliest.find(sample);
      return found == earliest.end() || found->second <= place;
    };
    const auto ready = std::ranges::find_if(waiting, may_come);
    if (ready != waiting.end()) {
      result.push_back(*ready);
      waiting.erase(ready);
    } else if (may_come(*next)) {
      result.push_back(*next++);
    } else {
      waiting.push_back(*next++);
    }
  }
  order = std::move(result);
}

void check(const SamplerOptions& options) {
  if (options.num_samples <= 0) throw UserError("the data set has no training samples");
  if (options.global_batch_size <= 0 || options.micro_batch_size <= 0)
    throw UserError(
        "train.global_batch_size = {} and train.micro_batch_size = {} must be at least 1",
        options.global_batch_size, options.micro_batch_size);
  if (options.epochs < 0 || options.max_steps < 0)
    throw UserError("train.epochs = {} and train.max_steps = {} must not be negative",
                    options.epochs, options.max_steps);
  if (options.epochs == 0 && options.max_steps == 0)
    throw UserError("nothing says when training ends; set train.epochs or train.max_steps");
  if (options.epochs > std::numeric_limits<int64_t>::max() / options.num_samples ||
      options.max_steps > std::numeric_limits<int64_t>::max() / options.global_batch_size)
    throw UserError("train.epochs = {} or train.max_steps = {} is too large", options.epochs,
                    options.max_steps);
  for (const int64_t index : options.first)
    SNUG_CHECK(index >= 0 && index < options.num_samples, "sample {} of {}", index,
               options.num_samples);
  int64_t begin = 0, in_an_epoch = 0;
  for (const SampleRange& range : options.ranges) {
    in_an_epoch += range.per_epoch;
    SNUG_CHECK(range.per_epoch >= 0 && range.per_epoch <= range.end - begin,
               "an epoch has {} of {} samples", range.per_epoch, range.end - begin);
    begin = range.end;
  }
  SNUG_CHECK(options.ranges.empty() || begin == options.num_samples, "{} of {} samples in ranges",
             begin, options.num_samples);
  // It would have a sample twice, which the plan does not know.
  if (!options.ranges.empty() && in_an_epoch < options.micro_batch_size)
    throw UserError(
        "an epoch of these sources has {} samples, fewer than a micro-batch "
        "(train.micro_batch_size "
        "= {}); give them larger weights, or take a smaller one",
        in_an_epoch, options.micro_batch_size);
}

// The purpose of the generators that draw parts of ranges; epochs count from 0 and never get here.
constexpr uint64_t kPartPurpose = uint64_t{1} << 62U;

size_t range_of(const std::vector<SampleRange>& ranges, int64_t sample) {
  const auto range = std::ranges::upper_bound(ranges, sample, {}, &SampleRange::end);
  return static_cast<size_t>(range - ranges.begin());
}

int64_t begin_of(const std::vector<SampleRange>& ranges, size_t r) {
  return r == 0 ? 0 : ranges[r - 1].end;
}

}  // namespace

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)) {
  check(options_);
  read_.resize(options_.ranges.size());
  limit_first();
  draw_parts();
}

void Sampler::limit_first() {
  std::vector<int64_t> left;
  for (const SampleRange& range : options_.ranges) left.push_back(range.per_epoch);
  if (left.empty()) return;
  std::erase_if(options_.first,
                [&](int64_t sample) { return left[range_of(options_.ranges, sample)]-- <= 0; });
}

void Sampler::count(std::span<const int64_t> samples) {
  if (read_.empty()) return;
  for (const int64_t sample : samples) ++read_[range_of(options_.ranges, sample)];
}

// The first samples of all come first in theirs, so that the first epoch has them.
void Sampler::draw_parts() {
  const std::vector<SampleRange>& ranges = options_.ranges;
  parts_.resize(ranges.size());
  const std::set<int64_t> first(options_.first.begin(), options_.first.end());
  for (size_t r = 0; r < ranges.size(); ++r) {
    const int64_t begin = begin_of(ranges, r), size = ranges[r].end - begin;
    if (ranges[r].per_epoch == size) continue;
    parts_[r] = permutation(size, derive(options_.seed, kPartPurpose + r));
    for (int64_t& sample : parts_[r]) sample += begin;
    std::stable_partition(parts_[r].begin(), parts_[r].end(),
                          [&](int64_t sample) { return first.contains(sample); });
  }
}

int64_t Sampler::num_steps() const {
  if (options_.epochs == 0) return options_.max_steps;
  const int64_t steps = divide_up(options_.epochs * epoch_size(), options_.global_batch_size);
  return options_.max_steps == 0 ? steps : std::min(steps, options_.max_steps);
}

int64_t Sampler::epoch_size() const {
  int64_t all = options_.ranges.empty() ? options_.num_samples : 0;
  for (const SampleRange& range : options_.ranges) all += range.per_epoch;
  const int64_t most = options_.samples_per_epoch;
  return most > 0 ? std::min(most, all) : all;
}

int64_t Sampler::samples_read() const {
  return position_.epoch * epoch_size() + position_.next_index;
}

int64_t Sampler::samples_left() const {
  int64_t total = std::numeric_limits<int64_t>::max();
  if (options_.epochs > 0) total = options_.epochs * epoch_size();
  if (options_.max_steps > 0)
    total = std::min(total, options_.max_steps * options_.global_batch_size);
  return std::max<int64_t>(0, total - samples_read());
}

double Sampler::epochs_done() const {
  return static_cast<double>(samples_read()) / static_cast<double>(epoch_size());
}

// In their order.
std::vector<int64_t> Sampler::samples_of(int64_t epoch) const {
  std::vector<int64_t> samples;
  if (options_.ranges.empty()) {
    samples.resize(static_cast<size_t>(options_.num_samples));
    std::iota(samples.begin(), samples.end(), int64_t{0});
  }
  for (size_t r = 0; r < parts_.size(); ++r) {
    const SampleRange& range = options_.ranges[r];
    const int64_t begin = begin_of(options_.ranges, r), size = range.end - begin;
    const int64_t start = size == 0 ? 0 : epoch % size * range.per_epoch % size;
    for (int64_t i = 0; i < range.per_epoch; ++i) {
      const int64_t place = (start + i) % size;
      samples.push_back(parts_[r].empty() ? begin + place : parts_[r][static_cast<size_t>(place)]);
    }
  }
  return samples;
}

std::vector<int64_t> Sampler::drawn(int64_t epoch) const {
  std::vector<int64_t> order = samples_of(epoch);
  if (options_.shuffle) {
    const std::vector<int64_t> places =
        permutation(std::ssize(order), derive(options_.seed, static_cast<uint64_t>(epoch)));
    std::vector<int64_t> shuffled;
    shuffled.reserve(order.size());
    for (const int64_t place : places) shuffled.push_back(order[static_cast<size_t>(place)]);
    order = std::move(shuffled);
  }
  if (epoch > 0) return order;
  const std::vector<int64_t>& first = options_.first;
  for (size_t i = 0; i < first.size(); ++i) {
    const auto at = std::find(order.begin(), order.end(), first[i]);
    std::iter_swap(order.begin() + static_cast<std::ptrdiff_t>(i), at);
  }
  // After that, so that the rest of the order is the same for any micro-batch.
  if (const int64_t size = options_.micro_batch_size; std::ssize(first) >= 2 * size)
    std::rotate(order.begin(), order.begin() + size, order.begin() + 2 * size);
  return order;
}

void Sampler::enter_epoch(int64_t epoch) {
  if (order_.epoch != epoch) std::swap(order_, other_);  // a step that looks ahead goes back
  if (order_.epoch == epoch) return;
  const int64_t size = epoch_size();
  const int64_t apart = std::min(options_.global_batch_size, size);
  // Where steps end with an epoch, nothing lies across its end.
  if (apart <= 1 || size % options_.global_batch_size == 0) {
    order_ = {epoch, drawn(epoch)};
    return;
  }
  // The end of an epoch is as drawn, unless it has so few samples that its begin reaches it.
  const int64_t first = size < 3 * apart ? 0 : std::max<int64_t>(epoch - 1, 0);
  Order order;
  for (const Order* known : {&order_, &other_})
    if (known->epoch < epoch && known->epoch >= std::max(first, order.epoch)) order = *known;
  const bool is_known = order.epoch >= 0 || first == 0;
  if (order.epoch < 0) order = {first, drawn(first)};
  while (order.epoch < epoch) {
    Order next{order.epoch + 1, drawn(order.epoch + 1)};
    keep_apart(next.samples, std::span(order.samples).first(static_cast<size_t>(size)), apart);
    other_ = std::exchange(order, std::move(next));
  }
  if (!is_known) other_ = {};
  order_ = std::move(order);
}

std::vector<int64_t> Sampler::next_samples() {
  std::vector<int64_t> samples;
  const int64_t wanted = std::min(options_.global_batch_size, samples_left());
  while (static_cast<int64_t>(samples.size()) < wanted) {
    enter_epoch(position_.epoch);
    const int64_t end = std::min(
        epoch_size(), position_.next_index + wanted - static_cast<int64_t>(samples.size()));
    samples.insert(samples.end(), order_.samples.begin() + position_.next_index,
                   order_.samples.begin() + end);
    position_.next_index = end;
    if (end == epoch_size()) position_ = {position_.epoch + 1, 0};
  }
  count(samples);
  return samples;
}

std::vector<std::vector<int64_t>> Sampler::next_step(int64_t rank, int64_t world_size) {
  SNUG_CHECK(rank >= 0 && rank < world_size, "rank {} of {}", rank, world_size);
  const std::vector<int64_t> samples = next_samples();
  const auto count = static_cast<int64_t>(samples.size());
  const IndexRange share = cut(count, world_size, rank);
  // From the largest share, so that all ranks agree.
  const int64_t num_micro_batches =
      divide_up(divide_up(count, world_size), options_.micro_batch_size);
  std::vector<std::vector<int64_t>> micro_batches;
  for (int64_t i = 0; i < num_micro_batches; ++i) {
    const IndexRange part = cut(share.end - share.begin, num_micro_batches, i);
    micro_batches.emplace_back(samples.begin() + share.begin + part.begin,
                               samples.begin() + share.begin + part.end);
  }
  return micro_batches;
}

std::vector<std::vector<int64_t>> Sampler::upcoming_step(int64_t rank, int64_t world_size) {
  if (done()) return {};
  const DataPosition here = position_;
  std::vector<int64_t> read = read_;
  auto micro_batches = next_step(rank, world_size);
  position_ = here;
  read_ = std::move(read);
  return micro_batches;
}

void Sampler::restore(DataPosition position) {
  if (position.epoch < 0 || position.next_index < 0 || position.next_index >= epoch_size() ||
      position.epoch > std::numeric_limits<int64_t>::max() / epoch_size() - 1)
    throw UserError(
        "the checkpoint is at sample {} of epoch {}, which the {} training samples of this "
        "data "
        "set do not have; resume with the data it was made from",
        position.next_index, position.epoch, epoch_size());
  position_ = position;
  if (read_.empty()) return;
  std::ranges::fill(read_, 0);
  Sampler again(options_);
  for (int64_t epoch = 0; epoch <= position.epoch; ++epoch) {
    again.enter_epoch(epoch);
    const int64_t end = epoch < position.epoch ? epoch_size() : position.next_index;
    count(std::span(again.order_.samples).first(static_cast<size_t>(end)));
  }
}

namespace {

// The purpose of the split's generator; epochs count from 0 and never get here.
constexpr uint64_t kSplitPurpose = ~uint64_t{0};
constexpr uint64_t kChoicePurpose = ~uint64_t{1};

// The option for what a folder holds instead, as the end of a sentence.
std::string option_instead(const std::filesystem::path& folder) {
  const auto has = [&](const char* name) { return std::filesystem::exists(folder / name); };
  if (has("dataset_dict.json") || has("state.json"))
    return fmt::format("; a data set of save_to_disk is --data HFDataset --data.path {}",
                       folder.string());
  if (has("metadata.jsonl") || has("metadata.csv"))
    return fmt::format("; pictures with a metadata file are --data ImageFolder --data.path {}",
                       folder.string());
  return "";
}

std::filesystem::path find_part(const std::filesystem::path& folder,
                                std::initializer_list<const char*> names) {
  for (const std::string name : names)
    for (const char* ending : {".json", ".jsonl", ".parquet", ".csv", ".tsv"}) {
      std::filesystem::path path = folder / (name + ending);
      if (std::filesystem::is_regular_file(path)) return path;
    }
  throw UserError(
      "{}: no {}.json (or .jsonl, .parquet, .csv, .tsv); a data folder needs one file named train "
      "and one named val or validation{}",
      folder.string(), *names.begin(), option_instead(folder));
}

}  // namespace

int64_t validation_rows(int64_t num_rows, double fraction, SplitRounding rounding) {
  if (!(fraction >= 0 && fraction < 1))
    throw UserError("val_split_fraction = {} must be at least 0 and below 1", fraction);
  if (fraction == 0 || num_rows == 1) return 0;
  const double share = fraction * static_cast<double>(num_rows);
  // Products such as 0.29 × 100 fall a hair beside the whole number that is meant.
  const double nearest = std::round(share);
  const double rounded = std::abs(share - nearest) < 1e-6 ? nearest
                         : rounding == SplitRounding::Up  ? std::ceil(share)
                                                          : std::floor(share);
  const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(rounded));
  if (count >= num_rows)
    throw UserError(
        "val_split_fraction = {} of {} leaves none to train on; give more rows, or 0 to hold out "
        "none",
        fraction, num_rows == 0 ? "no rows" : fmt::format("{} rows", num_rows));
  return count;
}

std::vector<int64_t> choose_rows(int64_t count, std::optional<int64_t> max_samples, uint64_t seed) {
  std::vector<int64_t> rows = permutation(count, derive(seed, kChoicePurpose));
  if (max_samples && *max_samples < count) rows.resize(static_cast<size_t>(*max_samples));
  return rows;
}

Split split_rows(std::vector<Row> rows, double val_split_fraction, uint64_t seed,
                 SplitRounding rounding) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t held_out = validation_rows(count, val_split_fraction, rounding);
  const std::vector<int64_t> order = permutation(count, derive(seed, kSplitPurpose));
  Split split;
  split.train.reserve(static_cast<size_t>(count - held_out));
  for (int64_t i = 0; i < count; ++i) {
    std::vector<Row>& part = i < held_out ? split.validation : split.train;
    part.push_back(std::move(rows[order[i]]));
  }
  return split;
}

Split read_split_folder(const std::filesystem::path& folder, const Columns& columns) {
  return {read_rows(find_part(folder, {"train"}), columns),
          read_rows(find_part(folder, {"val", "validation"}), columns)};
}

}  // namespace snug::data
