// SPDX-License-Identifier: Apache-2.0
#include "models/blip2/qformer.h"

#include <ATen/TensorOperators.h>

#include <cmath>

namespace snug::models::blip2 {
namespace {

std::string qformer_layer_name(int64_t index) {
  return "qformer.encoder.layer." + std::to_string(index);
}

nn::Linear dense(const std::string& name, int64_t in_features, int64_t out_features,
                 const QFormerConfig& config) {
  return vision::make_linear(name, in_features, out_features, nn::Bias::Present,
                             config.initializer_range);
}

}  // namespace

QFormerEmbeddings::QFormerEmbeddings(const Config& c)
    : PictureUnit("qformer embeddings", nn::UnitKind::Embedding),
      config_(c),
      queries_{.name = "query_tokens",
               .shape = {c.num_query_tokens, c.qformer.hidden_size},
               .role = nn::ParameterRole::Embedding,
               .init_scale = c.qformer.initializer_range,
               .value = {}},
      norm_("qformer.layernorm", c.qformer.hidden_size, c.qformer.layer_norm_eps) {}

std::vector<nn::Parameter*> QFormerEmbeddings::parameters() {
  std::vector<nn::Parameter*> all{&queries_};
  norm_.list(all);
  return all;
}

std::vector<int64_t> QFormerEmbeddings::file_shape(const nn::Parameter& parameter) const {
  if (parameter.name != queries_.name) return {};
  return {1, config_.num_query_tokens, config_.qformer.hidden_size};
}

nn::State QFormerEmbeddings::look(const nn::State& input, const nn::Batch& batch,
                                  const nn::Pass& pass) {
  const int64_t size = config_.qformer.hidden_size;
  // All pictures get the same queries. They are copied rather than expanded, since kernels do not
  // expect a view with stride 0.
  const at::Tensor once = norm_.forward(nn::trained_input(queries_, pass.compute));
  const at::Tensor all =
      once.unsqueeze(0).expand({batch.pixels.size(0), -1, -1}).contiguous().view({-1, size});
  nn::State state;
  state.set("vision", input.at("vision"));
  state.set("queries", nn::dropout(nn::own_rows(all, queries_), config_.qformer.hidden_dropout_prob,
                                   "qformer.embeddings", pass, queries_));
  return state;
}

QFormerAttention::QFormerAttention(const std::string& name, const QFormerConfig& c,
                                   int64_t source_size)
    : config_(c),
      query_(dense(name + ".attention.query", c.hidden_size, c.hidden_size, c)),
      key_(dense(name + ".attention.key", source_size, c.hidden_size, c)),
      value_(dense(name + ".attention.value", source_size, c.hidden_size, c)),
      dense_(dense(name + ".output.dense", c.hidden_size, c.hidden_size, c)),
      norm_(name + ".output.LayerNorm", c.hidden_size, c.layer_norm_eps) {}

void QFormerAttention::list(std::vector<nn::Parameter*>& parameters) {
  for (nn::Linear* linear : linears()) linear->list(parameters);
  norm_.list(parameters);
}

at::Tensor QFormerAttention::to_themselves(const at::Tensor& x, const nn::Packed& queries,
                                           int64_t num_rows, const nn::Pass& pass) const {
  return answer(x, nn::project(x, {&query_, &key_, &value_}, num_rows, pass), queries, queries,
                pass);
}

at::Tensor QFormerAttention::to_source(const at::Tensor& x, const nn::Packed& queries,
                                       int64_t num_rows, const at::Tensor& source,
                                       const nn::Packed& keys, const nn::Pass& pass) const {
  std::vector<at::Tensor> qkv = nn::project(x, {&query_}, num_rows, pass);
  for (const nn::Linear* layer : {&key_, &value_})
    qkv.push_back(layer->forward_features(source, pass));
  return answer(x, qkv, queries, keys, pass);
}

at::Tensor QFormerAttention::answer(const at::Tensor& x, const std::vector<at::Tensor>& qkv,
                                    const nn::Packed& queries, const nn::Packed& keys,
                                    const nn::Pass& pass) const {
  const int64_t d = config_.head_dim();
  const at::Tensor mixed =
      nn::cross_attention(nn::split_heads(qkv[0], d), nn::split_heads(qkv[1], d),
                          nn::split_heads(qkv[2], d), queries, keys,
                          {.scale = 1.0 / std::sqrt(static_cast<double>(d)),
                           .dropout = config_.attention_probs_dropout_prob,
                           .site = query_.name() + ".probabilities",
                           .queries = &query_},
                          pass);
  const at::Tensor told = nn::dropout(dense_.forward(mixed, pass), config_.hidden_dropout_prob,
                                      dense_.name() + ".output", pass, dense_.weight());
  return norm_.forward_sum(told, x).second;
}

QFormerBlock::QFormerBlock(const Config& c, int64_t index)
    : PictureUnit("qformer block " + std::to_string(index), nn::UnitKind::Block),
      config_(c),
      layer_(index),
      self_(qformer_layer_name(index) + ".attention", c.qformer, c.qformer.hidden_size),
      intermediate_(dense(qformer_layer_name(index) + ".intermediate_query.dense",
                          c.qformer.hidden_size, c.qformer.intermediate_size, c.qformer)),
      output_(dense(qformer_layer_name(index) + ".output_query.dense", c.qformer.intermediate_size,
                    c.qformer.hidden_size, c.qformer)),
      norm_(qformer_layer_name(index) + ".output_query.LayerNorm", c.qformer.hidden_size,
            c.qformer.layer_norm_eps) {
  if (c.qformer.looks_at_picture(index))
    cross_ = std::make_unique<QFormerAttention>(qformer_layer_name(index) + ".crossattention",
                                                c.qformer, c.vision.hidden_size);
}

std::vector<nn::Parameter*> QFormerBlock::parameters() {
  std::vector<nn::Parameter*> all;
  self_.list(all);
  if (cross_ != nullptr) cross_->list(all);
  for (nn::Linear* linear : {&intermediate_, &output_}) linear->list(all);
  norm_.list(all);
  return all;
}

std::vector<nn::Linear*> QFormerBlock::linears() {
  std::vector<nn::Linear*> all = self_.linears();
  if (cross_ != nullptr)
    for (nn::Linear* linear : cross_->linears()) all.push_back(linear);
  all.push_back(&intermediate_);
  all.push_back(&output_);
  return all;
}

std::vector<vision::Product> QFormerBlock::products() {
  std::vector<vision::Product> all;
  for (nn::Linear* linear : linears()) all.push_back({linear, config_.num_query_tokens});
  if (cross_ == nullptr) return all;
  const std::vector<nn::Linear*> cross = cross_->linears();
  for (vision::Product& product : all)  // keys and values come from the picture
    if (product.layer == cross[1] || product.layer == cross[2])
      product.rows = config_.vision.num_positions();
  return all;
}

double QFormerBlock::attention_products() const {
  const int64_t keys =
      config_.num_query_tokens + (cross_ == nullptr ? 0 : config_.vision.num_positions());
  return 2 * static_cast<double>(config_.num_query_tokens * config_.qformer.hidden_size) *
         static_cast<double>(keys);
}

nn::State QFormerBlock::look(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) {
  const QFormerConfig& c = config_.qformer;
  const at::Tensor& before = input.at("queries");
  const int64_t pictures = batch.pixels.size(0), num_rows = pictures * config_.num_query_tokens;
  const nn::Packed queries =
      nn::even_sequences(pictures, config_.num_query_tokens, before.device());
  at::Tensor x = self_.to_themselves(before, queries, num_rows, pass);
  if (cross_ != nullptr) {
    const nn::Packed positions =
        nn::even_sequences(pictures, config_.vision.num_positions(), before.device());
    x = cross_->to_source(x, queries, num_rows, input.at("vision"), positions, pass);
  }
  const std::vector<at::Tensor> wide = nn::project(x, {&intermediate_}, num_rows, pass);
  const at::Tensor told =
      nn::dropout(output_.forward_activated(wide[0], c.activation, pass), c.hidden_dropout_prob,
                  output_.name() + ".output", pass, output_.weight());
  nn::State state;
  // No later layer reads the picture.
  if (layer_ < c.last_look()) state.set("vision", input.at("vision"));
  state.set("queries", norm_.forward_sum(told, x).second);
  return state;
}

Projection::Projection(const Config& config, int64_t language_size)
    : PictureUnit("projection", nn::UnitKind::Projection),
      config_(config),
      linear_(vision::make_linear("language_projection", config.qformer.hidden_size, language_size,
                                  nn::Bias::Present, config.initializer_range)) {}

std::vector<nn::Parameter*> Projection::parameters() {
  std::vector<nn::Parameter*> all;
  linear_.list(all);
  return all;
}

nn::State Projection::look(const nn::State& input, const nn::Batch& /*batch*/,
                           const nn::Pass& pass) {
  nn::State state;
  state.set("picture", linear_.forward(input.at("queries"), pass));
  return state;
}

}  // namespace snug::models::blip2
