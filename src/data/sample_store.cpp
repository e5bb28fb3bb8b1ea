// SPDX-License-Identifier: Apache-2.0
#include "data/sample_store.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "data/each_index.h"

namespace snug::data {

SampleStore SampleStore::tokenize(std::span<const Row> rows, const PromptStyle& style,
                                  const TextEncoder& encoder, const SampleOptions& options,
                                  int num_workers) {
  const bool has_others = !rows.empty() && !rows.front().others.empty();
  const auto make = [&](int64_t i) -> std::vector<Sample> {
    const Row& row = rows[static_cast<size_t>(i)];
    try {
      if (has_others || options.answers_alone) return make_samples(row, style, encoder, options);
      return {make_sample(row, style, encoder, options)};
    } catch (const UserError& error) {
      throw UserError("data row {}: {}", row.number > 0 ? row.number : i + 1, error.what());
    }
  };
  const int64_t documents = 1 + (has_others ? std::ssize(rows.front().others) : 0);
  return build_groups(std::ssize(rows), documents, options.ignore_index, make, num_workers);
}

SampleStore SampleStore::build(int64_t count, int32_t ignore_index,
                               const std::function<Sample(int64_t)>& make, int num_workers) {
  const auto alone = [&](int64_t i) { return std::vector<Sample>{make(i)}; };
  return build_groups(count, 1, ignore_index, alone, num_workers);
}

SampleStore SampleStore::build_groups(int64_t count, int64_t documents_per_sample,
                                      int32_t ignore_index,
                                      const std::function<std::vector<Sample>(int64_t)>& make,
                                      int num_workers) {
  // Blocks bound what is held twice, and keep threads busy over rows of very different lengths.
  constexpr int64_t kBlock = 1024;
  SampleStore store;
  store.ignore_index_ = ignore_index;
  std::vector<std::vector<Sample>> block;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    block.assign(static_cast<size_t>(std::min(kBlock, count - begin)), {});
    for_each_index(block.size(), num_workers,
                   [&](size_t i) { block[i] = make(begin + static_cast<int64_t>(i)); });
    for (const std::vector<Sample>& group : block) {
      SNUG_CHECK(std::ssize(group) == documents_per_sample, "{} documents of a sample, not {}",
                 group.size(), documents_per_sample);
      for (const Sample& sample : group) store.append(sample);
      // Counted as one by what is said of samples.
      const auto is_cut = [](const Sample& sample) { return sample.cut_tokens > 0; };
      store.num_truncated_ -= std::max<int64_t>(0, std::ranges::count_if(group, is_cut) - 1);
    }
  }
  store.pool_.shrink_to_fit();
  if (documents_per_sample > 1) store.group(documents_per_sample);
  return store;
}

bool SampleStore::teaches(int64_t index) const {
  const auto targets = num_targets_.begin() + first_document(index);
  if (std::find(targets, targets + documents_per_sample_, 0) != targets + documents_per_sample_)
    return false;
  const auto first = document(index, 0).stored;
  for (int64_t d = 1; d < documents_per_sample_; ++d)
    if (!std::ranges::equal(document(index, d).stored, first)) return true;
  return documents_per_sample_ == 1;
}

void SampleStore::drop_without_loss(std::vector<int64_t>& beside) {
  if (num_without_loss_ == 0 || num_without_loss_ == num_different()) return;
  const int64_t without_loss = num_without_loss_;
  keep_samples([&](int64_t i) { return teaches(i); }, beside);
  num_without_loss_ = without_loss;
}

int64_t SampleStore::drop_longer(int64_t length, std::vector<int64_t>& beside) {
  const int64_t before = num_different();
  if (longest() <= length) return 0;
  keep_samples([&](int64_t i) { return longest_document(i) <= length; }, beside);
  return before - num_different();
}

