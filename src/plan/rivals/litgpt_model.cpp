// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/litgpt_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>

#include <numeric>

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "plan/rivals/litgpt_operators.h"

namespace snug::plan {
namespace {

// Marks where the backward of a unit begins: when its output's gradient is there.
void mark_unit(const at::Tensor& output, int32_t unit) {
  if (!output.requires_grad()) return;
  output.register_hook([unit](const at::Tensor&) { memory::current_tag.unit = unit; });
}

// Tags gradients of a weight as such: the first one stays, later ones are added to it.
void tag_gradients(const at::Tensor& weight) {
  weight.register_hook([impl = weight.unsafeGetTensorImpl()](const at::Tensor& gradient) {
    const auto* meta = impl->autograd_meta();
    const bool stays = meta != nullptr && !impl->grad().defined();
    if (stays) memory::retag(gradient, memory::Category::Gradients);
  });
}

}  // namespace

LitgptModel::Shape LitgptModel::shape_of(const models::Model& like) {
  const nlohmann::json config = like.hugging_face_config();
  const models::Dimensions d = like.dimensions();
  return {.layers = d.num_layers,
          .width = d.hidden_size,
          .heads = d.num_heads,
          .groups = d.num_kv_heads,
          .head_size = d.head_dim,
          .intermediate = config.at("intermediate_size").get<int64_t>(),
          .vocabulary = d.vocabulary,
          .qkv_bias = config.value("attention_bias",
                                   config.value("model_type", "") == std::string("qwen2")),
          .mlp_bias = config.value("mlp_bias", false)};
}

LitgptModel::LitgptModel(const models::Model& like, const recipe::Recipe& recipe,
                         int64_t max_tokens, bool has_fused_attention, LitgptSharding sharding,
                         int64_t ranks)
    : shape_(shape_of(like)),
      precision_(nn::parse_precision(recipe.precision)),
      lora_(recipe.lora),
      quantize_(recipe.quantize),
      fused_attention_(has_fused_attention),
      sharding_(sharding),
      options_(at::TensorOptions(at::kMeta).dtype(precision_.parameters)) {
  if (lora_.enabled && (!lora_.target_modules.empty() || lora_.use_dora))
    throw UserError(
        "like: LitGPT's LoRA has neither target_modules nor DoRA; choose with lora_query … "
        "lora_head");
  if (ranks > 1 && !quantize_.empty())
    throw UserError("like: quantize = {}: LitGPT quantizes on one device only", quantize_);
  const bool has_flats =
      sharding == LitgptSharding::FsdpWhole || sharding == LitgptSharding::FsdpBlocks;
  if ((has_flats || sharding == LitgptSharding::Zero3Offload) &&
      (lora_.enabled || precision_.parameters != precision_.compute))
    throw UserError(
        "like: {} is planned for full fine-tuning in 32-true, bf16-true or 16-true; leave "
        "adapters and mixed precision out, or use --devices 1",
        has_flats ? "FSDP" : "DeepSpeed's ZeRO-3");
  if (quantize_.starts_with("bnb.int8"))
    throw UserError("like: quantize = {}: LitGPT is planned with its 4-bit kinds", quantize_);
  const auto& [layers, width, heads, groups, head_size, intermediate, vocabulary, qkv_bias,
               mlp_bias] = shape_;
  const memory::CategoryGuard category(memory::Category::Parameters);
  const auto if_adapted = [&](bool adapted, int64_t out) {
    return adapted ? std::vector<int64_t>{out} : std::vector<int64_t>();
  };
  std::vector<int64_t> qkv_adapted;
  if (lora_.query) qkv_adapted.push_back(heads * head_size);
  if (lora_.key) qkv_adapted.push_back(groups * head_size);
  if (lora_.value) qkv_adapted.push_back(groups * head_size);
  const auto narrow = if_adapted(lora_.mlp, intermediate), wide = if_adapted(lora_.mlp, width);
  head_ = make_linear(width, vocabulary, false, if_adapted(lora_.head, vocabulary));
  make_embedding();
  const bool trains = !lora_.enabled;
  for (int64_t i = 0; i < layers; ++i)
    blocks_.push_back(
        {.norm_1 = make_weight({width}, trains),
         .norm_2 = make_weight({width}, trains),
         .qkv = make_linear(width, (heads + 2 * groups) * head_size, qkv_bias, qkv_adapted),
         .proj = make_linear(heads * head_size, width, false, if_adapted(lora_.projection, width)),
         .fc_1 = make_linear(width, intermediate, mlp_bias, narrow),
         .fc_2 = make_linear(width, intermediate, mlp_bias, narrow),
         .down = make_linear(intermediate, width, mlp_bias, wide)});
  norm_ = make_weight({width}, trains);
  cos_ = at::empty({1, 1, max_tokens, head_size}, options_);
  sin_ = at::empty({1, 1, max_tokens, head_size}, options_);
  if (has_flats) shard(ranks);
}

std::vector<at::Tensor*> LitgptModel::slots_of(Block& block) {
  std::vector<at::Tensor*> slots{&block.norm_1, &block.norm_2};
  for (Linear* layer : {&block.qkv, &block.proj, &block.fc_1, &block.fc_2, &block.down})
    for (at::Tensor* weight : {&layer->weight, &layer->bias})
      if (weight->defined()) slots.push_back(weight);
  return slots;
}

void LitgptModel::shard(int64_t ranks) {
  std::vector<std::vector<at::Tensor*>> modules{{&embedding_, &norm_, &head_.weight}};
  for (Block& block : blocks_) {
    const std::vector<at::Tensor*> slots = slots_of(block);
    if (sharding_ == LitgptSharding::FsdpBlocks)
      modules.push_back(slots);
    else
      modules.front().insert(modules.front().end(), slots.begin(), slots.end());
  }
  weights_.clear();
  for (std::vector<at::Tensor*>& slots : modules) {
    flats_.push_back(std::make_unique<FlatWeights>(std::move(slots), ranks));
    weights_.push_back(flats_.back()->part());
  }
}

at::Tensor LitgptModel::make_weight(std::vector<int64_t> sizes, bool trained) {
  at::Tensor weight = at::empty(sizes, options_);
  if (sharding_ == LitgptSharding::FsdpWhole || sharding_ == LitgptSharding::FsdpBlocks) {
    memory::vacate(weight);  // it tells its shape, and is never there alone
    return weight;
  }
  if (!trained) return weight;
  weight.set_requires_grad(true);
  tag_gradients(weight);
  weights_.push_back(weight);
  return weight;
}

// Where weights are quantized, finetune_lora replaces the embedding by one with a norm after it
// that has gradients but is not the optimizer's, so that they stay; a variable keeps the old one.
void LitgptModel::make_embedding() {
  const std::vector<int64_t> sizes{shape_.vocabulary, shape_.width};
  embedding_ = make_weight(sizes, !lora_.enabled);
  if (quantize_.empty()) return;
  old_embedding_ = embedding_;
  embedding_ = at::empty(sizes, options_);
  embedding_scale_ = at::empty({shape_.width}, options_);
  embedding_shift_ = at::empty({shape_.width}, options_);
  for (const at::Tensor& weight : {embedding_, embedding_scale_, embedding_shift_}) {
    weight.set_requires_grad(true);
    tag_gradients(weight);
  }
}

LitgptModel::Linear LitgptModel::make_linear(int64_t in, int64_t out, bool bias,
                                             std::vector<int64_t> adapted) {
  const bool trains = !lora_.enabled;
  Linear layer{.in = in, .out = out};
  if (quantize_.empty()) {
    layer.weight = make_weight({out, in}, trains);
  } else {
    const int64_t blocks = in * out / 64;
    const bool nested = quantize_.ends_with("-dq");
    layer.weight = at::empty({(in * out + 1) / 2, 1}, options_.dtype(at::kByte));
    layer.absmax = at::empty({blocks}, options_.dtype(nested ? at::kByte : at::kFloat));
    if (nested) layer.scales = at::empty({(blocks + 255) / 256}, options_.dtype(at::kFloat));
  }
  if (bias) layer.bias = make_weight({out}, trains);
  if (!lora_.enabled || adapted.empty()) return layer;
  const auto parts = static_cast<int64_t>(adapted.size());
  const int64_t outputs = std::accumulate(adapted.begin(), adapted.end(), int64_t{0});
  layer.adapters = {.outputs = std::move(adapted),
                    .a = make_weight({parts * lora_.r, in}, true),
                    .b = make_weight({outputs, lora_.r}, true)};
  return layer;
}

// Autocast remembers casts of weights that train; those of frozen ones live as long as something
// keeps them.
at::Tensor LitgptModel::cast(const at::Tensor& weight) {
  if (!weight.defined() || precision_.compute == weight.scalar_type()) return weight;
  if (!weight.requires_grad()) return weight.to(precision_.compute);
  for (const auto& [original, copy] : casts_)
    if (original.is_same(weight)) return copy;
  const memory::CategoryGuard category(memory::Category::Parameters);
  return casts_.emplace_back(weight, weight.to(precision_.compute)).second;
}

void LitgptModel::drop_weight_casts() { casts_.clear(); }

at::Tensor LitgptModel::product(const at::Tensor& x, const Linear& layer) {
  if (!layer.absmax.defined())
    return at::linear(x.to(precision_.compute), cast(layer.weight), cast(layer.bias));
  return litgpt::product_4bit(x, layer.weight, layer.out, layer.scales.defined());
}

at::Tensor LitgptModel::linear(const at::Tensor& x, const Linear& layer) {
  const at::Tensor pretrained = product(x, layer);
  return layer.adapters.a.defined() ? pretrained + adapt(x, layer) : pretrained;
}

at::Tensor LitgptModel::drop(const at::Tensor& x) const {
  return (lora_.dropout > 0 ? litgpt::dropout(x) : x).to(precision_.compute);
}

at::Tensor LitgptModel::adapt(const at::Tensor& x, const Linear& layer) {
  const auto narrow = [&](const at::Tensor& weight) {
    return weight.transpose(0, 1).to(precision_.compute);
  };
  const double scaling = 0.5;  // any: shapes only
  return at::matmul(at::matmul(drop(x), narrow(layer.adapters.a)), narrow(layer.adapters.b)) *
         scaling;
}

// Queries, keys and values have adapters of their own, which LitGPT computes as one grouped
// convolution where they are of one size.
at::Tensor LitgptModel::adapt_qkv(const at::Tensor& x, const Linear& layer) {
  const auto& [outputs, a, b] = layer.adapters;
  const at::Tensor low = at::linear(drop(x), cast(a)).transpose(-2, -1);  // (B, parts * r, T)
  const at::Tensor weight = b.unsqueeze(-1);
  at::Tensor high;  // (B, outputs, T)
  if (shape_.heads == shape_.groups) {
    high = litgpt::conv1d(low, weight.to(precision_.compute));
  } else {
    const auto lows = low.chunk(static_cast<int64_t>(outputs.size()), 1);
    const auto weights = weight.split_with_sizes(outputs);
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < outputs.size(); ++i)
      parts.push_back(litgpt::conv1d(lows[i], weights[i].to(precision_.compute)));
    high = at::cat(parts, 1);
  }
  high = high.transpose(-2, -1);
  if (high.size(2) != layer.out) high = litgpt::spread_columns(high, layer.out);
  const double scaling = 0.5;  // any: shapes only
  return high * scaling;
}

