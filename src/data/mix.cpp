// SPDX-License-Identifier: Apache-2.0
#include "data/mix.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/random.h"

namespace snug::data {
namespace {

// Sums of shares that are meant to be 1: 0.333 three times is.
constexpr double kRounding = 0.005;

double weight_of(const MixSource& source) { return source.weight.value_or(1); }

// What the sources without a share have of 1; nothing where all have one.
double rest_of(std::span<const MixSource> sources) {
  double sum = 0;
  for (const MixSource& source : sources) sum += source.share.value_or(0);
  const bool has_others = std::ranges::any_of(
      sources, [](const MixSource& source) { return !source.share.has_value(); });
  if (sum > 1 + kRounding)
    throw UserError("data.sources: the shares add up to {:.4g}, and all together are 1", sum);
  if (has_others && sum > 1 - kRounding)
    throw UserError(
        "data.sources: the shares add up to {:.4g}, which leaves nothing for the sources without "
        "one; give each a share, or smaller ones",
        sum);
  if (!has_others && sum < 1 - kRounding)
    throw UserError(
        "data.sources: the shares add up to {:.4g}; make it 1, or give one source no share, which "
        "then has the rest",
        sum);
  return has_others ? 1 - sum : 0;
}

// One source, with its name in front of what is wrong in it.
Dataset load_one(const MixSource& source, const TextEncoder& encoder,
                 const DownloadFunction& download) {
  DatasetOptions options = source.options;
  options.source = source.name;
  if (options.name == "Synthetic" || options.name == "ImageFolder")
    throw UserError("data.sources: {} cannot be mixed with others; give it alone as --data {}",
                    options.name, options.name);
  try {
    Dataset dataset = load_dataset(options, encoder, download);
    if (dataset.train_pictures.rows != nullptr)
      throw UserError("rows with pictures cannot be mixed with others; give them alone");
    if (dataset.train.empty()) throw UserError("there are no samples to train on");
    return dataset;
  } catch (const UserError& error) {
    const std::string what = error.what();
    throw UserError("{}", what.starts_with(source.name) ? what : source.name + ": " + what);
  }
}

void add(RowCounts& counts, const RowCounts& more) {
  counts.questions += more.questions;
  counts.questions_with_input += more.questions_with_input;
  counts.chats += more.chats;
  counts.completions += more.completions;
  counts.texts += more.texts;
}

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more, int64_t copies = 1) {
  for (int64_t copy = 0; copy < copies; ++copy) all.insert(all.end(), more.begin(), more.end());
}

// The style that most samples of an epoch have, and those samples' rows.
void choose_style(Dataset& mixed, std::vector<Dataset>& parts) {
  std::map<std::string, int64_t> samples;
  for (const MixedSource& source : mixed.sources) samples[source.prompt_style] += source.per_epoch;
  mixed.prompt_style =
      std::ranges::max_element(samples, {}, [](const auto& style) { return style.second; })->first;
  mixed.prompt_style_reason = samples.size() > 1 ? "of most samples" : parts[0].prompt_style_reason;
  for (Dataset& part : parts)
    if (part.prompt_style == mixed.prompt_style)
      append(mixed.validation_rows, std::exchange(part.validation_rows, {}));
  mixed.validation_rows.resize(std::min(kShownRows, mixed.validation_rows.size()));
}

}  // namespace

std::vector<int64_t> samples_per_epoch(std::span<const MixSource> sources,
                                       std::span<const int64_t> counts) {
  const double rest = rest_of(sources);
  double weighted = 0;
  for (size_t i = 0; i < sources.size(); ++i)
    if (!sources[i].share) weighted += weight_of(sources[i]) * static_cast<double>(counts[i]);
  const double all =
      rest > 0 ? weighted / rest
               : static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  std::vector<int64_t> samples;
  for (size_t i = 0; i < sources.size(); ++i) {
    const double wanted = sources[i].share ? *sources[i].share * all
                                           : weight_of(sources[i]) * static_cast<double>(counts[i]);
    samples.push_back(std::max<int64_t>(1, std::llround(wanted)));
  }
  return samples;
}

Dataset load_mix(std::span<const MixSource> sources, const TextEncoder& encoder,
                 const DownloadFunction& download) {
  SNUG_CHECK(!sources.empty(), "a mix of nothing");
  std::vector<Dataset> parts;
  std::vector<int64_t> counts;
  for (const MixSource& source : sources) {
    parts.push_back(load_one(source, encoder, download));
    counts.push_back(parts.back().train.count());
  }
  const std::vector<int64_t> wanted = samples_per_epoch(sources, counts);
  const DatasetOptions& options = sources.front().options;
  Dataset mixed{.batch_options = parts[0].batch_options,
                .processor = parts[0].processor,
                .num_workers = parts[0].num_workers,
                .system = parts[0].system};
  for (size_t i = 0; i < parts.size(); ++i) {
    Dataset& part = parts[i];
    const int64_t needed = (wanted[i] + counts[i] - 1) / counts[i];
    const int64_t copies = options.keep_without_loss ? 1 : needed;
    mixed.train.append(part.train, copies);
    mixed.validation.append(part.validation);
    append(mixed.train_numbers, part.train_numbers, copies);
    append(mixed.validation_numbers, part.validation_numbers);
    add(mixed.row_counts, part.row_counts);
    append(mixed.unread, part.unread);
    if (part.system != mixed.system) mixed.system.clear();
    mixed.sources.push_back(
        {.name = sources[i].name,
         .train_end = mixed.train.count(),
         .validation_end = mixed.validation.count(),
         .copies = copies,
         .per_epoch = wanted[i],
         .prompt_style = part.prompt_style,
         .masks_prompts = options.ratings || part.train.documents_per_sample() > 1
                              ? true
                              : masks_prompts(part, sources[i].options.mask_prompt)});
    part.train = part.validation = {};
  }
  std::ranges::sort(mixed.unread);
  mixed.unread.erase(std::unique(mixed.unread.begin(), mixed.unread.end()), mixed.unread.end());
  choose_style(mixed, parts);
  relate_samples(mixed, options);
  return mixed;
}

std::vector<SampleRange> ranges_of(const Dataset& dataset) {
  std::vector<SampleRange> ranges;
  for (const MixedSource& source : dataset.sources)
    ranges.push_back({.end = source.train_end, .per_epoch = source.per_epoch});
  return ranges;
}

uint64_t fingerprint(const Dataset& dataset) {
  uint64_t hash = dataset.train.fingerprint();
  for (const MixedSource& source : dataset.sources)
    for (const int64_t number : {source.train_end, source.per_epoch})
      hash = derive(hash, static_cast<uint64_t>(number)).next();
  return hash;
}

int64_t samples_of_epoch(const SampleStore& samples, std::span<const SampleRange> ranges) {
  int64_t all = ranges.empty() ? samples.count() : 0;
  for (const SampleRange& range : ranges) all += range.per_epoch;
  return all;
}

double tokens_of_epoch(const SampleStore& samples, std::span<const SampleRange> ranges) {
  if (ranges.empty()) return static_cast<double>(samples.total_tokens());
  double tokens = 0;
  int64_t begin = 0;
  for (const SampleRange& range : ranges) {
    int64_t of_range = 0;
    for (int64_t i = begin; i < range.end; ++i) of_range += samples.length(i);
    const auto count = static_cast<double>(std::max<int64_t>(1, range.end - begin));
    tokens += static_cast<double>(of_range) / count * static_cast<double>(range.per_epoch);
    begin = range.end;
  }
  return tokens;
}

}  // namespace snug::data
