// A matrix product with a weight: the one place that knows how the weight is stored, and what is
// added to it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/adapter.h"
#include "nn/parameter.h"
#include "nn/unit.h"
#include "ops/activation.h"
#include "ops/product_input.h"
#include "ops/projection.h"

namespace snug::nn {

enum class Bias { None, Present };

// What a layer does in its model, by which recipes choose where adapters go, and ranks share it:
// Projection and MlpOutput add up what the layers before them have spread over features, so they
// are cut by inputs, the others by outputs.
// Other: no switch of a recipe names it, only lora_target_modules can. Not cut unless share_by()
// says how.
enum class Role { Query, Key, Value, Projection, MlpInput, MlpOutput, Head, Other };

class Linear {
 public:
  // Parameters `name`.weight (out, in) and, if present, `name`.bias (out).
  Linear(const std::string& name, Role role, int64_t in_features, int64_t out_features, Bias bias);
  // With a weight that another unit owns, which must outlive this.
  Linear(const std::string& name, Role role, Parameter& tied);

  // x (N, in) -> (N, out), in x's type. Layers that read what a norm yields: nn/functions.h,
  // project().
  at::Tensor forward(const at::Tensor& x, const Pass& pass) const;
  // The same of all rows at every rank: (N, in) -> (N, features that are here). Cut by outputs, it
  // makes a term of x's gradient.
  at::Tensor forward_features(const at::Tensor& x, const Pass& pass) const;
  // This layer of activation(x), and of activation(gate) * up, with all (N, in) -> (N, out):
  // ops/product_input.h.
  at::Tensor forward_activated(const at::Tensor& x, ops::Activation activation,
                               const Pass& pass) const;
  at::Tensor forward_gated(const at::Tensor& gate, const at::Tensor& up, ops::Activation activation,
                           const Pass& pass) const;
  // What operators that contain the product want.
  ops::Projection projection(const Pass& pass) const;

  // How ranks share a layer whose role does not say it.
  void share_by(ops::Cut cut);
  // The outputs are those of so many layers side by side, each of which ranks share alike.
  void set_sections(int64_t sections) { weight_.cut_sections = bias_.cut_sections = sections; }

  // Those of this layer: a tied weight is not.
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
  // The first of the outputs that are here, in each section.
  int64_t first_output() const { return cut() == ops::Cut::Outputs ? weight().slice->begin : 0; }

  // Null: none. Setting one replaces the one before.
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
  std::shared_ptr<Adapter> adapter_;  // shared with a set of adapters that take turns
};

}  // namespace snug::nn
