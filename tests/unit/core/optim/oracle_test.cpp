// Five steps of each optimizer against torch's and bitsandbytes' own; tests/oracles/optimizers.py
// wrote the expected values.
// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "core/kernels/cpu/isa.h"
#include "core/kernels/dynamic_map.h"
#include "files/weights/safetensors/safetensors.h"
#include "support/source_dir.h"
#include "unit/core/optim/optim_testing.h"

namespace snug::optim {
namespace {

constexpr int kSteps = 5;
constexpr int kTensors = 3;

at::Tensor expected(const std::string& name) {
  static const auto source =
      files::open_safetensors(tests::source_dir() / "tests/data/optim/expected.safetensors");
  static const std::map<files::DType, at::ScalarType> kTypes = {{files::DType::F32, at::kFloat},
                                                                {files::DType::BF16, at::kBFloat16},
                                                                {files::DType::U8, at::kByte}};
  const files::TensorInfo* info = source->find(name);
  if (info == nullptr) return {};
  const at::Tensor tensor = at::empty(info->shape, kTypes.at(info->dtype));
  source->read(*info, info->dtype, tensor.mutable_data_ptr());
  return tensor;
}

std::string key(const std::string& what, int i) { return what + "." + std::to_string(i); }

struct OracleRun {
  explicit OracleRun(const recipe::OptimizerOptions& options, at::ScalarType type = at::kFloat) {
    for (int i = 0; i < kTensors; ++i)
      parameters.push_back({std::to_string(i), expected(key("start", i)).to(type)});
    optimizer = make_optimizer(options, parameters);
    lr = options.lr;
  }
  void step(int k) {
    for (int i = 0; i < kTensors; ++i) {
      const at::Tensor& value = parameters[static_cast<size_t>(i)].tensor;
      const at::Tensor gradient = expected(key("grad." + std::to_string(k), i));
      value.mutable_grad() = gradient.to(value.scalar_type());
    }
    optimizer->step({.lr = lr});
  }
  void all_steps() {
    for (int k = 0; k < kSteps; ++k) step(k);
  }

