// SPDX-License-Identifier: Apache-2.0
#include "train/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/dist/agreement.h"
#include "files/weights/safetensors/safetensors.h"

namespace snug::train {
namespace {

using Numbers = std::vector<float>;

Numbers computed(engine::Run& run, data::BatchSource& batches, const data::SampleStore& samples,
                 const std::function<void(int64_t)>& after_each) {
  const std::vector<double> sums = run.log_probs(batches, samples.num_different(), after_each);
  return {sums.begin(), sums.end()};
}

int64_t num_documents(const data::SampleStore& samples) {
  return samples.num_different() * samples.documents_per_sample();
}

std::map<std::string, std::string> identity_of(const data::Dataset& dataset) {
  return {{"format", "pt"},
          {"data", fmt::format("{:016x} {:016x}", dataset.train.fingerprint(),
                               dataset.validation.fingerprint())}};
}

files::TensorInfo described(const char* name, int64_t count) {
  return {.name = name, .dtype = files::DType::F32, .shape = {count}, .nbytes = 4 * count};
}

void write(const std::filesystem::path& path, const data::Dataset& dataset, const Numbers& train,
           const Numbers& validation) {
  files::SafetensorsWriter out(
      path,
      {described("train", std::ssize(train)), described("validation", std::ssize(validation))},
      identity_of(dataset));
  out.write("train", std::as_bytes(std::span(train)));
  out.write("validation", std::as_bytes(std::span(validation)));
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

void add(data::SampleStore& samples, Numbers numbers) {
  if (!samples.empty()) samples.set_columns({{.values = std::move(numbers)}});
}

}  // namespace

std::filesystem::path reference_of(const std::filesystem::path& checkpoint) {
  const std::filesystem::path run = checkpoint.parent_path();
  const bool is_aside = !std::filesystem::exists(run / "run.json");
  return (is_aside ? run.parent_path() : run) / kReferenceFile;
}

void check_reference(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = reference_of(checkpoint);
  if (!std::filesystem::exists(path))
    throw UserError(
        "{} is missing, which has the log-probabilities of the model before training; train anew "
        "with --resume false",
        path.string());
}

bool needs_reference(const nn::Objective& objective) {
  return std::ranges::any_of(objective.batch().columns,
                             [](const nn::Column& column) { return column.name == "reference"; });
}

int64_t add_reference(engine::Run& run, data::Dataset& dataset, data::BatchSource& train,
                      data::BatchSource& validation, const ReferenceFile& file,
                      const dist::Mesh& mesh, const std::function<void(int64_t)>& after_each) {
  Numbers of_train, of_validation;
  int64_t num_computed = 0;
  if (file.earlier) {
    const std::string path = file.earlier->string();
    if (files::read_safetensors_metadata(path) != identity_of(dataset))
      throw UserError("{} is of other data; train anew with --resume false", path);
    const auto source = files::open_safetensors(path);
    of_train = read(*source, "train", dataset.train);
    of_validation = read(*source, "validation", dataset.validation);
  } else {
    of_train = computed(run, train, dataset.train, after_each);
    of_validation = computed(run, validation, dataset.validation, [&](int64_t done) {
      after_each(dataset.train.num_different() + done);
    });
    num_computed = std::ssize(of_train) + std::ssize(of_validation);
  }
  dist::agree(&mesh.world(), [&]() -> std::string {
    std::error_code none;  // of two paths of which one is not there
    const bool is_own = file.earlier && std::filesystem::equivalent(*file.earlier, file.path, none);
    if (mesh.world().rank() == 0 && !is_own) write(file.path, dataset, of_train, of_validation);
    return "";
  });
  add(dataset.train, std::move(of_train));
  add(dataset.validation, std::move(of_validation));
  return num_computed;
}

}  // namespace snug::train
