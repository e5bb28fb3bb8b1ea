// Every operator against transformers' modules, torch's losses and torch's optimizers
// (tests/oracles/cpu_kernels.py): float32 to about 1e-6, halves to their own precision.
// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/kernels/activation.h"
#include "core/kernels/cpu/rope_tables.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/embedding.h"
#include "core/kernels/layer_norm.h"
#include "core/kernels/optimizers.h"
#include "core/kernels/rms_norm.h"
#include "core/kernels/rope.h"
#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace {

using Json = nlohmann::json;

const Json& oracle() {
  static const Json data =
      Json::parse(std::ifstream(SNUG_SOURCE_DIR "/tests/data/kernels/kernels.json"));
  return data;
}

std::vector<double> numbers(const Json& list) { return list.get<std::vector<double>>(); }

Scalar type_named(const std::string& name) {
  return name == "F32" ? Scalar::F32 : name == "BF16" ? Scalar::BF16 : Scalar::F16;
}

// Relative to the largest value: what cancels in a small one came from larger ones.
void expect_close(const Array& got, const Json& list, double relative, const std::string& what) {
  const std::vector<double> expected = numbers(list);
  double largest = 0;
  for (const double v : expected) largest = std::max(largest, std::abs(v));
  expect_near(got.values(), expected, within(expected, relative, relative * largest), what);
}

TEST(Oracle, RmsNorm) {
  on_every_isa([] {
    for (const Json& c : oracle()["rms_norm"]) {
      const Scalar type = type_named(c["type"]);
      const NormForm form = c["gemma"].get<bool>() ? NormForm::Gemma : NormForm::Llama;
      const int64_t rows = c["rows"], dim = c["dim"];
      const Array x(type, numbers(c["x"])), weight(type, numbers(c["weight"]));
      const Array dy(type, numbers(c["dy"]));
      Array y(type, rows * dim), dx(type, rows * dim), rstd(Scalar::F32, rows);
      Array dweight(Scalar::F32, dim);
      rms_norm_forward({.type = type,
                        .weight_type = type,
                        .form = form,
                        .rows = rows,
                        .dim = dim,
                        .x = x.data(),
                        .weight = weight.data(),
                        .y = y.data(),
                        .rstd = rstd.floats()});
      rms_norm_backward({.type = type,
                         .weight_type = type,
                         .form = form,
                         .rows = rows,
                         .dim = dim,
                         .dy = dy.data(),
                         .x = x.data(),
                         .weight = weight.data(),
                         .rstd = rstd.floats(),
                         .dx = dx.data(),
                         .dweight = {.data = dweight.floats()}});
      // torch rounds at each of its operations, four in the forward and backward of a half.
      const double u = type == Scalar::F32 ? 5e-7 : 2 * unit_roundoff(type);
      expect_close(y, c["y"], type == Scalar::F32 ? 5e-7 : 0.01 * unit_roundoff(type),
                   std::string("y ") + name_of(type));
      expect_close(dx, c["dx"], u, std::string("dx ") + name_of(type));
      expect_close(dweight, c["dweight"], u, std::string("dweight ") + name_of(type));
    }
  });
}

TEST(Oracle, LayerNorm) {
  on_every_isa([] {
    for (const Json& c : oracle()["layer_norm"]) {
      const Scalar type = type_named(c["type"]);
      const int64_t rows = c["rows"], dim = c["dim"];
      const Array x(type, numbers(c["x"])), dy(type, numbers(c["dy"]));
      const Array weight(type, numbers(c["weight"])), bias(type, numbers(c["bias"]));
      Array y(type, rows * dim), dx(type, rows * dim);
      Array mean(Scalar::F32, rows), rstd(Scalar::F32, rows);
      Array dweight(Scalar::F32, dim), dbias(Scalar::F32, dim);
      layer_norm_forward({.type = type,
                          .weight_type = type,
                          .rows = rows,
                          .dim = dim,
                          .x = x.data(),
                          .weight = weight.data(),
                          .bias = bias.data(),
                          .y = y.data(),
                          .mean = mean.floats(),
                          .rstd = rstd.floats()});
      layer_norm_backward({.type = type,
                           .weight_type = type,
                           .rows = rows,
                           .dim = dim,
                           .dy = dy.data(),
                           .x = x.data(),
                           .weight = weight.data(),
                           .mean = mean.floats(),
                           .rstd = rstd.floats(),
                           .dx = dx.data(),
                           .dweight = {.data = dweight.floats()},
                           .dbias = {.data = dbias.floats()}});
      // Both round once, from float32 sums in another order.
      const double u = type == Scalar::F32 ? 1e-6 : 1.1 * unit_roundoff(type);
      expect_close(y, c["y"], u, std::string("y ") + name_of(type));
      expect_close(dx, c["dx"], u, std::string("dx ") + name_of(type));
      expect_close(dweight, c["dweight"], u, std::string("dweight ") + name_of(type));
      expect_close(dbias, c["dbias"], u, std::string("dbias ") + name_of(type));
    }
  });
}

