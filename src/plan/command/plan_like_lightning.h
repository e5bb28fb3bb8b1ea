// A plan beside what a Lightning script takes that trains a model of another library: transformers'
// BLIP-2 or minGPT.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/command/plan_like.h"
#include "plan/rivals/lightning_like.h"

namespace snug::plan {

class LikeLightning : public Like {
 public:
  LikeLightning(const std::string& program, const models::Model& model,
                const plan::Candidate& candidate, const data::SampleStore& samples,
                const plan::DeviceProfile& device);

  bool fits() const override;
  std::string text() const override;
  nlohmann::json json() const override;

 private:
  Side theirs() const;
  std::string whose() const;
  std::string phases() const;

  std::string model_type_;
  const plan::Candidate& candidate_;
  const plan::DeviceProfile& device_;
  plan::LightningOptions options_;
  plan::LightningLike like_;
};

}  // namespace snug::plan
