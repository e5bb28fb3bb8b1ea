// Compares a plan with what another program takes for the same recipe, and explains the difference.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/sample_store.h"
#include "models/model.h"
#include "plan/devices/device_profile.h"
#include "plan/fit.h"
#include "plan/rivals/like.h"
#include "recipe/options/commands.h"
#include "recipe/recipe.h"

namespace snug::plan {

class Like {
 public:
  // For `options.like`. A recipe of transformers' kin that has Liger's kernels on has them here as
  // far as they are known for the model; one that DeepSpeed trains has that. Throws UserError for a
  // model or recipe that cannot be planned for that program.
  Like(const recipe::PlanOptions& options, const models::Model& model,
       const plan::Candidate& candidate, const data::SampleStore& samples,
       const plan::DeviceProfile& device);

  bool fits() const;
  std::string text() const;
  nlohmann::json json() const;

 private:
  // Each category's own maximum.
  struct Side {
    int64_t weights = 0, gradients = 0, states = 0, kept = 0, head = 0, update = 0,
            communication = 0;
  };
  // A line of the other program's recipe, changed alone.
  struct Change {
    std::string line;
    int64_t peak_allocated = 0;
    bool fits = false;
  };
  rivals::Options options_of(const recipe::PlanOptions& options, const models::Model& model,
                             const data::SampleStore& samples) const;
  StepCost cost_of(const models::Model& model) const;
  static Side side_of(const plan::Prediction& prediction);
  Side ours() const { return side_of(candidate_.prediction); }
  Side theirs() const;
  std::string table() const;
  std::string changes() const;
  std::string why_weights() const;
  std::string why_kept() const;
  std::string phases() const;
  std::string whose() const;
  std::string whose_litgpt() const;
  bool fits(const rivals::Figures& figures) const;
  void try_changes(const models::Model& model);

  std::string program_, model_type_;
  bool transformers_;  // a decoder in transformers' Trainer
  bool litgpt_;        // LitGPT's model, in its own commands or in a Lightning Trainer
  const plan::Candidate& candidate_;
  const plan::DeviceProfile& device_;
  int64_t num_blocks_;
  bool tied_;           // LitGPT trains embedding and head apart
  int64_t our_tokens_;  // of our micro-batch
  double pictures_;     // of a sample
  rivals::Options options_;
  rivals::Figures like_;
  StepCost cost_;                // as snug's, with what the other program writes and pads
  std::vector<Change> changes_;  // of transformers
};

}  // namespace snug::plan
