// SPDX-License-Identifier: Apache-2.0
#include "train/other_models.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "engine/asked/asked_model.h"
#include "engine/asked/teacher.h"
#include "engine/open_data.h"
#include "files/weights/safetensors/safetensors.h"
#include "recipe/tables/objectives.h"
#include "report/progress_line.h"

namespace snug::train {
namespace {

namespace fs = std::filesystem;

int64_t num_samples(const data::Dataset& dataset) {
  int64_t samples = 0;
  for (const data::SampleStore* store :
       {&dataset.train, &dataset.validation, &dataset.train_others, &dataset.validation_others})
    samples += store->num_different();
  return samples;
}

// Shows how far it is, and asks now and then whether somebody wants to stop.
class Asking {
 public:
  Asking(const AskedRows& rows, const char* what)
      : progress_(what, static_cast<size_t>(num_samples(rows.dataset)), rows.world.rank() == 0),
        check_stop_(rows.check_stop),
        between_questions_(rows.world.size() > 1 ? 64 : 1) {}

  void operator()(int64_t done) {
    progress_.show(static_cast<size_t>(done));
    if (done < asked_at_ + between_questions_) return;
    asked_at_ = done;
    check_stop_();
  }
  double end() {
    progress_.clear();
    return progress_.seconds();
  }

