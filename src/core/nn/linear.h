// A linear layer: the one place that knows how its weight is stored and whether it has an adapter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/nn/adapter.h"
#include "core/nn/parameter.h"
#include "core/nn/unit.h"
#include "core/ops/activation.h"
#include "core/ops/linear/matmul.h"
#include "core/ops/linear/projection.h"

namespace snug::nn {

enum class Bias { None, Present };

// A layer's role in its model, by which recipes choose where adapters go. Other is not selected by
// any lora_* switch, only by lora_target_modules. Score, the head of a model that scores documents,
// never has an adapter: it is trained whole beside those of others.
enum class Role { Query, Key, Value, Projection, MlpInput, MlpOutput, Head, Score, Other };

class Linear {
 public:
  // Parameters `name`.weight (out, in) and, if present, `name`.bias (out).
  Linear(const std::string& name, Role role, int64_t in_features, int64_t out_features, Bias bias);
  // A layer on a tied weight, which another unit owns and which must outlive this layer.
  Linear(const std::string& name, Role role, Parameter& tied);

  // x (N, in) -> (N, out), in x's type. For layers behind a norm see project() in
  // core/nn/functions.h.
  at::Tensor forward(const at::Tensor& x, const Pass& pass) const;
  // The same for an x that every rank has whole: (N, in) -> (N, features on this rank). If the
  // weight is split along outputs, the gradient of x is one rank's term of a sum.
  at::Tensor forward_features(const at::Tensor& x, const Pass& pass) const;
  // The layer applied to activation(x), or to activation(gate) * up; (N, in) -> (N, out). See
  // core/ops/linear/matmul.h.
  at::Tensor forward_activated(const at::Tensor& x, ops::Activation activation,
                               const Pass& pass) const;
  at::Tensor forward_gated(const at::Tensor& gate, const at::Tensor& up, ops::Activation activation,
                           const Pass& pass, ops::Up kind_of_up = ops::Up::Own) const;
  // The weight, bias and adapter, for operators that contain the product.
  ops::Projection projection(const Pass& pass) const;

  // Appends this layer's own parameters, so not a tied weight.
  void list(std::vector<Parameter*>& parameters);

  const std::string& name() const { return name_; }
  Role role() const { return role_; }
  Parameter& weight() { return tied_ != nullptr ? *tied_ : weight_; }
  const Parameter& weight() const { return tied_ != nullptr ? *tied_ : weight_; }
  bool is_tied() const { return tied_ != nullptr; }
  ops::Cut cut() const;
  ops::Part part() const;
  int64_t in_features() const { return weight().shape[1]; }
  int64_t out_features() const { return weight().shape[0]; }
  // The index of this rank's first output within each section.
  int64_t first_output() const { return cut() == ops::Cut::Outputs ? weight().slice->begin : 0; }

  // Replaces the layer's adapter; null removes it.
  void set_adapter(std::shared_ptr<Adapter> adapter) { adapter_ = std::move(adapter); }
  Adapter* adapter() const { return adapter_.get(); }

 private:
  at::Tensor forward_input(const ops::ProductInput& input, const Pass& pass) const;

  std::string name_;
  Role role_;
  Parameter weight_;
  Parameter bias_;
  bool has_bias_;
  Parameter* tied_ = nullptr;
  std::shared_ptr<Adapter> adapter_;  // shared with engine::LoadedAdapter
};

}  // namespace snug::nn
