// One row, planned and run: the processes it takes and the result that comes of them. Knows nothing
// of other rows and of the folder's lab.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/result.h"
#include "lab/run/lab_folder.h"
#include "lab/run/progress.h"
#include "recipe/options/commands.h"

namespace snug::lab {

class RowWork {
 public:
  // `suite` with what the user's options change of all rows; `folder` null: nothing is written.
  // `gpu`: the name of the one that runs here use; empty: none.
  RowWork(const Suite& suite, Mode mode, Settings extra, double row_timeout,
          const LabFolder* folder, const std::string& gpu)
      : suite_(suite),
        mode_(mode),
        extra_(std::move(extra)),
        row_timeout_(row_timeout),
        folder_(folder),
        gpu_profile_(profile_of(gpu)) {}

  // All that the result comes from: the words, what the files among them hold, snug's version.
  std::string made_from(const Row& row) const;

  // `snug plan`; several threads may ask at once.
  RowResult plan(const Row& row) const;
  // Plan and run. `show` is called now and then with what is going on.
  RowResult run(const Row& row, const std::function<void(const RowStatus&)>& show) const;

  // The words are ones that the program takes. Throws UserError.
  void check_words(const Row& row) const;
  // As the words and the recipe that they start from have it.
  bool is_for_processor(const Row& row) const;  // its run
  bool has_budget(const Row& row) const;        // its run is held to a memory_budget

 private:
  std::vector<std::string> plan_words(const Row& row) const;
  std::vector<std::string> run_words(const Row& row, const std::filesystem::path& out_dir) const;
  std::filesystem::path out_dir(const Row& row) const;
  double run_timeout() const;
  RowResult empty_result(const Row& row) const;
  static std::string profile_of(const std::string& gpu);

  const Suite& suite_;
  Mode mode_;
  Settings extra_;
  double row_timeout_;
  const LabFolder* folder_;
  std::string gpu_profile_;
};

// Words that plan a run on this machine, whose GPU is `gpu` as --device of plans has it (empty: it
// has none that is known): for that GPU, unless the run is told to take the processor.
std::vector<std::string> on_this_machine(std::vector<std::string> plan_words,
                                         const std::string& gpu);

// "train.max_steps=10" -> that option. Throws UserError.
Settings read_settings(const std::vector<std::string>& texts);

}  // namespace snug::lab