void SampleStore::keep_samples(const std::function<bool(int64_t)>& is_kept,
                               std::vector<int64_t>& beside) {
  SNUG_CHECK(std::ssize(beside) == num_different(), "{} entries beside {} samples", beside.size(),
             num_different());
  SNUG_CHECK(columns_.empty() && !is_in_blocks(),
             "samples left out beside {} columns, or of blocks", columns_.size());
  SampleStore kept;
  kept.ignore_index_ = ignore_index_;
  std::vector<int64_t> kept_beside;
  for (int64_t i = 0; i < num_different(); ++i) {
    if (!is_kept(i)) continue;
    for (int64_t d = 0; d < documents_per_sample_; ++d) kept.append(sample(i, d));
    kept_beside.push_back(beside[static_cast<size_t>(i)]);
  }
  kept.pool_.shrink_to_fit();
  if (documents_per_sample_ > 1) kept.group(documents_per_sample_);
  // What was counted of all rows.
  kept.num_truncated_ = num_truncated_;
  kept.cut_tokens_ = cut_tokens_;
  kept.left_out_ = std::move(left_out_);
  *this = std::move(kept);
  beside = std::move(kept_beside);
}

namespace {

// So many samples keep what was left out of them: more than anybody looks at.
constexpr int64_t kMostLeftOut = 1000;

// `more` behind the counts of `documents`, either of which may be empty for zeros.
void append_counts(std::vector<int32_t>& counts, size_t documents, const std::vector<int32_t>& more,
                   size_t more_documents) {
  if (counts.empty() && more.empty()) return;
  counts.resize(documents);
  counts.insert(counts.end(), more.begin(), more.end());
  counts.resize(documents + more_documents);
}

// Documents cut into pieces, piece by piece.
class Cutter {
 public:
  Cutter(const SampleStore::Blocks& blocks, int32_t ignore_index)
      : blocks_(blocks), ignore_index_(ignore_index) {}

  // A piece of the document, from its token `at` on; at is then behind it.
  Sample next(const Sample& document, int64_t& at) {
    const auto length = std::ssize(document.ids);
    const int64_t again = std::min({blocks_.overlap, at, room_ - 1});
    const int64_t own = std::min(length - at, room_ - again);
    const auto from = [&](const std::vector<int32_t>& values) {
      return std::vector<int32_t>(values.begin() + (at - again), values.begin() + (at + own));
    };
    Sample piece{.ids = from(document.ids), .labels = from(document.labels)};
    std::fill_n(piece.labels.begin(), again, ignore_index_);
    piece.raw_tokens = std::clamp<int64_t>(document.raw_tokens - at, 0, own);
    at += own;
    room_ -= again + own;
    return piece;
  }
  // Whether a block ended with the last piece; the next one begins then.
  bool ends_block(bool ends_document) {
    if (room_ > 0 && (blocks_.joins || !ends_document)) return false;
    room_ = blocks_.length;
    return true;
  }

 private:
  SampleStore::Blocks blocks_;
  int32_t ignore_index_;
  int64_t room_ = blocks_.length;
};

}  // namespace

void SampleStore::cut_into_blocks(const Blocks& blocks, std::vector<int64_t>& beside) {
  SNUG_CHECK(blocks.length > 1 && blocks.overlap >= 0 && blocks.overlap < blocks.length,
             "blocks of {} tokens, {} of them again", blocks.length, blocks.overlap);
  SNUG_CHECK(columns_.empty() && documents_per_sample_ == 1 && source_tokens_.empty() &&
                 num_pictures_.empty() && count_ == 0 && std::ssize(beside) == num_different(),
             "pairs, pictures, sources or columns cut into blocks; {} entries beside {} documents",
             beside.size(), num_different());
  if (!blocks.joins && longest() <= blocks.length) return;
  SampleStore cut;
  cut.ignore_index_ = ignore_index_;
  std::vector<int64_t> cut_beside, first = {0};
  Cutter cutter(blocks, ignore_index_);
  bool begins = true;
  for (int64_t d = 0; d < num_different(); ++d) {
    const Sample document = sample(d);
    const auto length = std::ssize(document.ids);
    for (int64_t at = 0; at < length;) {
      cut.append(cutter.next(document, at));
      if (std::exchange(begins, false)) cut_beside.push_back(beside[static_cast<size_t>(d)]);
      if (!cutter.ends_block(at == length)) continue;
      first.push_back(std::ssize(cut.raw_tokens_));
      begins = true;
    }
  }
  if (!begins) first.push_back(std::ssize(cut.raw_tokens_));
  cut.pool_.shrink_to_fit();
  // What was counted of all rows.
  cut.num_truncated_ = num_truncated_;
  cut.cut_tokens_ = cut_tokens_;
  cut.left_out_ = std::move(left_out_);
  if (blocks.joins) cut.make_blocks(std::move(first));
  *this = std::move(cut);
  beside = std::move(cut_beside);
}

