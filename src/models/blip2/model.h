// BLIP-2 as one chain: vision units, Q-Former units, the projection, and the units of its language
// model, OPT or T5, whose weights are called "language_model." + their own names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/weights/tensor_source.h"
#include "models/blip2/qformer.h"
#include "models/blip2/vision.h"
#include "models/model.h"

namespace snug::models::blip2 {

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files);

class Blip2Model final : public Model {
 public:
  Blip2Model(Config config, std::unique_ptr<Model> language);
  std::vector<nn::Unit*> units() override;
  // The language model's, which generation uses.
  Dimensions dimensions() const override { return language_->dimensions(); }
  std::vector<nn::SplitRow> split() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override;
  double initializer_range() const override { return language_->initializer_range(); }
  void prepare(at::Device device, int64_t max_seqlen) override {
    language_->prepare(device, max_seqlen);
  }
  data::Reading reads() const override;
  std::vector<ModelPart> parts() override;
  std::vector<HeadCount> head_counts() const override;
  void set_dropout(double probability) override;
  double flops_per_token(double seqlen) const override;

  const Pixels& pixels() const { return config_.pixels; }
  void set_pixels(const Pixels& pixels) { config_.pixels = pixels; }

 private:
  std::vector<PictureUnit*> picture_units() const;
  // Floating-point operations per picture, forward and backward.
  double picture_flops() const;

  Config config_;
  std::unique_ptr<VisionEmbeddings> vision_embeddings_;
  std::vector<std::unique_ptr<VisionBlock>> vision_blocks_;
  std::unique_ptr<VisionNorm> vision_norm_;
  std::unique_ptr<QFormerEmbeddings> qformer_embeddings_;
  std::vector<std::unique_ptr<QFormerBlock>> qformer_blocks_;
  std::unique_ptr<Projection> projection_;
  std::unique_ptr<Model> language_;
};

}  // namespace snug::models::blip2