at::Tensor LitgptModel::rms_norm(const at::Tensor& x, const at::Tensor& weight) const {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor mean = at::mean(wide * wide, {-1}, /*keepdim=*/true);
  const at::Tensor normed = wide * at::rsqrt(mean + 1e-6);
  return (normed * weight.to(at::kFloat)).to(x.scalar_type());
}

// x (B, H, T, D)
at::Tensor LitgptModel::rope(const at::Tensor& x) const {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor cos = cos_.slice(2, 0, x.size(2)), sin = sin_.slice(2, 0, x.size(2));
  const at::Tensor rotated = at::cat({-x.slice(-1, half), x.slice(-1, 0, half)}, -1);
  const at::Tensor roped = ((x * cos) + (rotated * sin)).to(x.scalar_type());
  return at::cat({roped, x.slice(-1, x.size(-1))}, -1);  // with the share that is not rotated
}

at::Tensor LitgptModel::attend(const Block& block, const at::Tensor& x) {
  const int64_t B = x.size(0), T = x.size(1), D = shape_.head_size;
  at::Tensor qkv = product(x, block.qkv);
  if (block.qkv.adapters.a.defined()) qkv = qkv + adapt_qkv(x, block.qkv);
  const auto parts =
      qkv.split_with_sizes({shape_.heads * D, shape_.groups * D, shape_.groups * D}, -1);
  const auto heads = [&](const at::Tensor& part, int64_t count) {
    return part.view({B, T, count, D}).transpose(1, 2);
  };
  const at::Tensor q = rope(heads(parts[0], shape_.heads));
  at::Tensor k = rope(heads(parts[1], shape_.groups));
  at::Tensor v = heads(parts[2], shape_.groups);
  if (shape_.groups != shape_.heads) {
    k = k.repeat_interleave(shape_.heads / shape_.groups, 1);
    v = v.repeat_interleave(shape_.heads / shape_.groups, 1);
  }
  const at::Tensor y = litgpt::attention(q, k, v, fused_attention_);
  return linear(y.transpose(1, 2).reshape({B, T, shape_.heads * D}), block.proj);
}

