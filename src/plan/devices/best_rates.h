// Rates that were measured on this machine, remembered at their best in a JSON file, so that a busy
// moment does not make a plan slow and two plans of one recipe soon say the same. Delete the file
// to begin anew.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>

namespace snug::plan {

class BestRates {
 public:
  // Reads the file. Where it is missing, is not readable or lacks one of `names`, nothing is known
  // and all of them are 0.
  BestRates(std::filesystem::path path, std::initializer_list<const char*> names);

  bool is_known() const { return is_known_; }
  double operator[](const std::string& name) const { return rates_.at(name); }
  // Takes `now` where that is clearly more than what is remembered; less is a neighbour's doing.
  void raise(const std::string& name, double now);
  // Writes what was raised; of several programs at once the best stays. A place that cannot be
  // written to is no fault: it is measured again next time.
  void save();

 private:
  std::filesystem::path path_;
  std::map<std::string, double> rates_;
  bool is_known_ = false, is_raised_ = false;
};

// snug's cache folder: $SNUG_CACHE, else ~/.cache/snug.
std::filesystem::path rates_folder();

}  // namespace snug::plan
