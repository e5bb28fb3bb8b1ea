// Plans and runs one row, in processes of its own, and collects its result. Does not depend on
// other rows or on the folder's lab.json.
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
  // `extra`: the user's options, for all rows. A null `folder`: nothing is written. `gpu`: the name
  // of the GPU that runs here use; empty: none.
  RowWork(const Suite& suite, Mode mode, Settings extra, double row_timeout,
          const LabFolder* folder, const std::string& gpu)
      : suite_(suite),
        mode_(mode),
        extra_(std::move(extra)),
        row_timeout_(row_timeout),
        folder_(folder),
        gpu_profile_(profile_of(gpu)) {}

  // Identifies what a result is made from: the arguments, the contents of files among them, snug's
  // version.
  std::string made_from(const Row& row) const;

  // `snug plan`. Thread-safe.
  RowResult plan(const Row& row) const;
  // Plans and runs. `show` is called about twice a second.
  RowResult run(const Row& row, const std::function<void(const RowStatus&)>& show) const;

  // Throws UserError if the program would not accept the row's arguments.
  void check_words(const Row& row) const;
  // What the row's run is, by its arguments and the recipe it starts from:
  bool is_for_processor(const Row& row) const;
  bool has_budget(const Row& row) const;  // has a memory_budget

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

// Arguments that plan a run on this machine: for its GPU (a profile's name; empty: none that is
// known), unless the run uses the CPU.
std::vector<std::string> on_this_machine(std::vector<std::string> plan_words,
                                         const std::string& gpu);

// "train.max_steps=10" -> that option. Throws UserError.
Settings read_settings(const std::vector<std::string>& texts);

}  // namespace snug::lab