at::Tensor LitgptModel::mlp(const Block& block, const at::Tensor& x) {
  const at::Tensor gate = linear(x, block.fc_1);
  const at::Tensor up = linear(x, block.fc_2);
  return linear(at::silu(gate) * up, block.down);
}

at::Tensor LitgptModel::embed(const at::Tensor& ids) {
  const at::Tensor x = litgpt::embedding(ids, embedding_);
  return quantize_.empty() ? x : litgpt::layer_norm(x, embedding_scale_, embedding_shift_);
}

at::Tensor LitgptModel::run_block(size_t i, const at::Tensor& input) {
  const int32_t unit = memory::unit_id(fmt::format("block {}", i));
  const memory::UnitGuard guard(unit);
  at::Tensor x = attend(blocks_[i], rms_norm(input, blocks_[i].norm_1)) + input;
  x = mlp(blocks_[i], rms_norm(x, blocks_[i].norm_2)) + x;
  mark_unit(x, unit);
  return x;
}

// Two blocks' weights are there at a time: FSDP gathers the next ones while a block runs, but no
// more than that.
at::Tensor LitgptModel::run_sharded_block(size_t i, const at::Tensor& input) {
  at::Tensor x = recomputed(input, [this, i](const at::Tensor& again) {
    flats_[i + 1]->gather();
    return run_block(i, again);
  });
  if (i > 0) flats_[i]->release();
  if (i + 1 == blocks_.size()) flats_[i + 1]->release();
  x.register_hook([this, i](const at::Tensor&) {
    flats_[i + 1]->gather();
    if (i > 0) flats_[i]->gather();
  });
  return x;
}

std::vector<at::Tensor> LitgptModel::forward(const at::Tensor& ids, int64_t head_chunk) {
  if (!flats_.empty()) flats_.front()->gather();
  at::Tensor x;
  {
    const int32_t unit = memory::unit_id("embedding");
    const memory::UnitGuard guard(unit);
    x = embed(ids);
    mark_unit(x, unit);
  }
  const bool in_parts = sharding_ == LitgptSharding::FsdpBlocks;
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = in_parts ? run_sharded_block(i, x) : run_block(i, x);
  const memory::UnitGuard guard(memory::unit_id("head"));
  x = rms_norm(x, norm_);
  if (head_chunk == 0) return {linear(x, head_)};
  std::vector<at::Tensor> logits;
  for (const at::Tensor& part : x.split(head_chunk, 1)) logits.push_back(linear(part, head_));
  return logits;
}

}  // namespace snug::plan
