// SPDX-License-Identifier: Apache-2.0
#include "data/survey.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace snug::data {
namespace {

constexpr int64_t kBins = 10;

int32_t id_of(int32_t stored) { return stored < 0 ? ~stored : stored; }

// FNV-1a over the ids, without their labels.
uint64_t hash_of(std::span<const int32_t> stored) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const int32_t one : stored)
    hash = (hash ^ static_cast<uint32_t>(id_of(one))) * 0x100000001B3ULL;
  return hash;
}

const SampleStore& store_of(const Dataset& dataset, SampleAt at) {
  return at.held_out ? dataset.validation : dataset.train;
}

std::span<const int32_t> stored_ids(const Dataset& dataset, SampleAt at) {
  return store_of(dataset, at).stored_ids(at.index);
}

// Samples with pictures are skipped: equal captions may belong to different pictures.
void find_duplicates(const Dataset& dataset, DataSurvey& result) {
  if (dataset.train_pictures.rows != nullptr) return;
  std::unordered_multimap<uint64_t, SampleAt> seen;
  for (const SampleAt at : samples_by_row(dataset)) {
    const auto ids = stored_ids(dataset, at);
    const uint64_t hash = hash_of(ids);
    const auto [begin, end] = seen.equal_range(hash);
    const auto same = std::find_if(begin, end, [&](const auto& other) {
      return std::ranges::equal(stored_ids(dataset, other.second), ids, {}, id_of, id_of);
    });
    if (same == end) {
      seen.emplace(hash, at);
      continue;
    }
    ++result.duplicates;
    if (result.repeated.size() < kNamedSamples) result.repeated.emplace_back(same->second, at);
  }
}

// Held-out samples that are also trained on.
void find_shared(const Dataset& dataset, DataSurvey& result) {
  if (dataset.train_pictures.rows != nullptr) return;
  std::unordered_multimap<uint64_t, int64_t> trained;
  for (int64_t i = 0; i < dataset.train.count(); ++i)
    trained.emplace(hash_of(dataset.train.stored_ids(i)), i);
  for (int64_t i = 0; i < dataset.validation.count(); ++i) {
    const auto ids = dataset.validation.stored_ids(i);
    const auto [begin, end] = trained.equal_range(hash_of(ids));
    const auto same = std::find_if(begin, end, [&](const auto& other) {
      return std::ranges::equal(dataset.train.stored_ids(other.second), ids, {}, id_of, id_of);
    });
    if (same == end) continue;
    ++result.held_out_in_training;
    if (result.in_both.size() < kNamedSamples)
      result.in_both.push_back({{true, i}, {false, same->second}});
  }
}

// Of samples that teach anything at all.
void find_nearly_empty(const Dataset& dataset, DataSurvey& result) {
  for (const SampleAt at : samples_by_row(dataset)) {
    const SampleStore& store = store_of(dataset, at);
    int64_t learnt = 0;
    for (int64_t d = 0; d < store.num_documents(at.index); ++d)
      learnt += learnt_tokens(store, at.index, d);
    if (learnt != 1) continue;
    ++result.nearly_empty;
    if (result.short_of_words.size() < kNamedSamples) result.short_of_words.push_back(at);
  }
}

std::vector<LengthBin> bins_of(const std::vector<int64_t>& sorted) {
  if (sorted.empty()) return {};
  const int64_t first = sorted.front();
  const int64_t width = (sorted.back() - first) / kBins + 1;
  std::vector<LengthBin> bins;
  for (int64_t from = first; from <= sorted.back(); from += width)
    bins.push_back({from, std::min(from + width - 1, sorted.back()), 0});
  for (const int64_t length : sorted) ++bins[static_cast<size_t>((length - first) / width)].samples;
  return bins;
}

}  // namespace

bool is_desirable(const SampleStore& samples, int64_t index) {
  return samples.numbers(samples.columns().front(), index, 0).front() > 0;
}

RatingCounts count_ratings(const SampleStore& samples) {
  RatingCounts counts;
  for (int64_t i = 0; i < samples.count(); ++i)
    ++(is_desirable(samples, i) ? counts.desirable : counts.undesirable);
  return counts;
}

int64_t learnt_tokens(const SampleStore& store, int64_t index, int64_t d) {
  // The first token is never a target, since nothing precedes it.
  const auto ids = store.document(index, d).stored;
  if (ids.empty()) return 0;
  return std::ranges::count_if(ids.subspan(1), [](int32_t stored) { return stored >= 0; });
}

int64_t row_number(const Dataset& dataset, SampleAt at) {
  const auto i = static_cast<size_t>(at.index);
  const auto& pictures = at.held_out ? dataset.validation_pictures : dataset.train_pictures;
  if (pictures.are_captions()) return pictures.row_of[i] + 1;
  const auto& numbers = at.held_out ? dataset.validation_numbers : dataset.train_numbers;
  return i < numbers.size() ? numbers[i] : at.index + 1;
}

const MixedSource* source_of(const Dataset& dataset, SampleAt at) {
  const auto end = at.held_out ? &MixedSource::validation_end : &MixedSource::train_end;
  const auto found = std::ranges::upper_bound(dataset.sources, at.index, {}, end);
  return found == dataset.sources.end() ? nullptr : &*found;
}

std::vector<SampleAt> samples_by_row(const Dataset& dataset) {
  std::vector<SampleAt> samples;
  for (int64_t i = 0; i < dataset.train.count(); ++i) samples.push_back({false, i});
  for (int64_t i = 0; i < dataset.validation.count(); ++i) samples.push_back({true, i});
  // Where a row became several samples, those behind more turns are longer.
  std::ranges::stable_sort(samples, {}, [&](SampleAt at) {
    const SampleStore& store = at.held_out ? dataset.validation : dataset.train;
    return std::pair(row_number(dataset, at), store.is_in_blocks() ? 0 : store.length(at.index));
  });
  return samples;
}

DataSurvey survey(const Dataset& dataset) {
  DataSurvey result{.training = dataset.train.count(), .held_out = dataset.validation.count()};
  std::vector<int64_t> lengths;
  for (const SampleStore* store : {&dataset.train, &dataset.validation}) {
    result.tokens += store->total_tokens();
    result.cut_samples += store->num_truncated();
    result.cut_tokens += store->cut_tokens();
    result.without_loss += store->num_without_loss();
    for (const auto& [what, count] : store->left_out()) result.left_out[what] += count;
    for (int64_t i = 0; i < store->count(); ++i) {
      lengths.push_back(store->length(i));
      for (int64_t d = 0; d < store->num_documents(i); ++d)
        result.learnt_tokens += learnt_tokens(*store, i, d);
    }
  }
  std::ranges::sort(lengths);
  if (!lengths.empty()) {
    result.shortest = lengths.front();
    result.median = (lengths[(lengths.size() - 1) / 2] + lengths[lengths.size() / 2]) / 2;
    result.longest = lengths.back();
  }
  result.lengths = bins_of(lengths);
  find_duplicates(dataset, result);
  find_shared(dataset, result);
  find_nearly_empty(dataset, result);
  return result;
}

}  // namespace snug::data
