// OPT as a model, alone or within BLIP-2.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/weights/tensor_source.h"
#include "models/model.h"
#include "models/opt/config.h"

namespace snug::models::opt {

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files);

class OptModel final : public Model {
 public:
  // Weights are named `prefix` + their name in OPT's own files. `files_omit`: a prefix of our names
  // that the files lack; empty: none.
  explicit OptModel(Config config, std::string files_omit = "", const std::string& prefix = "");
  std::vector<nn::Unit*> units() override;
  Dimensions dimensions() const override;
  std::vector<nn::SplitRow> split() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override { return to_hugging_face(config_); }
  double initializer_range() const override { return config_.init_std; }
  // Throws UserError if max_seqlen exceeds the learned positions.
  void prepare(at::Device device, int64_t max_seqlen) override;
  void set_dropout(double probability) override;

 private:
  Config config_;
  std::string files_omit_;
  std::vector<std::unique_ptr<nn::Unit>> units_;
};

}  // namespace snug::models::opt
