// SPDX-License-Identifier: Apache-2.0
#include "engine/asked/teacher.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/survey.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::engine {
namespace {

constexpr const char* kDocuments = "documents";
constexpr const char* kEnds = "ends";
constexpr const char* kTopK = "top_k";

// FNV-1a of the tokens as they are stored, with which of them are learnt. A file has it, so it may
// not change.
int64_t hash_of(std::span<const int32_t> stored) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const int32_t id : stored) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001B3ULL;
  return static_cast<int64_t>(hash);
}

// The first token is no target: nothing comes before it.
bool is_target(std::span<const int32_t> stored, size_t token) {
  return token > 0 && stored[token] >= 0;
}

int64_t num_targets(std::span<const int32_t> stored) {
  int64_t count = 0;
  for (size_t i = 0; i < stored.size(); ++i) count += is_target(stored, i);
  return count;
}

template <class Visit>
void for_each_document(const data::SampleStore& samples, const Visit& visit) {
  for (int64_t i = 0; i < samples.num_different(); ++i)
    for (int64_t d = 0; d < samples.num_documents(i); ++d) visit(i, samples.document(i, d).stored);
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& numbers) {
  return std::as_bytes(std::span(numbers));
}

files::TensorInfo described(const char* name, files::DType dtype, std::vector<int64_t> shape) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
  return {.name = name,
          .dtype = dtype,
          .shape = std::move(shape),
          .nbytes = count * (dtype == files::DType::I64 ? 8 : 4)};
}

}  // namespace

int64_t write_top_k(const TopKFile& file, const std::vector<TaughtSamples>& all,
                    exec::Executor& executor, const ValidationOptions& options) {
  std::vector<int64_t> documents, ends;
  int64_t targets = 0;
  for (const TaughtSamples& part : all)
    for_each_document(part.samples, [&](int64_t, std::span<const int32_t> stored) {
      documents.push_back(hash_of(stored));
      ends.push_back(targets += num_targets(stored));
    });
  const auto count = std::ssize(documents);
  std::map<std::string, std::string> notes = file.notes;
  notes["format"] = "pt";
  files::SafetensorsWriter out(file.path,
                               {described(kDocuments, files::DType::I64, {count}),
                                described(kEnds, files::DType::I64, {count}),
                                described(kTopK, files::DType::F32, {targets, 2 * file.top_k})},
                               notes);
  out.write(kDocuments, bytes_of(documents));
  out.write(kEnds, bytes_of(ends));
  int64_t before = 0;
  for (const TaughtSamples& part : all) {
    ValidationOptions own = options;
    own.after_each = [&](int64_t done) {
      if (options.after_each) options.after_each(before + done);
    };
    top_k_of_targets(executor, part.batches, part.samples.num_different(), file.top_k, own,
                     [&](std::span<const float> rows) { out.write(kTopK, std::as_bytes(rows)); });
    before += part.samples.num_different();
  }
  out.finish();
  return targets;
}

namespace {

const std::string& there(const std::string& path) {
  if (!std::filesystem::exists(path))
    throw UserError(
        "objective.teacher = {}: there is no such file; name a model, or have the file written by "
        "snug evaluate TEACHER --save_top_k 64 --teacher_file {}",
        path, path);
  return path;
}

class Teacher {
 public:
  Teacher(const std::string& path, int64_t top_k, int64_t vocabulary)
      : file_(files::open_safetensors(there(path))), top_k_(top_k), vocabulary_(vocabulary) {
    documents_ = counts_of(kDocuments);
    ends_ = counts_of(kEnds);
    tokens_ = file_->find(kTopK);
    if (tokens_ == nullptr || tokens_->dtype != files::DType::F32 || tokens_->shape.size() != 2 ||
        tokens_->shape[1] % 2 != 0 || documents_.size() != ends_.size() ||
        !std::ranges::is_sorted(ends_) || (!ends_.empty() && ends_.front() < 0) ||
        tokens_->shape[0] != (ends_.empty() ? 0 : ends_.back()))
      refuse("is not a file that snug evaluate --save_top_k writes");
    if (const int64_t has = tokens_->shape[1] / 2; has < top_k)
      throw UserError(
          "{} has the {} most likely tokens of each target, and objective.top_k is {}; give "
          "--objective.top_k {}, or write it again with snug evaluate --save_top_k {}",
          path, has, top_k, has, top_k);
    for (size_t i = documents_.size(); i-- > 0;) at_[documents_[i]] = i;
  }

