// T5 as units: the encoder's embedding, blocks and norm, then the decoder's embedding, blocks and
// norm + head + loss.
//
// State: "source", the encoder's hidden states and then its output, which every decoder block
// reads; "hidden", the decoder's; "encoder_bias" and "decoder_bias", each stack's table of relative
// biases. The encoder's output is gathered once for all blocks. For a batch without source (later
// steps of a generation, whose cache holds the source's keys and values) encoder units pass their
// input through.
//
// In float16 the activations of large models overflow; transformers works around this with clamping
// and a float32 output layer in the MLP. We do not: use bfloat16, which has float32's range.
//
// Shapes: N tokens of the decoder, M of the source; c and e of them as core/nn/functions.h says; D
// d_model, H heads, B buckets, V vocab_size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/nn/head.h"
#include "models/t5/layers.h"

namespace snug::models::t5 {

// Each stack's bucket of a distance (ops::bias_buckets), filled by Model::prepare.
struct BiasBuckets {
  at::Tensor encoder, decoder;
};

// Replaces the source's rows batch.picture_rows by the State's "picture" (R, D), if present.
class EncoderEmbedding final : public nn::Unit {
 public:
  EncoderEmbedding(const Config& config, const std::string& prefix);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override { return {&tokens_, &bias_}; }
  nn::Parameter& tokens() { return tokens_; }

 private:
  const Config& config_;
  nn::Parameter tokens_;  // (V, D), the decoder's too
  nn::Parameter bias_;    // (B, H)
};

class EncoderBlock final : public nn::Unit {
 public:
  EncoderBlock(const Config& config, const std::string& prefix, int64_t layer,
               const BiasBuckets& buckets);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;

 private:
  const Config& config_;
  const BiasBuckets& buckets_;
  bool is_last_;
  Attention self_;
  FeedForward mlp_;
};

class EncoderNorm final : public nn::Unit {
 public:
  EncoderNorm(const Config& config, const std::string& prefix);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override { return {&norm_.weight}; }

 private:
  const Config& config_;
  nn::RmsNorm norm_;
};

class DecoderEmbedding final : public nn::Unit {
 public:
  DecoderEmbedding(const Config& config, const std::string& prefix, nn::Parameter& tokens);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override { return {&bias_}; }
  std::vector<nn::Parameter*> borrowed() override { return {&tokens_}; }

 private:
  const Config& config_;
  nn::Parameter& tokens_;  // (V, D)
  nn::Parameter bias_;     // (B, H)
};

class DecoderBlock final : public nn::Unit {
 public:
  DecoderBlock(const Config& config, const std::string& prefix, int64_t layer,
               const BiasBuckets& buckets);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;

 private:
  at::Tensor look_at_source(const at::Tensor& x, const nn::State& input, const nn::Batch& batch,
                            const nn::Pass& pass) const;  // (c, D) -> (c, D)

  const Config& config_;
  const BiasBuckets& buckets_;
  int64_t layer_;
  Attention self_, cross_;
  FeedForward mlp_;
};

class Head final : public nn::Head {
 public:
  Head(const Config& config, const std::string& prefix, nn::Parameter* tied);
  std::vector<nn::Parameter*> parameters() override;

 private:
  at::Tensor prepare(const at::Tensor& x, const nn::Pass& pass) override;

  const Config& config_;
  nn::RmsNorm norm_;
};

// All units; weights are named `prefix` + their name in T5's own files. `config` and `buckets`
// must outlive them.
std::vector<std::unique_ptr<nn::Unit>> make_units(const Config& config, const std::string& prefix,
                                                  const BiasBuckets& buckets);

}  // namespace snug::models::t5
