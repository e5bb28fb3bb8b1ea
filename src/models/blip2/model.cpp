// SPDX-License-Identifier: Apache-2.0
#include "models/blip2/model.h"

#include <utility>

#include "base/error.h"
#include "models/config_fields.h"
#include "models/opt/model.h"
#include "models/t5/model.h"

namespace snug::models::blip2 {
namespace {

using nlohmann::json;

constexpr const char* kLanguage = "language_model.";

// The prefix of the language model's tensor names in these files.
std::string prefix_in(const files::TensorSource* files) {
  for (const char* before : {"model.", "module."})
    if (files != nullptr && files->find(std::string(before) + kLanguage + "shared.weight"))
      return std::string(before) + kLanguage;
  return kLanguage;
}

std::unique_ptr<Model> make_language(const json& text, const std::string& where,
                                     const files::TensorSource* files) {
  const std::string type = ConfigFields(text, where).text("model_type", "opt");
  if (type == "opt") {
    opt::Config own = opt::from_hugging_face(text, where);
    // Picture features have the blocks' width; a projected embedding (OPT-350m) would be narrower.
    if (own.projects_words())
      throw UserError(
          "{}: word_embed_proj_dim = {} is not hidden_size = {}: words and pictures cannot stand "
          "in "
          "one row of tokens; no BLIP-2 has such a language model",
          where, own.word_embed_proj_dim, own.hidden_size);
    return std::make_unique<opt::OptModel>(std::move(own), "", kLanguage);
  }
  if (type == "t5")
    return std::make_unique<t5::T5Model>(
        t5::from_hugging_face(text, where, files, prefix_in(files)), kLanguage);
  throw UserError("{}: a language model of type \"{}\" is not supported; supported are opt and t5",
                  where, type);
}

}  // namespace

std::unique_ptr<Model> make_model(const json& config, const std::string& where,
                                  const files::TensorSource* files) {
  Config own = from_hugging_face(config, where);
  auto language = make_language(own.text, where + ": text_config", files);
  const int64_t rows = language->dimensions().vocabulary;
  if (own.image_token_index >= rows)
    throw UserError("{}: image_token_index = {} is outside the vocabulary of {} tokens", where,
                    own.image_token_index, rows);
  return std::make_unique<Blip2Model>(std::move(own), std::move(language));
}

Blip2Model::Blip2Model(Config config, std::unique_ptr<Model> language_model)
    : PictureModel({}, std::move(language_model)),
      config_(std::move(config)),
      vision_embeddings_(std::make_unique<vision::VisionEmbeddings>(config_.vision, pixels())),
      vision_norm_(std::make_unique<vision::VisionNorm>(config_.vision)),
      qformer_embeddings_(std::make_unique<QFormerEmbeddings>(config_)) {
  for (int64_t layer = 0; layer < config_.vision.num_hidden_layers; ++layer)
    vision_blocks_.push_back(std::make_unique<vision::VisionBlock>(config_.vision, layer));
  for (int64_t layer = 0; layer < config_.qformer.num_hidden_layers; ++layer)
    qformer_blocks_.push_back(std::make_unique<QFormerBlock>(config_, layer));
  projection_ = std::make_unique<Projection>(config_, language().dimensions().hidden_size);
}

std::vector<vision::PictureUnit*> Blip2Model::picture_units() const {
  std::vector<vision::PictureUnit*> all{vision_embeddings_.get()};
  for (const auto& block : vision_blocks_) all.push_back(block.get());
  all.push_back(vision_norm_.get());
  all.push_back(qformer_embeddings_.get());
  for (const auto& block : qformer_blocks_) all.push_back(block.get());
  all.push_back(projection_.get());
  return all;
}

std::vector<ModelPart> Blip2Model::parts() {
  const std::vector<vision::PictureUnit*> all = picture_units();
  const auto qformer = all.begin() + std::ssize(vision_blocks_) + 2;
  const auto projection = all.end() - 1;
  return {{"vision", {all.begin(), qformer}},
          {"qformer", {qformer, projection}},
          {"projection", {projection, all.end()}},
          {"language", language().units()}};
}

// Not the patches and the language projection, which are small.
std::vector<nn::SplitRow> Blip2Model::split() const {
  std::vector<nn::SplitRow> all = {{"qkv", nn::by_rows(3)},
                                   {"self_attn.projection", nn::by_columns()},
                                   {"fc1", nn::by_rows()},
                                   {"fc2", nn::by_columns()},
                                   {"query", nn::by_rows()},
                                   {"key", nn::by_rows()},
                                   {"value", nn::by_rows()},
                                   {"output.dense", nn::by_columns()},
                                   {"intermediate_query.dense", nn::by_rows()},
                                   {"output_query.dense", nn::by_columns()}};
  for (const nn::SplitRow& of_language : language().split()) all.push_back(of_language);
  return all;
}

Placement Blip2Model::placement(Layout layout, const nn::Parameter& parameter) const {
  if (layout != Layout::HuggingFace)
    throw UserError(
        "BLIP-2 models are read and written as Hugging Face directories only (--to hf)");
  if (parameter.name.starts_with(kLanguage)) return language().placement(layout, parameter);
  std::vector<int64_t> shape = vision_embeddings_->file_shape(parameter);
  if (shape.empty()) shape = qformer_embeddings_->file_shape(parameter);
  return {.tensor = parameter.name, .shape = std::move(shape)};
}

json Blip2Model::hugging_face_config() const {
  json out = config_.root;
  out["architectures"] = {"Blip2ForConditionalGeneration"};
  out["model_type"] = "blip-2";
  out["image_token_index"] = config_.image_token_index;
  out["num_query_tokens"] = config_.num_query_tokens;
  out["text_config"] = language().hugging_face_config();
  out["use_decoder_only_language_model"] = !language().reads().source;
  json& qformer = out["qformer_config"];
  qformer["hidden_dropout_prob"] = config_.qformer.hidden_dropout_prob;
  qformer["attention_probs_dropout_prob"] = config_.qformer.attention_probs_dropout_prob;
  out["vision_config"]["attention_dropout"] = config_.vision.attention_dropout;
  // Drops the dtype of the files that were read; the writer adds its own.
  for (json* part : {&out, &qformer, &out["vision_config"]})
    for (const char* key : {"torch_dtype", "dtype", "transformers_version", "_name_or_path"})
      part->erase(key);
  return out;
}

data::Reading Blip2Model::reads() const {
  data::Reading reads = language().reads();
  reads.image_size = config_.vision.image_size;
  reads.num_picture_tokens = config_.num_query_tokens;
  reads.picture_token = config_.image_token_index;
  reads.image_mean = pixels().mean;
  reads.image_std = pixels().std;
  return reads;
}

std::vector<HeadCount> Blip2Model::head_counts() const {
  std::vector<HeadCount> all{
      {"attention heads in its vision model", config_.vision.num_attention_heads},
      {"attention heads in its Q-Former", config_.qformer.num_attention_heads}};
  for (HeadCount& of_language : language().head_counts()) all.push_back(std::move(of_language));
  return all;
}

void Blip2Model::set_dropout(double probability) {
  config_.qformer.hidden_dropout_prob = probability;
  config_.qformer.attention_probs_dropout_prob = probability;
  if (config_.vision.attention_dropout > 0) config_.vision.attention_dropout = probability;
  language().set_dropout(probability);
}

}  // namespace snug::models::blip2