void SampleStore::make_blocks(std::vector<int64_t> first) {
  first_ = std::move(first);
  // One of them may have none, such as a last block of one token, and stays.
  num_without_loss_ = all_targets_ == 0 ? num_different() : 0;
}

void SampleStore::group(int64_t documents_per_sample) {
  SNUG_CHECK(count_ == 0 && documents_per_sample_ == 1 && documents_per_sample >= 1 &&
                 num_different() % documents_per_sample == 0,
             "{} documents in samples of {}", num_different(), documents_per_sample);
  documents_per_sample_ = documents_per_sample;
  num_without_loss_ = 0;
  for (int64_t i = 0; i < num_different(); ++i) num_without_loss_ += teaches(i) ? 0 : 1;
}

void SampleStore::share_prompts(double least) {
  SNUG_CHECK(shared_.empty() && source_tokens_.empty() && num_pictures_.empty(),
             "prompts of {} documents shared twice, or beside an encoder's or pictures",
             documents_per_sample_);
  if (documents_per_sample_ == 1) return;
  std::vector<int32_t> shared;
  for (int64_t i = 0; i < num_different(); ++i) {
    std::span<const int32_t> common = document(i, 0).stored;
    for (int64_t d = 1; d < documents_per_sample_; ++d) {
      const auto other = document(i, d).stored;
      common = common.first(
          static_cast<size_t>(std::ranges::mismatch(common, other).in1 - common.begin()));
    }
    // Ids that are no targets are stored as negative numbers.
    const auto until = std::ranges::find_if(common, [](int32_t stored) { return stored >= 0; });
    shared.push_back(static_cast<int32_t>(std::max<int64_t>(1, until - common.begin()) - 1));
  }
  shared_ = std::move(shared);
  const auto saved = static_cast<double>(shared_of_first(num_different()));
  if (saved < least * static_cast<double>(offsets_.back())) return shared_.clear();
  for (int64_t i = 0; i < num_different(); ++i)
    whole_lengths_.push_back(static_cast<int32_t>(whole_length(i)));
  std::ranges::sort(whole_lengths_, std::greater<>());
}

// Asked for by every micro-batch.
int64_t SampleStore::most_keys(int64_t wanted) const {
  SNUG_CHECK(shares_prompts(), "{} samples share no prompts", count());
  const int64_t times = times_each(wanted) * ((count() + num_different() - 1) / num_different());
  int64_t sum = 0;
  for (int64_t i = 0; i < wanted; ++i) sum += whole_lengths_[static_cast<size_t>(i / times)];
  return sum;
}

int64_t SampleStore::shared_of_first(int64_t count) const {
  if (shared_.empty()) return 0;
  return (documents_per_sample_ - 1) *
         std::accumulate(shared_.begin(), shared_.begin() + count, int64_t{0});
}

void SampleStore::repeat_to(int64_t count) {
  SNUG_CHECK(!empty() && count >= num_different(), "{} samples repeated to {}", num_different(),
             count);
  count_ = count;
}

int64_t SampleStore::total_tokens() const {
  const auto of_first = [&](int64_t samples) {
    return offsets_[static_cast<size_t>(begin_of(samples))] - shared_of_first(samples);
  };
  if (count_ == 0) return of_first(num_different());
  return count_ / num_different() * of_first(num_different()) + of_first(count_ % num_different());
}

