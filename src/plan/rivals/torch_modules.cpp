// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/torch_modules.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "plan/rivals/litgpt_operators.h"
#include "plan/rivals/torch_operators.h"

namespace snug::plan {
namespace {

using memory::Category;

// Of a 4-bit weight.
constexpr int64_t kBlock = 64;

// Tags gradients of a weight as such: the first one stays, later ones are added to it.
void tag_gradients(const at::Tensor& weight) {
  weight.register_hook([impl = weight.unsafeGetTensorImpl()](const at::Tensor& gradient) {
    const auto* meta = impl->autograd_meta();
    const bool stays = meta != nullptr && !impl->grad().defined();
    if (stays) memory::retag(gradient, Category::Gradients);
  });
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

}  // namespace

TorchModules::TorchModules(Options options)
    : options_(std::move(options)), targets_(words_of(options_.lora.target_modules)) {
  options_.autocast = options_.precision.parameters != options_.precision.compute;
  const bool adapted = options_.lora.enabled;
  if (adapted && (targets_.empty() || options_.lora.use_dora))
    throw UserError(
        "like: peft is planned with lora_target_modules as a list of layers' names, such as q,v, "
        "and without DoRA");
  if (!options_.quantize.empty() && options_.quantize != "bnb.nf4" &&
      options_.quantize != "bnb.fp4")
    throw UserError("like: quantize = {}: transformers is planned with bnb.nf4 and bnb.fp4",
                    options_.quantize);
  if (adapted && options_.sharding != TorchSharding::None)
    throw UserError("like: adapters are planned on one device; use --devices 1");
}

size_t TorchModules::begin_unit() {
  if (!is_sharded()) return 0;
  units_.emplace_back();
  return unit_ = units_.size() - 1;
}

at::Tensor* TorchModules::keep(at::Tensor weight, bool trains) {
  num_elements_ += weight.numel();
  weights_.push_back(std::move(weight));
  at::Tensor* const place = &weights_.back();
  units_[unit_].push_back(place);
  if (is_sharded()) {
    memory::vacate(*place);  // it tells its shape, and is never there alone
  } else if (trains) {
    place->set_requires_grad(true);
    if (options_.sharding == TorchSharding::None) tag_gradients(*place);
    trained_.push_back(*place);
  }
  return place;
}

at::Tensor* TorchModules::weight(std::vector<int64_t> sizes) {
  const memory::CategoryGuard category(Category::Parameters);
  return keep(at::empty(sizes, at::TensorOptions(at::kMeta).dtype(parameters())),
              !options_.lora.enabled);
}

bool TorchModules::is_target(const std::string& name) const {
  const std::string word = name.substr(name.rfind('.') + 1);
  return options_.lora.enabled && std::count(targets_.begin(), targets_.end(), word) > 0;
}

TorchModules::Linear TorchModules::linear(int64_t in, int64_t out, bool bias,
                                          const std::string& name, bool may_quantize) {
  const memory::CategoryGuard category(Category::Parameters);
  Linear layer{.in = in, .out = out};
  const auto options = at::TensorOptions(at::kMeta);
  layer.quantized = quantized() && may_quantize;
  if (layer.quantized) {
    layer.weight = keep(at::empty({(in * out + 1) / 2, 1}, options.dtype(at::kByte)), false);
    layer.absmax = at::empty({(in * out + kBlock - 1) / kBlock}, options.dtype(at::kFloat));
  } else {
    layer.weight = weight({out, in});
  }
  if (bias) layer.bias = weight({out});
  if (!is_target(name)) return layer;
  layer.a = keep(at::empty({options_.lora.r, in}, options.dtype(at::kFloat)), true);
  layer.b = keep(at::empty({out, options_.lora.r}, options.dtype(at::kFloat)), true);
  return layer;
}

TorchModules::Norm TorchModules::layer_norm(int64_t width) {
  return {.weight = weight({width}), .bias = weight({width})};
}

void TorchModules::share() {
  if (is_sharded()) {
    const bool casts = options_.autocast;
    for (std::vector<at::Tensor*>& slots : units_) {
      flats_.push_back(std::make_unique<FlatWeights>(std::move(slots), options_.ranks,
                                                     casts ? compute() : parameters()));
      trained_.push_back(flats_.back()->part());
    }
  }
  if (options_.sharding != TorchSharding::DdpBucketViews) return;
  const memory::CategoryGuard category(Category::Gradients);
  for (const at::Tensor& weight : trained_) {
    buckets_.push_back(at::empty_like(weight, weight.options().requires_grad(false)));
    eager::gradients_go_into_buckets(weight);
  }
}

at::Tensor TorchModules::cast(const at::Tensor& x) const {
  return options_.autocast && x.is_floating_point() ? x.to(compute()) : x;
}

at::Tensor TorchModules::cast_weight(const at::Tensor& weight) {
  if (!options_.autocast || weight.scalar_type() == compute()) return weight;
  if (!weight.requires_grad()) return weight.to(compute());
  for (const auto& [original, copy] : casts_)
    if (original.is_same(weight)) return copy;
  const memory::CategoryGuard category(Category::Parameters);
  return casts_.emplace_back(weight, weight.to(compute())).second;
}

at::Tensor TorchModules::run(const Linear& layer, const at::Tensor& x) {
  at::Tensor out;
  if (layer.quantized) {
    // bnb_4bit_compute_dtype is bfloat16, and weights were read in the type of the others.
    out = eager::product_4bit(x.to(at::kBFloat16), *layer.weight, layer.out, parameters());
    if (layer.bias != nullptr) out = out + layer.bias->to(at::kBFloat16);
    out = out.to(x.scalar_type());
  } else {
    out = at::linear(cast(x), cast_weight(*layer.weight),
                     layer.bias == nullptr ? at::Tensor() : cast_weight(*layer.bias));
  }
  if (layer.a == nullptr) return out;
  at::Tensor low = x.to(layer.a->scalar_type());
  if (options_.lora.dropout > 0) low = litgpt::dropout(low);
  low = at::linear(cast(low), cast_weight(*layer.a));
  const double scaling = 0.5;  // any: shapes only
  return out + at::linear(low, cast_weight(*layer.b)) * scaling;
}

at::Tensor TorchModules::run(const Norm& norm, const at::Tensor& x) const {
  if (norm.bias != nullptr)
    return eager::layer_norm(options_.autocast ? x.to(at::kFloat) : x, *norm.weight, *norm.bias);
  const at::Tensor variance = at::mean(x.to(at::kFloat).pow(2), {-1}, /*keepdim=*/true);
  at::Tensor normed = x * at::rsqrt(variance + 1e-6);
  const at::ScalarType type = norm.weight->scalar_type();
  if (type == at::kBFloat16 || type == at::kHalf) normed = normed.to(type);
  return *norm.weight * normed;
}

void TorchModules::drop_gradients() {
  for (const at::Tensor& weight : trained_) weight.mutable_grad().reset();
}

}  // namespace snug::plan