double value_or_zero(const Json& c, const char* key) { return c["parameters"].value(key, 0.0); }

RopeScaling scaling_of(const Json& c) {
  const Json& p = c["parameters"];
  const std::map<std::string, RopeType> types = {
      {"default", RopeType::None},  {"linear", RopeType::Linear}, {"dynamic", RopeType::Dynamic},
      {"llama3", RopeType::Llama3}, {"yarn", RopeType::Yarn},     {"longrope", RopeType::LongRope}};
  RopeScaling s;
  s.type = types.at(p["rope_type"]);
  s.factor = p.value("factor", 1.0);
  s.low_freq_factor = p.value("low_freq_factor", 1.0);
  s.high_freq_factor = p.value("high_freq_factor", 4.0);
  s.original_max_position =
      p.value("original_max_position_embeddings", c["max_position"].get<int64_t>());
  s.beta_fast = p.value("beta_fast", 32.0);
  s.beta_slow = p.value("beta_slow", 1.0);
  s.truncate = p.value("truncate", true);
  s.mscale = value_or_zero(c, "mscale");
  s.mscale_all_dim = value_or_zero(c, "mscale_all_dim");
  s.short_factor = p.value("short_factor", std::vector<double>());
  s.long_factor = p.value("long_factor", std::vector<double>());
  return s;
}

Array turned(const Json& c, const char* input, const RopeTables& tables, RopeDirection direction) {
  Array x(Scalar::F32, numbers(c[input]));
  const int32_t position = c["tokens"].get<int32_t>() - 1;
  rope_apply({.tokens = 1,
              .heads = c["heads"],
              .head_dim = c["head_dim"],
              .x = x.data(),
              .positions = &position,
              .cos = tables.cos.data(),
              .sin = tables.sin.data(),
              .max_positions = tables.max_positions,
              .direction = direction});
  return x;
}

TEST(Oracle, RopeOfEveryType) {
  on_every_isa([] {
    for (const Json& c : oracle()["rope"]) {
      const std::string name = c["name"];
      const RopeScaling scaling = scaling_of(c);
      const int64_t dim = c["head_dim"], tokens = c["tokens"];
      const RopeFrequencies frequencies = rope_frequencies(scaling, dim, tokens);
      const std::vector<double> inverse = numbers(c["inverse"]);
      expect_near({frequencies.inverse.begin(), frequencies.inverse.end()}, inverse,
                  within(inverse, 3e-7, 0), name);
      EXPECT_NEAR(frequencies.attention_factor, c["attention_factor"].get<double>(), 1e-9) << name;
      const RopeTables tables = build_rope_tables(scaling, dim, tokens);
      // One ulp of a frequency is worth position * 6e-8 of angle.
      const double tolerance = 1e-6 + 1e-7 * static_cast<double>(tokens);
      expect_close(turned(c, "q", tables, RopeDirection::Forward), c["turned"], tolerance, name);
      expect_close(turned(c, "dy", tables, RopeDirection::Inverse), c["dq"], tolerance, name);
    }
  });
}

TEST(Oracle, GatedActivations) {
  on_every_isa([] {
    const Activation activations[] = {Activation::Silu, Activation::Gelu, Activation::GeluTanh};
    for (size_t k = 0; k < 3; ++k) {
      const Json& c = oracle()["activation"][k];
      Array gate(Scalar::F32, numbers(c["gate"])), up(Scalar::F32, numbers(c["up"]));
      const Array dy(Scalar::F32, numbers(c["dy"]));
      Array y(Scalar::F32, gate.size());
      gated_forward({.activation = activations[k],
                     .rows = 1,
                     .features = gate.size(),
                     .gate = gate.data(),
                     .up = up.data(),
                     .y = y.data()});
      gated_backward({.activation = activations[k],
                      .rows = 1,
                      .features = gate.size(),
                      .dy = dy.data(),
                      .gate = gate.data(),
                      .up = up.data(),
                      .dgate = gate.data(),
                      .dup = up.data()});
      const std::string name = c["name"];
      expect_close(y, c["y"], 3e-7, name);
      expect_close(gate, c["dgate"], 3e-7, name);
      expect_close(up, c["dup"], 3e-7, name);
    }
  });
}

