// A plan beside what LitGPT takes for the same recipe: where the difference is, and why.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/recipe.h"
#include "data/sample_store.h"
#include "models/model.h"
#include "plan/device_profile.h"
#include "plan/fit.h"
#include "plan/litgpt_like.h"

namespace snug::train {

class LikeLitgpt {
 public:
  // `program`: litgpt or lightning.
  LikeLitgpt(const std::string& program, const models::Model& model,
             const plan::Candidate& candidate, const data::SampleStore& samples,
             const plan::DeviceProfile& device);

  bool fits() const;
  std::string text() const;
  nlohmann::json json() const;

 private:
  struct Side {
    int64_t weights = 0, gradients = 0, states = 0, kept = 0, head = 0, update = 0;
  };
  Side ours() const;
  Side theirs() const;
  std::string why_kept() const;
  std::string whose() const;

  std::string program_;
  const plan::Candidate& candidate_;
  const plan::DeviceProfile& device_;
  int64_t num_blocks_;
  bool tied_;           // LitGPT trains embedding and head apart
  int64_t our_tokens_;  // of our micro-batch
  plan::LitgptOptions options_;
  plan::LitgptLike like_;
};

}  // namespace snug::train