 private:
  report::ProgressLine progress_;
  std::function<void()> check_stop_;
  int64_t between_questions_;  // samples: several processes talk to each other
  int64_t asked_at_ = 0;
};

engine::LanguageModel open_other(const AskedRows& rows, const char* option,
                                 const std::string& path) {
  if (rows.tokenizer == nullptr)
    throw UserError("{} = {}: random samples are no texts that it could be asked about", option,
                    path);
  return engine::open_asked_model({.option = option,
                                   .path = path,
                                   .precision = engine::plain_precision(rows.recipe.precision),
                                   .data = &rows.recipe.data},
                                  rows.device, *rows.tokenizer, rows.dataset);
}

engine::ValidationOptions pass_of(const AskedRows& rows, const nn::Precision& precision,
                                  Asking& asking) {
  return {.micro_batch_size = rows.recipe.train.micro_batch_size,
          .compute = precision.compute,
          .after_each = [&](int64_t done) { asking(done); }};
}

// What the teacher says of all rows, in `file`.
void write_words(const AskedRows& rows, const fs::path& file) {
  const recipe::ObjectiveOptions& o = rows.recipe.objective;
  const engine::LanguageModel teacher = open_other(rows, "objective.teacher", o.teacher);
  if (const int64_t vocabulary = teacher.model->dimensions().vocabulary; vocabulary < o.top_k)
    throw UserError("objective.top_k = {}: {} has {} tokens; give at most so many", o.top_k,
                    o.teacher, vocabulary);
  std::vector<engine::TaughtSamples> all = {{rows.dataset.train, rows.train}};
  if (!rows.dataset.validation.empty()) all.push_back({rows.dataset.validation, rows.validation});
  Asking asking(rows, "samples of the teacher");
  std::map<std::string, std::string> notes =
      engine::notes_on(rows.dataset, rows.recipe.data.mask_prompt);
  notes["model"] = o.teacher;
  const int64_t targets =
      engine::write_top_k({.path = file, .top_k = o.top_k, .notes = std::move(notes)}, all,
                          *teacher.executor, pass_of(rows, teacher.precision, asking));
  rows.log.print(fmt::format("Teacher  {} was asked about {} tokens, {:.1f} s", o.teacher,
                             with_commas(targets), asking.end()));
}

// What the run's own options say against a lack of memory is of another model.
void with_room(const char* option, const std::string& path, const std::string& instead,
               const std::function<void()>& ask) {
  try {
    ask();
  } catch (const OutOfMemory& error) {
    throw UserError(
        "{} = {}: this model does not fit while it is asked, before the one that is "
        "trained is loaded ({}); {}",
        option, path, error.what(), instead);
  }
}

}  // namespace

void check_has_teacher(const recipe::Recipe& recipe) {
  const recipe::ObjectiveOptions& o = recipe.objective;
  if (recipe::has_teacher(o.name) && o.teacher.empty() && !engine::is_synthetic(recipe.data))
    throw UserError(
        "objective {} learns from another model: name it with --objective.teacher MODEL, or have "
        "what it says written once by snug evaluate MODEL --save_top_k {}, and give that file",
        o.name, o.top_k);
}

fs::path learn_from_teacher(const AskedRows& rows) {
  const recipe::ObjectiveOptions& o = rows.recipe.objective;
  if (o.teacher.empty()) {
    engine::make_up_teacher(rows.dataset, o.top_k, rows.vocabulary);
    return {};
  }
  const auto add = [&](const fs::path& file) {
    engine::add_teacher(rows.dataset, file, o.top_k, rows.vocabulary, rows.recipe.data.mask_prompt);
  };
  if (engine::is_top_k_file(o.teacher)) {
    add(o.teacher);
    return {};
  }
  if (rows.world.size() > 1)
    throw UserError(
        "objective.teacher = {}: a model is asked by one process; have what it says written by "
        "snug evaluate {} --data … --save_top_k {}, and give that file; that of several data sets "
        "is what a run of one process and one step leaves in its out_dir",
        o.teacher, o.teacher, o.top_k);
  const fs::path kept = rows.resumes.empty() ? fs::path() : file_of_run(rows.resumes, kTeacherFile);
  fs::path file = fs::path(rows.recipe.out_dir) / "live" / (std::string(kTeacherFile) + ".new");
  if (fs::exists(kept)) {
    if (const std::string before = files::read_safetensors_metadata(kept)["model"];
        before != o.teacher)
      throw UserError(
          "{} was written by a run with the teacher {}, and now it is {}; resume with that one, or "
          "start over with --resume false",
          rows.resumes.string(), before, o.teacher);
    rows.log.print(fmt::format("Teacher  what {} said is in {}", o.teacher, kept.string()));
    fs::copy_file(kept, file, fs::copy_options::overwrite_existing);
  } else {
    with_room("objective.teacher", o.teacher,
              fmt::format("have what it says written by snug evaluate {} --data … --save_top_k {} "
                          "--quantize bnb.nf4, and give that file",
                          o.teacher, o.top_k),
              [&] { write_words(rows, file); });
  }
  add(file);
  return file;
}

namespace {

ReferenceNumbers asked_reference(const AskedRows& rows) {
  const std::string& path = rows.recipe.objective.reference;
  const engine::LanguageModel other = open_other(rows, "objective.reference", path);
  // Each process asks about its part, however it trains.
  dist::MeshShape all;
  all[dist::Axis::Replicate] = rows.world.size();
  const auto mesh = rows.world.make_mesh(all, rows.device);
  Asking asking(rows, "samples of the reference");
  ReferenceNumbers numbers = compute_reference(
      rows.dataset, rows.train, rows.validation,
      [&](data::BatchSource& samples, int64_t count, const auto& after_each) {
        engine::ValidationOptions pass = pass_of(rows, other.precision, asking);
        pass.after_each = after_each;
        return engine::log_probs_of_documents(*other.executor, samples, count, pass, mesh.get());
      },
      [&](int64_t done) { asking(done); });
  rows.log.print(fmt::format("Reference {} was asked about {} samples, {:.1f} s", path,
                             with_commas(num_samples(rows.dataset)), asking.end()));
  return numbers;
}

}  // namespace

ReferenceNumbers ask_reference(const AskedRows& rows) {
  ReferenceNumbers numbers;
  with_room("objective.reference", rows.recipe.objective.reference,
            "train beside a smaller one, or beside the model before training",
            [&] { numbers = asked_reference(rows); });
  return numbers;
}

ReferenceNumbers ask_before_training(const AskedRows& rows, engine::Run& run) {
  const bool pairs = rows.dataset.train.documents_per_sample() > 1;
  Asking asking(rows, pairs ? "pairs of the reference" : "answers of the reference");
  ReferenceNumbers numbers = compute_reference(
      rows.dataset, rows.train, rows.validation,
      [&](data::BatchSource& samples, int64_t count, const auto& after_each) {
        return run.log_probs(samples, count, after_each);
      },
      [&](int64_t done) { asking(done); });
  size_t answers = 0;
  for (const std::vector<float>& part : numbers) answers += part.size();
  rows.log.print(fmt::format(
      "Reference {} log-probabilities of answers by the model before training, {:.1f} s",
      with_commas(static_cast<int64_t>(answers)), asking.end()));
  return numbers;
}

}  // namespace snug::train
