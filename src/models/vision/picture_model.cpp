// SPDX-License-Identifier: Apache-2.0
#include "models/vision/picture_model.h"

#include <algorithm>

namespace snug::models::vision {
namespace {

bool trains(nn::Unit* unit) {
  const auto parameters = unit->parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const nn::Parameter* parameter) { return parameter->trained; });
}

double multiplications(const nn::Parameter& weight) {
  const std::vector<int64_t>& shape = weight.whole_shape();
  return static_cast<double>(shape[0] * shape[1]);
}

}  // namespace

std::vector<nn::Unit*> PictureModel::units() {
  std::vector<nn::Unit*> all;
  for (PictureUnit* unit : picture_units()) all.push_back(unit);
  for (nn::Unit* unit : language_->units()) all.push_back(unit);
  return all;
}

// 2 per multiply-add: the forward, plus the gradients of a layer's input and weight where needed.
// Units before the first trained one have no gradients.
double PictureModel::picture_flops() const {
  double flops = 0;
  bool has_backward = false;
  for (PictureUnit* unit : picture_units()) {
    has_backward = has_backward || trains(unit);
    for (const auto& [linear, rows] : unit->products()) {
      const double per_row = has_backward ? 4 : 2;
      double all =
          (per_row + (linear->weight().trained ? 2 : 0)) * multiplications(linear->weight());
      if (const nn::Adapter* adapter = linear->adapter(); adapter != nullptr)
        all += 6 * (multiplications(adapter->a) + multiplications(adapter->b));
      flops += all * static_cast<double>(rows);
    }
    flops += (has_backward ? 6 : 2) * unit->attention_products();
  }
  return flops;
}

double PictureModel::flops_per_token(double seqlen, double pictures) const {
  return language_->flops_per_token(seqlen, 0) + pictures * picture_flops() / std::max(seqlen, 1.0);
}

}  // namespace snug::models::vision
