// What the parts of a decoder's block share in making and calling their layers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/nn/functions.h"
#include "core/nn/linear.h"
#include "core/ops/sequence/short_conv.h"
#include "models/decoder/config.h"

namespace snug::models::decoder {

inline nn::Bias bias_if(bool present) { return present ? nn::Bias::Present : nn::Bias::None; }

inline nn::RmsNorm rms_norm(const Config& c, const std::string& name, int64_t size) {
  return {name, size, c.rms_norm_eps, c.norm_form};
}

// Each layer's outputs for x; those of a fused layer cut in proportion to `parts`. split()'s
// backward assembles their gradients in one tensor.
std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<nn::Linear>& layers,
                                std::vector<int64_t> parts, const nn::Batch& batch,
                                const nn::Pass& pass);

// A vector with a number for each of `heads` heads.
nn::Parameter of_heads(std::string name, int64_t heads);

// A vector that a checkpoint has and nothing trains.
nn::Parameter constant(std::string name, int64_t size, nn::Init init);

// The state of block `layer` in the cache, of `heads` matrices for each sequence, for a scan to
// fill.
at::Tensor new_state(nn::KvCache& cache, int64_t layer, at::IntArrayRef of_heads,
                     at::Device device);

// `convolution` of x, core/ops/sequence/short_conv.h, in block `layer`; a generation's goes on from
// what the cache has of the rows before.
at::Tensor convolved(const at::Tensor& x, const ops::ShortConv& convolution, int64_t layer,
                     const nn::Batch& batch);

}  // namespace snug::models::decoder