TEST(Oracle, CrossEntropy) {
  on_every_isa([] {
    for (const Json& c : oracle()["cross_entropy"]) {
      Array logits(Scalar::F32, numbers(c["logits"]));
      const auto targets = c["targets"].get<std::vector<int32_t>>();
      const CrossEntropyResult result = cross_entropy({.rows = c["rows"],
                                                       .vocabulary = c["vocabulary"],
                                                       .logits = logits.floats(),
                                                       .targets = targets.data(),
                                                       .label_smoothing = c["smoothing"]});
      EXPECT_NEAR(result.loss_sum / c["loss_sum"].get<double>(), 1, 5e-7);
      EXPECT_EQ(result.count, 4);
      expect_close(logits, c["gradient"], 5e-7, "gradient");
    }
  });
}

TEST(Oracle, Embedding) {
  const Json& c = oracle()["embedding"];
  const auto ids = c["ids"].get<std::vector<int32_t>>();
  const Array dy(Scalar::F32, numbers(c["dy"]));
  Array grad(Scalar::F32, static_cast<int64_t>(c["grad"].size()));
  embedding_backward({.tokens = static_cast<int64_t>(ids.size()),
                      .vocabulary = c["vocabulary"],
                      .dim = c["dim"],
                      .ids = ids.data(),
                      .padding_index = c["padding_index"],
                      .dy = dy.data(),
                      .grad = grad.data()});
  expect_close(grad, c["grad"], 2e-7, "grad");
}

TEST(Oracle, AdamWOverTenSteps) {
  on_every_isa([] {
    for (const Json& c : oracle()["adamw"]) {
      const Scalar type = type_named(c["name"]);
      Array param(type, numbers(c["start"]));
      Array first(type, param.size()), second(type, param.size());
      // A half rounded the other way once stays one ulp off; float32 gathers an ulp a step.
      const double relative = type == Scalar::F32 ? 1e-6 : 2 * unit_roundoff(type);
      for (size_t step = 0; step < c["grads"].size(); ++step) {
        const Array grad(type, numbers(c["grads"][step]));
        const AdamWTensor tensor = {.count = param.size(),
                                    .param = param.data(),
                                    .grad = grad.data(),
                                    .exp_avg = first.data(),
                                    .exp_avg_sq = second.data(),
                                    .param_type = type,
                                    .grad_type = type,
                                    .state_type = type};
        adamw_step({&tensor, 1}, {.lr = 0.01,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .weight_decay = 0.1,
                                  .step = static_cast<int64_t>(step) + 1});
        expect_close(param, c["params"][step], relative, "step " + std::to_string(step + 1));
      }
      expect_close(first, c["exp_avg"], relative, "exp_avg");
      expect_close(second, c["exp_avg_sq"], relative, "exp_avg_sq");
    }
  });
}

TEST(Oracle, SgdOverFiveSteps) {
  on_every_isa([] {
    for (const Json& c : oracle()["sgd"]) {
      const Json& options = c["options"];
      Array param(Scalar::F32, numbers(c["start"])), buffer(Scalar::F32, param.size());
      for (size_t step = 0; step < c["grads"].size(); ++step) {
        const Array grad(Scalar::F32, numbers(c["grads"][step]));
        const ElementTensor<1> tensor = {.count = param.size(),
                                         .param = param.data(),
                                         .grad = grad.data(),
                                         .states = {buffer.data()}};
        element_step<Sgd>({&tensor, 1}, {.lr = 0.05,
                                         .momentum = options.value("momentum", 0.0),
                                         .dampening = options.value("dampening", 0.0),
                                         .weight_decay = options.value("weight_decay", 0.0),
                                         .nesterov = options.value("nesterov", false),
                                         .first_step = step == 0});
        expect_close(param, c["params"][step], 5e-7, options.dump());
      }
      if (c.contains("momentum_buffer")) {
        expect_close(buffer, c["momentum_buffer"], 5e-7, options.dump());
      }
    }
  });
}

TEST(Oracle, GlobalNorm) {
  const Json& c = oracle()["norm"];
  std::vector<Array> arrays;
  for (const Json& tensor : c["tensors"]) arrays.emplace_back(Scalar::F32, numbers(tensor));
  std::vector<TensorView> views;
  for (const Array& array : arrays) views.push_back({array.size(), array.data(), Scalar::F32});
  EXPECT_NEAR(std::sqrt(sum_of_squares(views).value), c["norm"].get<double>(), 1e-6);
}

}  // namespace
}  // namespace snug::kernels::cpu