void SampleStore::append(const Sample& sample) {
  SNUG_CHECK(count_ == 0 && columns_.empty() && documents_per_sample_ == 1 && shared_.empty() &&
                 !is_in_blocks(),
             "a sample appended to repeated ones, to pairs, to blocks, or beside columns");
  SNUG_CHECK(sample.ids.size() == sample.labels.size(), "{} ids, {} labels", sample.ids.size(),
             sample.labels.size());
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    SNUG_CHECK(sample.ids[i] >= 0, "token id {}", sample.ids[i]);
    pool_.push_back(sample.labels[i] == ignore_index_ ? ~sample.ids[i] : sample.ids[i]);
  }
  offsets_.push_back(static_cast<int64_t>(pool_.size()));
  raw_tokens_.push_back(static_cast<int32_t>(sample.raw_tokens));
  append_count(source_tokens_, sample.source_tokens);
  append_count(num_pictures_, sample.num_pictures);
  if (sample.cut_tokens > 0) ++num_truncated_;
  cut_tokens_ += sample.cut_tokens;
  for (const LeftOut& left_out : sample.left_out) ++left_out_[left_out.what];
  if (!sample.left_out.empty() && std::ssize(left_out_of_) < kMostLeftOut)
    left_out_of_[num_different() - 1] = sample.left_out;
  // The first token is no target where nothing stands before it, so a label there teaches nothing.
  const auto learnt =
      std::count_if(sample.labels.begin() + std::min<size_t>(1, sample.labels.size()),
                    sample.labels.end(), [this](int32_t label) { return label != ignore_index_; });
  num_targets_.push_back(static_cast<int32_t>(learnt));
  all_targets_ += learnt;
  all_sources_ += sample.source_tokens;
  if (learnt == 0) ++num_without_loss_;
}

void SampleStore::append(const SampleStore& more, int64_t copies) {
  if (raw_tokens_.empty()) {
    documents_per_sample_ = more.documents_per_sample_;
    ignore_index_ = more.ignore_index_;
    columns_ = more.columns_;
    for (ColumnOfNumbers& column : columns_) column.values.clear();
  }
  if (more.empty()) copies = 0;
  SNUG_CHECK(count_ == 0 && more.count_ == 0 && shared_.empty() && more.shared_.empty() &&
                 (more.empty() || (documents_per_sample_ == more.documents_per_sample_ &&
                                   columns_.size() == more.columns_.size())),
             "{} samples of {} documents and {} columns appended to {} of {} and {}", more.count(),
             more.documents_per_sample_, more.columns_.size(), count(), documents_per_sample_,
             columns_.size());
  if (more.is_in_blocks() && !is_in_blocks()) {
    first_.resize(static_cast<size_t>(num_different()) + 1);
    std::iota(first_.begin(), first_.end(), int64_t{0});
  }
  const int64_t shown = std::ssize(raw_tokens_);
  for (int64_t copy = 0; copy < copies; ++copy) {
    const size_t documents = raw_tokens_.size(), more_documents = more.raw_tokens_.size();
    const int64_t tokens = offsets_.back();
    pool_.insert(pool_.end(), more.pool_.begin(), more.pool_.end());
    for (size_t d = 1; d <= more_documents; ++d) offsets_.push_back(tokens + more.offsets_[d]);
    if (is_in_blocks())
      for (int64_t i = 1; i <= more.num_different(); ++i)
        first_.push_back(static_cast<int64_t>(documents) + more.begin_of(i));
    raw_tokens_.insert(raw_tokens_.end(), more.raw_tokens_.begin(), more.raw_tokens_.end());
    num_targets_.insert(num_targets_.end(), more.num_targets_.begin(), more.num_targets_.end());
    append_counts(source_tokens_, documents, more.source_tokens_, more_documents);
    append_counts(num_pictures_, documents, more.num_pictures_, more_documents);
    for (size_t c = 0; c < columns_.size(); ++c)
      columns_[c].values.insert(columns_[c].values.end(), more.columns_[c].values.begin(),
                                more.columns_[c].values.end());
    all_targets_ += more.all_targets_;
    all_sources_ += more.all_sources_;
  }
  num_truncated_ += more.num_truncated_;
  cut_tokens_ += more.cut_tokens_;
  num_without_loss_ += more.num_without_loss_;
  for (const auto& [what, count] : more.left_out_) left_out_[what] += count;
  for (const auto& [document, left_out] : more.left_out_of_)
    if (std::ssize(left_out_of_) < kMostLeftOut) left_out_of_[shown + document] = left_out;
}

