// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/modules.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "plan/rivals/liger.h"
#include "plan/rivals/operators.h"

namespace snug::plan::rivals {
namespace {

using memory::Category;

// Tags the gradients of a weight: the first one stays, later ones are added to it.
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

Modules::Modules(Options options)
    : options_(std::move(options)), targets_(words_of(options_.lora.target_modules)) {
  // Alone, a rank's part is the weight, unless it is elsewhere.
  const ZeroWeights::Parts parts{.ranks = options_.ranks, .on_host = options_.weights_on_host};
  if (options_.sharding == Sharding::ZeroWeights && (parts.ranks > 1 || parts.on_host))
    zero_weights_ = std::make_unique<ZeroWeights>(options_.deepspeed, parts);
}

at::TensorOptions Modules::parameters() const {
  return at::TensorOptions(at::kMeta).dtype(options_.precision.parameters);
}

size_t Modules::begin_unit() {
  if (options_.sharding != Sharding::FsdpUnits && !is_fully_sharded(options_.sharding)) return 0;
  units_.emplace_back();
  return unit_ = units_.size() - 1;
}

at::Tensor* Modules::keep(at::Tensor weight, bool trains) {
  weights_.push_back(std::move(weight));
  at::Tensor* const place = &weights_.back();
  // FSDP2 leaves codes of few bits whole.
  const bool is_fully = is_fully_sharded(options_.sharding) && place->is_floating_point();
  if (is_fully || !is_fully_sharded(options_.sharding)) units_[unit_].push_back(place);
  if (is_sharded() || is_fully) {
    memory::vacate(*place);  // it tells its shape, and is never there alone
    if (is_fully) place->set_requires_grad(trains);
  } else if (trains) {
    place->set_requires_grad(true);
    if (options_.sharding != Sharding::DdpBucketViews) tag_gradients(*place);
    trained_.push_back(*place);
  }
  if (zero_weights_ != nullptr) zero_weights_->add(place);
  return place;
}

at::Tensor* Modules::weight(std::vector<int64_t> sizes) {
  const memory::CategoryGuard category(Category::Parameters);
  return keep(at::empty(sizes, parameters()), !options_.lora.enabled);
}

at::Tensor* Modules::forgotten_weight(std::vector<int64_t> sizes) {
  const memory::CategoryGuard category(Category::Parameters);
  at::Tensor* const place = keep(at::empty(sizes, parameters()), false);
  place->set_requires_grad(true);
  tag_gradients(*place);
  return place;
}

Modules::Linear Modules::linear(int64_t in, int64_t out, bool bias, const char* name,
                                bool may_quantize) {
  const bool is_target =
      options_.lora.enabled && std::count(targets_.begin(), targets_.end(), name) > 0;
  return linear(in, out, bias, is_target ? std::vector{out} : std::vector<int64_t>(), may_quantize);
}

Modules::Linear Modules::linear(int64_t in, int64_t out, bool bias, std::vector<int64_t> adapted,
                                bool may_quantize) {
  const memory::CategoryGuard category(Category::Parameters);
  Linear layer{.in = in, .out = out, .quantized = quantized() && may_quantize};
  const at::TensorOptions options(at::kMeta);
  if (layer.quantized)
    make_codes(layer);
  else
    layer.weight = weight({out, in});
  if (bias) layer.bias = weight({out});
  if (!options_.lora.enabled || adapted.empty()) return layer;
  const bool is_peft = options_.library == Library::Transformers;
  // peft's are float32 whatever the others are; gathered they are as the others.
  const bool in_float = is_peft && options_.stored == at::ScalarType::Undefined;
  const at::TensorOptions type = in_float ? options.dtype(at::kFloat) : parameters();
  const auto parts = static_cast<int64_t>(adapted.size());
  const int64_t outputs = std::accumulate(adapted.begin(), adapted.end(), int64_t{0});
  layer.parts = std::move(adapted);
  layer.a = keep(at::empty({parts * options_.lora.r, in}, type), true);
  layer.b = keep(at::empty({outputs, options_.lora.r}, type), true);
  if (options_.lora.use_dora) layer.magnitude = keep(at::empty({outputs}, type), true);
  return layer;
}

void Modules::make_codes(Linear& layer) {
  const at::TensorOptions options(at::kMeta);
  if (is_8bit()) {
    layer.weight = keep(at::empty({layer.out, layer.in}, options.dtype(at::kChar)), false);
    layer.absmax = at::empty({layer.out}, options.dtype(at::kFloat));
    return;
  }
  const int64_t weights = layer.in * layer.out, blocks = (weights + 63) / 64;
  const bool nested = options_.quantize.ends_with("-dq");
  layer.weight = keep(at::empty({(weights + 1) / 2, 1}, options.dtype(at::kByte)), false);
  layer.absmax = at::empty({blocks}, options.dtype(nested ? at::kByte : at::kFloat));
  if (nested) layer.scales = at::empty({(blocks + 255) / 256}, options.dtype(at::kFloat));
}

Modules::Norm Modules::layer_norm(int64_t width) {
  return {.weight = weight({width}), .bias = weight({width})};
}

void Modules::share() {
  if (is_sharded())
    for (std::vector<at::Tensor*>& slots : units_) {
      flats_.push_back(std::make_unique<FlatWeights>(std::move(slots), options_.ranks, compute()));
      trained_.push_back(flats_.back()->part());
    }
  if (is_fully_sharded(options_.sharding)) return share_fully();
  const bool views = options_.sharding == Sharding::DdpBucketViews;
  if (!views && options_.sharding != Sharding::Ddp) return;
  const memory::CategoryGuard category(views ? Category::Gradients : Category::Communication);
  for (const at::Tensor& weight : trained_) {
    buckets_.push_back(at::empty_like(weight, weight.options()));
    if (views) gradients_go_into_buckets(weight);
  }
}

void Modules::share_fully() {
  fully_shard_ = std::make_unique<FullyShard>(
      FullyShard::Options{.ranks = options_.ranks,
                          .reshards = options_.sharding == Sharding::FullyShard,
                          .on_host = options_.weights_on_host});
  for (const std::vector<at::Tensor*>& slots : units_) {
    fully_shard_->add_group(slots, options_.stored);
    for (const at::Tensor* slot : slots)
      if (slot->requires_grad()) tag_gradients(*slot);
  }
  trained_ = fully_shard_->trained();
}

at::Tensor Modules::cast(const at::Tensor& x) const {
  return autocast() && x.is_floating_point() ? x.to(compute()) : x;
}

at::Tensor Modules::cast_weight(const at::Tensor& weight) {
  if (!autocast() || weight.scalar_type() == compute()) return weight;
  if (!weight.requires_grad()) return weight.to(compute());
  for (const auto& [original, copy] : casts_)
    if (original.is_same(weight)) return copy;
  const memory::CategoryGuard category(Category::Parameters);
  return casts_.emplace_back(weight, weight.to(compute())).second;
}

at::Tensor Modules::dropped(const at::Tensor& x) const {
  if (options_.lora.dropout == 0) return x;
  return options_.on_cpu ? at::dropout(x, options_.lora.dropout, /*train=*/true) : dropout(x);
}

at::Tensor Modules::product(const Linear& layer, const at::Tensor& x) {
  if (!layer.quantized)
    return as_module({layer.weight, layer.bias}, x, [&](const at::Tensor& given) {
      return at::linear(cast(given), cast_weight(*layer.weight),
                        layer.bias == nullptr ? at::Tensor() : cast_weight(*layer.bias));
    });
  if (options_.library == Library::LitGpt)
    return product_4bit(x, *layer.weight, layer.out, at::kHalf, layer.scales.defined());
  if (is_8bit())
    return product_8bit(x, *layer.weight, autocast() ? compute() : x.scalar_type(),
                        options_.on_cpu);
  // bnb_4bit_compute_dtype is bfloat16.
  at::Tensor out = product_4bit(x.to(at::kBFloat16), *layer.weight, layer.out, options_.loaded,
                                layer.scales.defined());
  if (layer.bias != nullptr) out = out + layer.bias->to(at::kBFloat16);
  return out.to(x.scalar_type());
}

at::Tensor Modules::dequantized(const Linear& layer) const {
  if (!layer.quantized) return *layer.weight;
  if (is_8bit()) return dequantized_8bit(*layer.weight);
  return dequantized_4bit(*layer.weight, layer.out, layer.in, options_.loaded,
                          layer.scales.defined());
}

at::Tensor Modules::low_rank(const Linear& layer, const at::Tensor& x) {
  const auto product = [this](at::Tensor* weight, const at::Tensor& given) {
    return as_module({weight}, given, [&](const at::Tensor& input) {
      return at::linear(cast(input), cast_weight(*weight));
    });
  };
  return product(layer.b, product(layer.a, x));
}

// What DoRA adds to the layer's result `out`, as peft computes it: the norm of each row of the
// weight with the adapter's product, which comes from a unit matrix; with dropout the layer's
// product once more, of the weight as it is dequantized.
at::Tensor Modules::dora(const Linear& layer, const at::Tensor& x, const at::Tensor& out) {
  const at::Tensor product =
      low_rank(layer, at::empty({layer.in, layer.in}, layer.a->options())).t();
  const at::Tensor adapter = product.to(x.scalar_type());
  const at::Tensor weight = dequantized(layer).to(x.scalar_type());
  const at::Tensor norm = [&] {
    const at::Tensor sum = weight + adapter.detach() * kScaling;
    return at::linalg_vector_norm(sum, 2, at::IntArrayRef{1}).detach();
  }();
  const at::Tensor scale = (*layer.magnitude / norm).view({1, -1});
  const at::Tensor low = low_rank(layer, x);
  at::Tensor base = out;
  if (options_.lora.dropout > 0)
    base = at::linear(cast(x), cast(weight));
  else if (layer.bias != nullptr)
    base = out - *layer.bias;
  return (scale - 1.0) * base + scale * low * kScaling;
}

at::Tensor Modules::run(const Linear& layer, const at::Tensor& x) {
  const at::Tensor out = product(layer, x);
  if (layer.a == nullptr) return out;
  const at::Tensor wide = x.to(layer.a->scalar_type());
  const at::Tensor given = dropped(wide);
  const at::Tensor added =
      layer.magnitude != nullptr ? dora(layer, given, out) : low_rank(layer, given) * kScaling;
  return (out + added).to(out.scalar_type());
}

at::Tensor Modules::run(const Norm& norm, const at::Tensor& x) const {
  return as_module({norm.weight, norm.bias}, x,
                   [&](const at::Tensor& given) { return normed(norm, given); });
}

at::Tensor Modules::normed(const Norm& norm, const at::Tensor& x) const {
  if (norm.bias != nullptr)
    return rivals::layer_norm(autocast() ? x.to(at::kFloat) : x, *norm.weight, *norm.bias);
  if (norm.form == RmsForm::Liger || norm.form == RmsForm::LigerInPlace) {
    constexpr int64_t kMultiprocessors = 132;  // an H100's
    return liger::rms_norm(
        x, *norm.weight,
        norm.form == RmsForm::Liger ? liger::GradientOfNorm::Apart : liger::GradientOfNorm::InPlace,
        options_.on_cpu ? 1 : kMultiprocessors);
  }
  if (norm.form != RmsForm::T5) {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor mean = at::mean(wide * wide, {-1}, /*keepdim=*/true);
    const at::Tensor normed = wide * at::rsqrt(mean + 1e-6);
    if (norm.form == RmsForm::ScaledLast) return *norm.weight * normed.to(x.scalar_type());
    return (normed * norm.weight->to(at::kFloat)).to(x.scalar_type());
  }
  const at::Tensor variance = at::mean(x.to(at::kFloat).pow(2), {-1}, /*keepdim=*/true);
  at::Tensor normed = x * at::rsqrt(variance + 1e-6);
  const at::ScalarType type = norm.weight->scalar_type();
  if (type == at::kBFloat16 || type == at::kHalf) normed = normed.to(type);
  return *norm.weight * normed;
}

void Modules::drop_gradients() {
  for (const at::Tensor& weight : trained_) weight.mutable_grad().reset();
}

at::Tensor Model::forward() {
  order_.clear();
  if (ZeroWeights* zero = modules_.zero_weights()) zero->begin_forward();
  if (modules_.is_sharded()) modules_.flat(0).gather();
  at::Tensor result = loss();
  finish_gathers();
  modules_.drop_weight_casts();
  if (FullyShard* sharded = modules_.fully_shard()) sharded->end_forward();
  return result;
}

void Model::begin_backward(bool is_last) {
  if (FullyShard* sharded = modules_.fully_shard()) sharded->reduce_next(is_last);
}

void Model::end_backward() {
  if (FullyShard* sharded = modules_.fully_shard()) sharded->end_backward();
  if (ZeroWeights* zero = modules_.zero_weights()) zero->end_backward();
}

void Model::enter(size_t unit) {
  if (FullyShard* sharded = modules_.fully_shard()) sharded->enter(unit);
}

at::Tensor Model::entered(size_t unit, const at::Tensor& x) {
  FullyShard* sharded = modules_.fully_shard();
  return sharded != nullptr ? sharded->entered(unit, x) : x;
}

void Model::leave(size_t unit, const at::Tensor& output, FullyShard::Stays stays) {
  if (FullyShard* sharded = modules_.fully_shard()) sharded->leave(unit, output, stays);
}

void Model::finish_gathers() {
  for (const size_t unit : gathered_) modules_.flat(unit).release();
  gathered_.clear();
}

void Model::mark_unit(const at::Tensor& output, int32_t unit) {
  if (!output.requires_grad()) return;
  output.register_hook([unit](const at::Tensor&) { memory::current_tag.unit = unit; });
}

at::Tensor Model::run_block(size_t unit, const std::string& name, std::vector<at::Tensor> inputs,
                            TensorModule module) {
  const int32_t id = memory::unit_id(name);
  const memory::UnitGuard guard(id);
  const bool is_flat = unit != 0 && modules_.is_sharded();
  enter(unit);
  inputs.front() = entered(unit, inputs.front());
  TensorModule marked = [this, is_flat, unit, id,
                         module = std::move(module)](const std::vector<at::Tensor>& given) {
    const memory::UnitGuard again(id);
    if (is_flat) modules_.flat(unit).gather();
    const at::Tensor out = module(given);
    // What is recomputed casts weights anew, for its own backward.
    if (memory::current_tag.phase == memory::Phase::Backward) modules_.drop_weight_casts();
    mark_unit(out, id);
    return out;
  };
  const bool has_graph = std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& x) {
    return x.defined() && x.requires_grad();
  });
  const at::Tensor out =
      options_.checkpointing && has_graph ? recomputed(inputs, std::move(marked)) : marked(inputs);
  leave(unit, out, FullyShard::Stays::Never);
  if (!is_flat) return out;
  // The next unit's weights are gathered while this one runs, so two units are gathered at a time.
  gathered_.push_back(unit);
  if (gathered_.size() > 1) {
    modules_.flat(gathered_.front()).release();
    gathered_.erase(gathered_.begin());
  }
  order_.push_back(unit);
  const size_t before = order_.size() > 1 ? order_[order_.size() - 2] : unit;
  if (out.requires_grad())
    out.register_hook([this, unit, before](const at::Tensor&) {
      modules_.flat(unit).gather();
      modules_.flat(before).gather();
    });
  return out;
}

