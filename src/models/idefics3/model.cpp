// SPDX-License-Identifier: Apache-2.0
#include "models/idefics3/model.h"

#include <utility>

#include "base/error.h"

namespace snug::models::idefics3 {

using nlohmann::json;

namespace {

bool is_of_language(const std::string& name) {
  return name.starts_with("model.text_model.") || name.starts_with("lm_head.");
}

}  // namespace

std::unique_ptr<Model> make_model(const json& config, const std::string& where,
                                  const files::TensorSource* /*files*/) {
  return std::make_unique<Idefics3Model>(from_hugging_face(config, where));
}

Connector::Connector(const Config& c)
    : PictureUnit("projection", nn::UnitKind::Projection),
      config_(c),
      linear_(vision::make_linear("model.connector.modality_projection.proj", c.row_features(),
                                  c.text.hidden_size, nn::Bias::None, c.text.initializer_range)) {}

std::vector<nn::Parameter*> Connector::parameters() {
  std::vector<nn::Parameter*> all;
  linear_.list(all);
  return all;
}

std::vector<vision::Product> Connector::products() {
  return {{&linear_, config_.rows_per_picture()}};
}

nn::State Connector::look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  const int64_t across = config_.rows_across(), side = config_.scale_factor;
  const at::Tensor joined =
      input.at("vision")
          .view({batch.pixels.size(0) * across, side, across, side * config_.vision.hidden_size})
          .transpose(1, 2)
          .reshape({-1, config_.row_features()});
  nn::State state;
  state.set("picture", linear_.forward(nn::own_features(joined, linear_), pass));
  return state;
}

Idefics3Model::Idefics3Model(Config config)
    : PictureModel({.mean = {0.5F, 0.5F, 0.5F}, .std = {0.5F, 0.5F, 0.5F}},
                   std::make_unique<decoder::DecoderModel>(config.text)),
      config_(std::move(config)),
      vision_embeddings_(std::make_unique<vision::VisionEmbeddings>(config_.vision, pixels())),
      vision_norm_(std::make_unique<vision::VisionNorm>(config_.vision)),
      connector_(std::make_unique<Connector>(config_)) {
  for (int64_t layer = 0; layer < config_.vision.num_hidden_layers; ++layer)
    vision_blocks_.push_back(std::make_unique<vision::VisionBlock>(config_.vision, layer));
}

std::vector<vision::PictureUnit*> Idefics3Model::picture_units() const {
  std::vector<vision::PictureUnit*> all{vision_embeddings_.get()};
  for (const auto& block : vision_blocks_) all.push_back(block.get());
  all.push_back(vision_norm_.get());
  all.push_back(connector_.get());
  return all;
}

std::vector<ModelPart> Idefics3Model::parts() {
  const std::vector<vision::PictureUnit*> all = picture_units();
  return {{"vision", {all.begin(), all.end() - 1}},
          {"projection", {all.back()}},
          {"language", language().units()}};
}

// The language model's rows name the vision model's q, k and v too. Not the patches, which are
// small.
std::vector<nn::SplitRow> Idefics3Model::split() const {
  std::vector<nn::SplitRow> all = {{"out_proj", nn::by_columns()},
                                   {"fc1", nn::by_rows()},
                                   {"fc2", nn::by_columns()},
                                   {"modality_projection.proj", nn::by_columns()}};
  for (const nn::SplitRow& of_language : language().split()) all.push_back(of_language);
  return all;
}

Placement Idefics3Model::placement(Layout layout, const nn::Parameter& parameter) const {
  if (layout == Layout::LitGpt)
    throw UserError("{} models are not read or written in LitGPT's layout (--to hf, --to gguf)",
                    config_.family.model_type);
  if (layout == Layout::Gguf && is_of_language(parameter.name))
    return language().placement(layout, parameter);
  if (layout == Layout::Gguf)
    return {.tensor = gguf_name(config_, parameter.name),
            .shape = vision_embeddings_->file_shape(parameter)};
  return {.tensor = parameter.name, .shape = vision_embeddings_->file_shape(parameter)};
}

json Idefics3Model::hugging_face_config() const {
  json out = config_.root;
  out["architectures"] = {config_.family.class_name};
  out["model_type"] = config_.family.model_type;
  out["image_token_id"] = config_.image_token_id;
  out["scale_factor"] = config_.scale_factor;
  out["text_config"] = language().hugging_face_config();
  out["tie_word_embeddings"] = config_.text.tie_word_embeddings;
  out["vision_config"]["attention_dropout"] = config_.vision.attention_dropout;
  // Drops the dtype of the files that were read; the writer adds its own.
  for (json* part : {&out, &out["vision_config"]})
    for (const char* key : {"torch_dtype", "dtype", "transformers_version", "_name_or_path"})
      part->erase(key);
  return out;
}

data::Reading Idefics3Model::reads() const {
  return {.image_size = config_.vision.image_size,
          .num_picture_tokens = config_.rows_per_picture(),
          .picture_token = config_.image_token_id,
          .pictures_anywhere = true,
          .longest_side = pixels().longest_edge,
          .image_mean = pixels().mean,
          .image_std = pixels().std};
}

std::vector<HeadCount> Idefics3Model::head_counts() const {
  std::vector<HeadCount> all{
      {"attention heads in its vision model", config_.vision.num_attention_heads}};
  for (HeadCount& of_language : language().head_counts()) all.push_back(std::move(of_language));
  return all;
}

void Idefics3Model::set_dropout(double probability) {
  if (config_.vision.attention_dropout > 0) config_.vision.attention_dropout = probability;
  language().set_dropout(probability);
}

}  // namespace snug::models::idefics3