// Adds the newest sample's count; nothing is kept before a sample has any.
void SampleStore::append_count(std::vector<int32_t>& counts, int64_t count) const {
  if (count == 0 && counts.empty()) return;
  counts.resize(raw_tokens_.size() - 1);
  counts.push_back(static_cast<int32_t>(count));
}

std::span<const LeftOut> SampleStore::left_out_of(int64_t index, int64_t d) const {
  const auto found = left_out_of_.find(first_document(index) + d);
  return found == left_out_of_.end() ? std::span<const LeftOut>() : found->second;
}

std::span<const int32_t> SampleStore::stored_ids(int64_t index) const {
  return {pool_.data() + offsets_[first_document(index)], static_cast<size_t>(whole_length(index))};
}

SampleStore::Document SampleStore::document(int64_t index, int64_t d) const {
  const int64_t at = first_document(index) + d;
  const auto count = [&](const std::vector<int32_t>& counts) {
    return counts.empty() ? 0 : counts[static_cast<size_t>(at)];
  };
  return {
      .stored = {pool_.data() + offsets_[at], static_cast<size_t>(offsets_[at + 1] - offsets_[at])},
      .raw_tokens = count(raw_tokens_),
      .source_tokens = count(source_tokens_),
      .num_pictures = count(num_pictures_)};
}

Sample SampleStore::sample(int64_t index, int64_t d) const {
  Sample sample;
  const Document own = document(index, d);
  for (const int32_t stored : own.stored) {
    sample.ids.push_back(stored < 0 ? ~stored : stored);
    sample.labels.push_back(stored < 0 ? ignore_index_ : stored);
  }
  sample.raw_tokens = own.raw_tokens;
  sample.source_tokens = own.source_tokens;
  sample.num_pictures = own.num_pictures;
  return sample;
}

void SampleStore::set_columns(std::vector<ColumnOfNumbers> columns) {
  for (const ColumnOfNumbers& column : columns) {
    const int64_t rows = column.is_per_target ? offsets_.back() : std::ssize(raw_tokens_);
    SNUG_CHECK(std::ssize(column.values) == rows * column.width, "{} numbers of {} rows of {}",
               column.values.size(), rows, column.width);
  }
  columns_ = std::move(columns);
}

std::span<const float> SampleStore::numbers(const ColumnOfNumbers& column, int64_t index,
                                            int64_t d) const {
  const int64_t at = first_document(index) + d;
  const int64_t first = column.is_per_target ? offsets_[at] : at;
  const int64_t rows = column.is_per_target ? offsets_[at + 1] - offsets_[at] : 1;
  return {column.values.data() + first * column.width, static_cast<size_t>(rows * column.width)};
}

int64_t SampleStore::longest_document(int64_t index) const {
  int64_t longest = 0;
  for (int64_t d = 0; d < num_documents(index); ++d)
    longest = std::max<int64_t>(longest, std::ssize(document(index, d).stored));
  return longest;
}

int64_t SampleStore::longest() const {
  int64_t longest = 0;
  for (int64_t i = 0; i < num_different(); ++i) longest = std::max(longest, longest_document(i));
  return longest;
}

