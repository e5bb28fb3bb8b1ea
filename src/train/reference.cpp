// SPDX-License-Identifier: Apache-2.0
#include "train/reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/dist/agreement.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::train {
namespace {

using Numbers = std::vector<float>;

int64_t num_documents(const data::SampleStore& samples) {
  return samples.num_different() * samples.documents_per_sample();
}

// A data set's samples, and the batches that are made of them.
struct Part {
  const char* name;  // in the file
  data::SampleStore& samples;
  data::BatchSource* batches;
};

// Without those that there are none of.
std::vector<Part> parts_of(data::Dataset& dataset, data::BatchSource& train,
                           data::BatchSource& validation) {
  std::vector<Part> parts{{"train", dataset.train, &train},
                          {"validation", dataset.validation, &validation}};
  if (!dataset.train_others.empty())
    parts.push_back({"train_others", dataset.train_others, train.others()});
  if (!dataset.validation_others.empty())
    parts.push_back({"validation_others", dataset.validation_others, validation.others()});
  return parts;
}

std::map<std::string, std::string> identity_of(const std::vector<Part>& parts) {
  std::vector<std::string> fingerprints;
  for (const Part& part : parts)
    fingerprints.push_back(fmt::format("{:016x}", part.samples.fingerprint()));
  return {{"format", "pt"}, {"data", fmt::format("{}", fmt::join(fingerprints, " "))}};
}

files::TensorInfo described(const char* name, int64_t count) {
  return {.name = name, .dtype = files::DType::F32, .shape = {count}, .nbytes = 4 * count};
}

void write(const std::filesystem::path& path, const std::vector<Part>& parts,
           const std::vector<Numbers>& numbers) {
  std::vector<files::TensorInfo> tensors;
  for (size_t i = 0; i < parts.size(); ++i)
    tensors.push_back(described(parts[i].name, std::ssize(numbers[i])));
  files::SafetensorsWriter out(path, tensors, identity_of(parts));
  for (size_t i = 0; i < parts.size(); ++i)
    out.write(parts[i].name, std::as_bytes(std::span(numbers[i])));
  out.finish();
}

Numbers read(const files::TensorSource& file, const char* name, const data::SampleStore& samples) {
  const files::TensorInfo* tensor = file.find(name);
  Numbers numbers(static_cast<size_t>(num_documents(samples)));
  if (tensor == nullptr || tensor->shape != std::vector<int64_t>{std::ssize(numbers)})
    throw UserError(
        "{}: \"{}\" has not a number for each of {} answers; train anew with "
        "--resume false",
        file.label(), name, numbers.size());
  file.read(*tensor, files::DType::F32, numbers.data());
  return numbers;
}

// Behind the columns that the samples have.
void add(data::SampleStore& samples, Numbers numbers) {
  if (samples.empty()) return;
  std::vector<data::ColumnOfNumbers> columns = samples.columns();
  columns.push_back({.values = std::move(numbers)});
  samples.set_columns(std::move(columns));
}

}  // namespace

std::filesystem::path file_of_run(const std::filesystem::path& checkpoint, const char* name) {
  const std::filesystem::path run = checkpoint.parent_path();
  const bool is_aside = !std::filesystem::exists(run / "run.json");
  return (is_aside ? run.parent_path() : run) / name;
}

void check_reference(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = file_of_run(checkpoint, kReferenceFile);
  if (!std::filesystem::exists(path))
    throw UserError(
        "{} is missing, which has the log-probabilities of the model before training; train anew "
        "with --resume false",
        path.string());
}

ReferenceNumbers compute_reference(data::Dataset& dataset, data::BatchSource& train,
                                   data::BatchSource& validation, const LogProbs& log_probs,
                                   const std::function<void(int64_t)>& after_each) {
  ReferenceNumbers numbers;
  int64_t samples_before = 0;
  for (const Part& part : parts_of(dataset, train, validation)) {
    const std::vector<double> sums =
        log_probs(*part.batches, part.samples.num_different(),
                  [&](int64_t done) { after_each(samples_before + done); });
    numbers.emplace_back(sums.begin(), sums.end());
    samples_before += part.samples.num_different();
  }
  return numbers;
}

ReferenceNumbers read_reference(const std::filesystem::path& file, data::Dataset& dataset,
                                data::BatchSource& train, data::BatchSource& validation) {
  const std::vector<Part> parts = parts_of(dataset, train, validation);
  if (files::read_safetensors_metadata(file) != identity_of(parts))
    throw UserError("{} is of other data; train anew with --resume false", file.string());
  ReferenceNumbers numbers;
  const auto source = files::open_safetensors(file);
  for (const Part& part : parts) numbers.push_back(read(*source, part.name, part.samples));
  return numbers;
}

void keep_reference(ReferenceNumbers numbers, data::Dataset& dataset, data::BatchSource& train,
                    data::BatchSource& validation, const ReferenceFile& file,
                    const dist::Mesh& mesh) {
  const std::vector<Part> parts = parts_of(dataset, train, validation);
  dist::agree(&mesh.world(), [&]() -> std::string {
    std::error_code none;  // of two paths of which one is not there
    const bool is_own = file.earlier && std::filesystem::equivalent(*file.earlier, file.path, none);
    if (mesh.world().rank() == 0 && !is_own) write(file.path, parts, numbers);
    return "";
  });
  for (size_t i = 0; i < parts.size(); ++i) add(parts[i].samples, std::move(numbers[i]));
}

}  // namespace snug::train
