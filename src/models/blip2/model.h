// BLIP-2 as one chain: vision units, Q-Former units, the projection, and the units of its language
// model, OPT or T5, whose weights are called "language_model." + their own names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/weights/tensor_source.h"
#include "models/blip2/qformer.h"
#include "models/vision/picture_model.h"

namespace snug::models::blip2 {

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files);

class Blip2Model final : public vision::PictureModel {
 public:
  Blip2Model(Config config, std::unique_ptr<Model> language);
  std::vector<nn::SplitRow> split() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override;
  data::Reading reads() const override;
  std::vector<ModelPart> parts() override;
  std::vector<HeadCount> head_counts() const override;
  void set_dropout(double probability) override;

 private:
  std::vector<vision::PictureUnit*> picture_units() const override;

  Config config_;
  std::unique_ptr<vision::VisionEmbeddings> vision_embeddings_;
  std::vector<std::unique_ptr<vision::VisionBlock>> vision_blocks_;
  std::unique_ptr<vision::VisionNorm> vision_norm_;
  std::unique_ptr<QFormerEmbeddings> qformer_embeddings_;
  std::vector<std::unique_ptr<QFormerBlock>> qformer_blocks_;
  std::unique_ptr<Projection> projection_;
};

}  // namespace snug::models::blip2
