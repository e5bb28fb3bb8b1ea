// T5 as a model, alone or within BLIP-2.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/weights/tensor_source.h"
#include "models/model.h"
#include "models/t5/config.h"
#include "models/t5/units.h"

namespace snug::models::t5 {

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files);

class T5Model final : public Model {
 public:
  // Weights are named `prefix` + their name in T5's own files.
  explicit T5Model(Config config, const std::string& prefix = "");
  std::vector<nn::Unit*> units() override;
  // Layers and heads are the decoder's, for the key-value cache.
  Dimensions dimensions() const override;
  std::vector<nn::SplitRow> split() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override { return to_hugging_face(config_); }
  double initializer_range() const override { return config_.initializer_factor; }
  void prepare(at::Device device, int64_t max_seqlen) override;
  data::Reading reads() const override;
  // Per average token, assuming that half of a document's tokens are its source's.
  double flops_per_token(double seqlen, double pictures) const override;
  void set_dropout(double probability) override { config_.dropout_rate = probability; }

 private:
  Config config_;
  BiasBuckets buckets_;
  std::vector<std::unique_ptr<nn::Unit>> units_;
};

}  // namespace snug::models::t5