  std::string label() const { return file_->label(); }
  std::map<std::string, std::string> notes() const {
    return files::read_safetensors_metadata(file_->label());
  }

  bool knows(std::span<const int32_t> stored) const {
    const auto found = at_.find(hash_of(stored));
    return found != at_.end() &&
           ends_[found->second] - begin_of(found->second) == num_targets(stored);
  }

  // `values` (tokens, 2 K): filled in for the document's targets.
  void place(std::span<const int32_t> stored, std::span<float> values) {
    const size_t at = at_.at(hash_of(stored));
    const int64_t has = tokens_->shape[1] / 2, begin = begin_of(at), count = ends_[at] - begin;
    read_.resize(static_cast<size_t>(count * 2 * has));
    file_->read(*tokens_, files::DType::F32, read_.data(), begin * 2 * has, count * 2 * has);
    std::span<const float> from = read_;
    const auto width = static_cast<size_t>(2 * top_k_);
    for (size_t token = 0; token < stored.size(); ++token) {
      if (!is_target(stored, token)) continue;
      place_row(from, values.subspan(token * width, width));
      from = from.subspan(static_cast<size_t>(2 * has));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError("{} {}", file_->label(), why);
  }

  std::vector<int64_t> counts_of(const char* name) const {
    const files::TensorInfo* tensor = file_->find(name);
    if (tensor == nullptr || tensor->dtype != files::DType::I64 || tensor->shape.size() != 1)
      refuse("is not a file that snug evaluate --save_top_k writes");
    std::vector<int64_t> numbers(static_cast<size_t>(tensor->shape[0]));
    file_->read(*tensor, files::DType::I64, numbers.data());
    return numbers;
  }

  int64_t begin_of(size_t document) const { return document == 0 ? 0 : ends_[document - 1]; }

  void place_row(std::span<const float> from, std::span<float> to) {
    const auto k = static_cast<size_t>(top_k_);
    const size_t has = static_cast<size_t>(tokens_->shape[1]) / 2;
    double sum = 0;
    seen_.clear();
    for (size_t i = 0; i < k; ++i) {
      const float id = from[i], log_p = from[has + i];
      const bool is_id = id >= 0 && id < 0x1p24F && id == std::floor(id);
      if (!is_id || !(log_p <= 1e-3F))
        refuse(fmt::format("has a token {} of probability exp({})", id, log_p));
      sum += std::exp(static_cast<double>(log_p));
      seen_.push_back(id);
      to[i] = id < static_cast<float>(vocabulary_) ? id : -1;
      to[k + i] = log_p;
    }
    std::ranges::sort(seen_);
    if (std::ranges::adjacent_find(seen_) != seen_.end() || sum > 1.001)
      refuse("has a target with a token twice, or with probabilities of more than 1 together");
  }

  std::unique_ptr<files::TensorSource> file_;
  int64_t top_k_, vocabulary_;
  const files::TensorInfo* tokens_ = nullptr;
  std::vector<int64_t> documents_, ends_;
  std::unordered_map<int64_t, size_t> at_;
  std::vector<float> read_, seen_;
};

// The numbers of all samples, for which `place` fills in each document's.
template <class Place>
void add_column(data::SampleStore& samples, int64_t top_k, const Place& place) {
  if (samples.empty()) return;
  const int64_t width = 2 * top_k;
  data::ColumnOfNumbers column{.is_per_target = true, .width = width};
  size_t tokens = 0;
  for_each_document(samples,
                    [&](int64_t, std::span<const int32_t> stored) { tokens += stored.size(); });
  column.values.resize(tokens * static_cast<size_t>(width));
  std::span<float> left = column.values;
  for_each_document(samples, [&](int64_t, std::span<const int32_t> stored) {
    const size_t own = stored.size() * static_cast<size_t>(width);
    place(stored, left.first(own));
    left = left.subspan(own);
  });
  samples.set_columns({std::move(column)});
}

// Tokens from all over the vocabulary, each as likely as all others together.
void make_up(std::span<float> values, int64_t top_k, int64_t vocabulary) {
  const float log_p = -std::log(static_cast<float>(top_k + 1));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i) % (2 * top_k);
    const int64_t id = vocabulary < top_k ? column : column * vocabulary / top_k;
    values[i] = column >= top_k ? log_p : id < vocabulary ? static_cast<float>(id) : -1;
  }
}

