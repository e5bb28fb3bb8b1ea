// GPT-2 as a model: its units and its tensor names in Hugging Face files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/weights/tensor_source.h"
#include "models/gpt2/units.h"
#include "models/model.h"

namespace snug::models::gpt2 {

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files);

class Gpt2Model final : public Model {
 public:
  // `bare_names`: tensor names in the files lack the prefix "transformer.".
  Gpt2Model(Config config, bool bare_names);
  std::vector<nn::Unit*> units() override;
  Dimensions dimensions() const override;
  std::vector<nn::SplitRow> split() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override { return to_hugging_face(config_); }
  double initializer_range() const override { return config_.initializer_range; }
  // Throws UserError if max_seqlen exceeds the learned positions.
  void prepare(at::Device device, int64_t max_seqlen) override;
  void set_dropout(double probability) override;

 private:
  Config config_;
  bool bare_names_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Head> head_;
};

}  // namespace snug::models::gpt2