int64_t SampleStore::most_tokens_of_sample() const {
  if (!is_in_blocks()) return documents_per_sample_ * longest();
  int64_t most = 0;
  for (int64_t i = 0; i < num_different(); ++i) most = std::max(most, length(i));
  return most;
}

double SampleStore::mean_document() const {
  if (!is_in_blocks())
    return count() == 0 ? 0
                        : static_cast<double>(total_tokens()) / static_cast<double>(count()) /
                              static_cast<double>(documents_per_sample_);
  const auto documents = static_cast<double>(raw_tokens_.size());
  return documents == 0 ? 0 : static_cast<double>(offsets_.back()) / documents;
}

std::vector<int64_t> SampleStore::longest(int64_t wanted,
                                          int64_t (*tokens)(const SampleStore&, int64_t)) const {
  // Of blocks of one length those of more documents take more memory.
  std::vector<std::pair<int64_t, int64_t>> sizes;
  for (int64_t i = 0; i < num_different(); ++i)
    sizes.emplace_back(tokens(*this, i), num_documents(i));
  std::vector<int64_t> indices(static_cast<size_t>(count()));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  const int64_t times = times_each(wanted);
  const auto end = indices.begin() + (wanted + times - 1) / times;
  std::partial_sort(indices.begin(), end, indices.end(), [&](int64_t a, int64_t b) {
    const auto& left = sizes[static_cast<size_t>(place(a))];
    const auto& right = sizes[static_cast<size_t>(place(b))];
    return left != right ? left > right : a < b;
  });
  std::vector<int64_t> result;
  for (int64_t i = 0; i < wanted; ++i) result.push_back(indices[static_cast<size_t>(i / times)]);
  return result;
}

int64_t SampleStore::times_each(int64_t wanted) const {
  SNUG_CHECK(wanted >= 0 && (wanted == 0 || count() > 0), "{} of {} samples", wanted, count());
  return wanted <= count() ? 1 : (wanted + count() - 1) / count();
}

bool SampleStore::few_targets() const {
  return 4 * all_targets_ <=
         3 * (offsets_.back() - all_sources_ - shared_of_first(num_different()));
}

double SampleStore::mean_pictures() const {
  if (num_pictures_.empty() || count() == 0) return 0;
  const auto all = std::accumulate(num_pictures_.begin(), num_pictures_.end(), int64_t{0});
  return static_cast<double>(all) / static_cast<double>(num_different());
}

int64_t SampleStore::most(int64_t wanted, int64_t (*of)(const SampleStore&, int64_t)) const {
  std::vector<int64_t> different, all;
  for (int64_t i = 0; i < num_different(); ++i) different.push_back(of(*this, i));
  for (int64_t i = 0; i < count(); ++i) all.push_back(different[static_cast<size_t>(place(i))]);
  const int64_t times = times_each(wanted);
  std::partial_sort(all.begin(), all.begin() + (wanted + times - 1) / times, all.end(),
                    std::greater<>());
  int64_t sum = 0;
  for (int64_t i = 0; i < wanted; ++i) sum += all[static_cast<size_t>(i / times)];
  return sum;
}

uint64_t SampleStore::fingerprint() const {
  uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a, a word at a time
  const auto mix = [&hash](uint64_t word) { hash = (hash ^ word) * 0x100000001B3ULL; };
  for (const int64_t offset : offsets_) mix(static_cast<uint64_t>(offset));
  for (const int32_t id : pool_) mix(static_cast<uint32_t>(id));
  for (const int32_t source : source_tokens_) mix(static_cast<uint32_t>(source));
  for (const int32_t pictures : num_pictures_) mix(static_cast<uint32_t>(pictures));
  if (count_ > 0) mix(static_cast<uint64_t>(count_));
  if (documents_per_sample_ > 1) mix(static_cast<uint64_t>(documents_per_sample_));
  for (const int64_t first : first_) mix(static_cast<uint64_t>(first));
  for (const ColumnOfNumbers& column : columns_)
    for (const float number : column.values) mix(std::bit_cast<uint32_t>(number));
  return hash;
}

}  // namespace snug::data