at::Tensor Model::drop(const at::Tensor& x, double probability) {
  return probability > 0 ? dropout(x) : x;
}

at::Tensor Model::split_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor Model::join_heads(const at::Tensor& x) {
  return x.transpose(1, 2).contiguous().view({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

at::Tensor Model::rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor turned = at::cat({-x.slice(-1, half), x.slice(-1, 0, half)}, -1);
  return (x * cos) + (turned * sin);
}

// Numbers do not matter, shapes do. Powers are float32 under autocast.
at::Tensor Model::tanh_gelu(const at::Tensor& x) const {
  const at::Tensor cube = (modules_.autocast() ? x.to(at::kFloat) : x).pow(3.0);
  const at::Tensor inner = at::tanh((x + cube * 0.044715) * 0.5);
  return x * 0.5 * (inner + 1.0);
}

int64_t Model::number(const nlohmann::json& config, const char* key, int64_t fallback) {
  return config.contains(key) && config.at(key).is_number() ? config.at(key).get<int64_t>()
                                                            : fallback;
}

at::Tensor Model::new_ids(int64_t rows, int64_t columns) {
  const memory::CategoryGuard category(memory::Category::Data);
  return at::empty({rows, columns}, at::TensorOptions(at::kMeta).dtype(at::kLong));
}

}  // namespace snug::plan::rivals
