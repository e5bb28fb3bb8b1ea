// A plan beside what another program takes for the same recipe: where the difference is, and why.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/sample_store.h"
#include "models/model.h"
#include "plan/devices/device_profile.h"
#include "plan/fit.h"
#include "plan/rivals/litgpt_like.h"
#include "recipe/recipe.h"

namespace snug::plan {

class Like {
 public:
  virtual ~Like() = default;
  Like() = default;
  Like(const Like&) = delete;
  Like& operator=(const Like&) = delete;

  virtual bool fits() const = 0;
  virtual std::string text() const = 0;
  virtual nlohmann::json json() const = 0;

 protected:
  // Each at its own highest.
  struct Side {
    int64_t weights = 0, gradients = 0, states = 0, kept = 0, head = 0, update = 0;
  };
  static Side side_of(const plan::Prediction& prediction);
};

// `program`: litgpt or lightning. Throws UserError for a model or recipe that it is not planned
// with.
std::unique_ptr<Like> make_like(const std::string& program, const models::Model& model,
                                const plan::Candidate& candidate, const data::SampleStore& samples,
                                const plan::DeviceProfile& device);

// LitGPT's model, in LitGPT's own commands or in a Lightning Trainer.
class LikeLitgpt : public Like {
 public:
  LikeLitgpt(const std::string& program, const models::Model& model,
             const plan::Candidate& candidate, const data::SampleStore& samples,
             const plan::DeviceProfile& device);

  bool fits() const override;
  std::string text() const override;
  nlohmann::json json() const override;

 private:
  Side ours() const { return side_of(candidate_.prediction); }
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

}  // namespace snug::plan