  double lr = 0;
  std::vector<NamedTensor> parameters;
  std::unique_ptr<Optimizer> optimizer;
};

// Elements further apart than `relative` of the expected magnitude, or `absolute`.
int64_t num_apart(const at::Tensor& got, const at::Tensor& wanted, double relative,
                  double absolute) {
  const at::Tensor a = got.to(at::kDouble).flatten(), b = wanted.to(at::kDouble).flatten();
  const at::Tensor near = (a - b).abs() <= b.abs() * relative + absolute;
  return got.numel() - near.sum().item<int64_t>();  // NaN is apart from everything
}

void expect_near(const at::Tensor& got, const std::string& name, double relative, double absolute) {
  const at::Tensor wanted = expected(name);
  ASSERT_TRUE(wanted.defined()) << name;
  ASSERT_EQ(got.numel(), wanted.numel()) << name;
  const at::Tensor difference =
      (got.to(at::kDouble).flatten() - wanted.to(at::kDouble).flatten()).abs();
  EXPECT_EQ(num_apart(got, wanted, relative, absolute), 0)
      << name << ": " << difference.max().item<double>() << " at most, where "
      << wanted.flatten()[difference.argmax()].item().toDouble() << " was expected";
}

template <class Body>
void on_every_isa(const Body& body) {
  using kernels::cpu::Isa;
  for (const Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
    if (isa > kernels::cpu::best_isa()) continue;
    const kernels::cpu::ScopedIsa scoped(isa);
    SCOPED_TRACE(isa_name(isa));
    body();
  }
}

recipe::OptimizerOptions adam_like(const std::string& name) {
  recipe::OptimizerOptions options = options_of(name, 0.01);
  options.beta1 = 0.9;
  options.beta2 = 0.95;
  options.weight_decay = 0.1;
  return options;
}

TEST(Oracle, DynamicMapsAreBitsandbytes) {
  const at::Tensor with_sign = expected("signed_map"), without = expected("unsigned_map");
  for (int64_t i = 0; i < 256; ++i) {
    EXPECT_EQ(kernels::signed_dynamic_map().values[i], with_sign[i].item<float>()) << i;
    EXPECT_EQ(kernels::unsigned_dynamic_map().values[i], without[i].item<float>()) << i;
  }
}

// A sum rounded otherwise may cross the middle between two codes: then the code is its neighbour.
void expect_codes(const at::Tensor& got, const std::string& name) {
  const at::Tensor wanted = expected(name);
  ASSERT_EQ(got.sizes(), wanted.sizes());
  EXPECT_EQ(num_apart(got, wanted, 0, 1), 0) << name;
  EXPECT_LE(num_apart(got, wanted, 0, 0), got.numel() / 1000) << name;
}

TEST(Oracle, AdamW8bit) {
  on_every_isa([] {
    OracleRun run(adam_like("adamw_8bit"));
    run.step(0);
    expect_near(run.parameters[0].tensor, "adamw_8bit.first.0", 3e-7, 1e-7);
    for (int k = 1; k < kSteps; ++k) run.step(k);
    int quantized = 0;
    for (const NamedTensor& state : run.optimizer->states()) {
      const std::string name = key("adamw_8bit" + state.name.substr(1), state.name[0] - '0');
      if (state.tensor.scalar_type() == at::kByte) {
        expect_codes(state.tensor, name);
        ++quantized;
      } else {
        // The first moment's terms have either sign: what cancels came from larger numbers.
        expect_near(state.tensor, name, 1e-6, state.name.ends_with(".exp_avg") ? 2e-7 : 1e-12);
      }
    }
    EXPECT_EQ(quantized, 2) << "of the three tensors only one has 4096 elements";
    // Where a code is another one the weight is too, by a share of the learning rate.
    for (int i = 0; i < kTensors; ++i) {
      const at::Tensor& got = run.parameters[static_cast<size_t>(i)].tensor;
      const at::Tensor wanted = expected(key("adamw_8bit.param", i));
      EXPECT_LE(num_apart(got, wanted, 1e-6, 1e-6), got.numel() / 500) << i;
      EXPECT_EQ(num_apart(got, wanted, 1e-6, 2e-3), 0) << i;
    }
  });
}

TEST(Oracle, AdamW8bitOfBfloat16Weights) {
  on_every_isa([] {
    OracleRun run(adam_like("adamw_8bit"), at::kBFloat16);
    run.all_steps();
    for (int i = 0; i < kTensors; ++i) {
      const at::Tensor& got = run.parameters[static_cast<size_t>(i)].tensor;
      const at::Tensor wanted = expected(key("adamw_8bit_bf16.param", i));
      EXPECT_LE(num_apart(got, wanted, 0, 0), got.numel() / 100) << i;
      EXPECT_EQ(num_apart(got, wanted, 0x1p-7, 2e-3), 0) << i;
    }
  });
}

TEST(Oracle, Lion) {
  on_every_isa([] {
    OracleRun run(adam_like("lion"));
    run.all_steps();
    // Where the momentum cancels, a rounding decides its sign.
    for (int i = 0; i < kTensors; ++i) {
      const at::Tensor& got = run.parameters[static_cast<size_t>(i)].tensor;
      const at::Tensor wanted = expected(key("lion.param", i));
      EXPECT_LE(num_apart(got, wanted, 5e-7, 1e-8), got.numel() / 1000) << i;
      EXPECT_EQ(num_apart(got, wanted, 5e-7, 2.001 * run.lr), 0) << i;
    }
    for (const NamedTensor& state : run.optimizer->states())
      expect_near(state.tensor, key("lion" + state.name.substr(1), state.name[0] - '0'), 1e-6,
                  2e-7);
  });
}

TEST(Oracle, Adafactor) {
  on_every_isa([] {
    recipe::OptimizerOptions options = options_of("adafactor", 0.05);
    options.weight_decay = 0.1;
    OracleRun run(options);
    run.all_steps();
    for (int i = 0; i < kTensors; ++i)
      expect_near(run.parameters[static_cast<size_t>(i)].tensor, key("adafactor.param", i), 2e-6,
                  1e-6);
    for (const NamedTensor& state : run.optimizer->states())
      expect_near(state.tensor, key("adafactor" + state.name.substr(1), state.name[0] - '0'), 2e-6,
                  0);
  });
}

}  // namespace
}  // namespace snug::optim
