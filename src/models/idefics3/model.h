// Idefics3 and SmolVLM as one chain: vision units, the connector, and the units of a Llama, whose
// embedding puts the connector's rows in the places of the pictures' placeholders.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/weights/gguf/gguf.h"
#include "files/weights/tensor_source.h"
#include "models/decoder/units.h"
#include "models/idefics3/config.h"
#include "models/vision/picture_model.h"

namespace snug::models::idefics3 {

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files);

// Joins the features of scale_factor × scale_factor neighbouring patches to one row ("pixel
// shuffle") and projects the rows to the language model's width: "vision" (S·P, Dv), whole on every
// rank -> "picture" (c of S·Q, D), with S pictures, P patches and Q rows of each.
class Connector final : public vision::PictureUnit {
 public:
  explicit Connector(const Config& config);
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override { return {&linear_}; }
  std::vector<vision::Product> products() override;

 private:
  nn::State look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;

  const Config& config_;
  nn::Linear linear_;
};

// GGUF files (gguf.cpp). Each throws UserError for what the other side has no place for.
// `parameter`: of the vision model or the connector.
std::string gguf_name(const Config& config, const std::string& parameter);
// Whether the second file belongs to a model of this family.
bool are_gguf_pictures(const files::GgufFile& pictures);
std::unique_ptr<Model> model_from_gguf(const files::GgufFile& language,
                                       const files::GgufFile& pictures);
void write_gguf_pictures(const Config& config, const vision::Pixels& pixels, int64_t longest_side,
                         files::GgufWriter& out);

class Idefics3Model final : public vision::PictureModel {
 public:
  explicit Idefics3Model(Config config);
  std::vector<nn::SplitRow> split() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override;
  void write_gguf_config(files::GgufWriter& out) const override {
    language().write_gguf_config(out);
  }
  void write_gguf_pictures_config(files::GgufWriter& out) const override {
    write_gguf_pictures(config_, pixels(), reads().scaled_side(), out);
  }
  std::map<std::string, std::vector<float>> gguf_constants() const override {
    return language().gguf_constants();
  }
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
  std::unique_ptr<Connector> connector_;
};

}  // namespace snug::models::idefics3