// By rows, so that the first one is named.
void check_known(const Teacher& teacher, const data::Dataset& dataset,
                 const std::map<std::string, std::string>& here) {
  int64_t missing = 0;
  data::SampleAt first;
  const std::vector<data::SampleAt> all = data::samples_by_row(dataset);
  for (const data::SampleAt at : all) {
    const data::SampleStore& samples = at.held_out ? dataset.validation : dataset.train;
    bool knows = true;
    for (int64_t d = 0; d < samples.num_documents(at.index); ++d)
      knows = knows && teacher.knows(samples.document(at.index, d).stored);
    if (!knows && missing++ == 0) first = at;
  }
  if (missing == 0) return;
  const std::string what = fmt::format(
      "{} says nothing of {} of {} samples, such as row {}", teacher.label(), with_commas(missing),
      with_commas(std::ssize(all)), with_commas(data::row_number(dataset, first)));
  const std::map<std::string, std::string> written = teacher.notes();
  for (const auto& [option, value] : here)
    if (const auto found = written.find(option); found != written.end() && found->second != value)
      throw UserError(
          "{}: it was written with {} {}, and here it is {}; give --data.{} {} here, or have it "
          "written with --data.{} {}",
          what, option, found->second, value, option, found->second, option, value);
  throw UserError(
      "{}: it is of other rows, or they were made otherwise; have it written by snug evaluate "
      "TEACHER --save_top_k with the same data and --max_seq_length as here, by a teacher with the "
      "same tokenizer",
      what);
}

}  // namespace

std::map<std::string, std::string> notes_on(const data::Dataset& dataset,
                                            std::optional<bool> mask_prompt) {
  std::map<std::string, std::string> notes{{"prompt_style", dataset.prompt_style}};
  if (const auto masks = data::masks_prompts(dataset, mask_prompt))
    notes["mask_prompt"] = *masks ? "true" : "false";
  return notes;
}

bool is_top_k_file(const std::filesystem::path& path) {
  std::error_code none;
  // A name without a file is that of a file, too: what is missing is what the message says.
  return path.extension() == ".safetensors" && !std::filesystem::is_directory(path, none);
}

void add_teacher(data::Dataset& dataset, const std::filesystem::path& file, int64_t top_k,
                 int64_t vocabulary, std::optional<bool> mask_prompt) {
  Teacher teacher(file, top_k, vocabulary);
  check_known(teacher, dataset, notes_on(dataset, mask_prompt));
  for (data::SampleStore* samples : {&dataset.train, &dataset.validation})
    add_column(*samples, top_k, [&](std::span<const int32_t> stored, std::span<float> values) {
      teacher.place(stored, values);
    });
}

void make_up_teacher(data::Dataset& dataset, int64_t top_k, int64_t vocabulary) {
  for (data::SampleStore* samples : {&dataset.train, &dataset.validation})
    add_column(*samples, top_k, [&](std::span<const int32_t> /*stored*/, std::span<float> values) {
      make_up(values, top_k, vocabulary);
    });
}

}  // namespace snug::engine
