// The gated delta rule and Mamba 2's scan, forward and backward over packed documents: milliseconds
// and share of the bound by products of matrices. Usage: delta_rule_bench [seconds a shape], or for
// bench/compare/delta_rule.py
//        delta_rule_bench delta|sum TOKENS KEY_HEADS VALUE_HEADS KEY_DIM VALUE_DIM THREADS: seconds
//        of both, once.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/delta_rule.h"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "core/kernels/cpu/linalg/cpu_features.h"
#include "kernels/gemm_timing.h"

namespace {

using namespace snug::kernels;
using namespace snug::kernels::cpu;

struct Shape {
  int64_t tokens, documents, key_heads, value_heads, key_dim, value_dim, chunk;
  StateForm form = StateForm::Delta;
};
// Qwen3-Next's and Qwen3.5's heads; short documents; other chunks; Granite 4.0 H-Micro's heads.
constexpr Shape kShapes[] = {{2048, 1, 16, 32, 128, 128, 64},
                             {256, 8, 16, 32, 128, 128, 64},
                             {2048, 1, 16, 16, 128, 128, 64},
                             {2048, 1, 16, 32, 128, 128, 32},
                             {2048, 1, 16, 32, 128, 128, 96},
                             {2048, 1, 16, 32, 128, 128, 128},
                             {2048, 1, 1, 64, 128, 64, 64, StateForm::Sum},
                             {2048, 1, 1, 64, 128, 64, 128, StateForm::Sum}};

// Normal numbers of float32, or pairs of bfloat16.
std::vector<uint32_t> storage(int64_t elements, Scalar type) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint32_t> words(size_t(elements * scalar_bytes(type) / 4 + 1));
  for (uint32_t& word : words) {
    const float value = normal(random);
    __builtin_memcpy(&word, &value, 4);
    if (type != Scalar::F32) word = (word & 0xffff0000) | word >> 16;
  }
  return words;
}

std::vector<float> uniform(int64_t count, float low, float high) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(draw(random));
  return values;
}

class Run {
 public:
  Run(const Shape& s, Scalar type, int threads)
      : tokens_(s.tokens * s.documents),
        q_(storage(tokens_ * s.key_heads * s.key_dim, type)),
        k_(q_),
        dq_(q_),
        dk_(q_),
        v_(storage(tokens_ * s.value_heads * s.value_dim, type)),
        out_(v_),
        d_out_(v_),
        dv_(v_),
        g_(uniform(tokens_ * s.value_heads, -0.5f, 0.f)),
        beta_(uniform(tokens_ * s.value_heads, 0.f, 1.f)),
        dg_(g_),
        dbeta_(g_) {
    for (int64_t i = 0; i <= s.documents; ++i) borders_.push_back(int32_t(i * s.tokens));
    for (size_t i = 0; i < k_.size(); ++i) k_[i] = q_[(i * 7 + 1) % q_.size()];
    backward_.forward = {.sizes = {type, tokens_, s.key_heads, s.value_heads, s.key_dim,
                                   s.value_dim, s.documents, s.tokens, s.chunk, s.form},
                         .cu_seqlens = borders_.data(),
                         .q = q_.data(),
                         .k = k_.data(),
                         .v = v_.data(),
                         .q_stride = s.key_heads * s.key_dim,
                         .k_stride = s.key_heads * s.key_dim,
                         .v_stride = s.value_heads * s.value_dim,
                         .g = g_.data(),
                         .beta = beta_.data(),
                         .out = out_.data(),
                         .num_threads = threads};
    backward_.d_out = d_out_.data();
    backward_.dq = dq_.data(), backward_.dk = dk_.data(), backward_.dv = dv_.data();
    backward_.dg = dg_.data(), backward_.dbeta = dbeta_.data();
    bytes_ = std::max(delta_rule_forward_workspace_bytes(backward_.forward),
                      delta_rule_backward_workspace_bytes(backward_.forward));
    workspace_.reset(std::aligned_alloc(64, size_t((bytes_ + 63) / 64 * 64)));
  }

  void forward() { delta_rule_forward(backward_.forward, workspace_.get()); }
  void backward() { delta_rule_backward(backward_, workspace_.get()); }
  int64_t workspace_bytes() const { return bytes_; }

 private:
  int64_t tokens_;
  std::vector<uint32_t> q_, k_, dq_, dk_, v_, out_, d_out_, dv_;
  std::vector<float> g_, beta_, dg_, dbeta_;
  std::vector<int32_t> borders_;
  DeltaRuleBackward backward_;
  int64_t bytes_ = 0;
  std::unique_ptr<void, decltype(&std::free)> workspace_{nullptr, &std::free};
};

// Of the large products alone; triangles count half.
double forward_flops(const Shape& s) {
  const double tokens = double(s.tokens * s.documents), c = double(s.chunk);
  const double dk = double(s.key_dim), dv = double(s.value_dim);
  if (s.form == StateForm::Sum)
    return 2 * tokens *
           (double(s.value_heads) * (2 * dk * dv + c * dv / 2) + double(s.key_heads) * c * dk / 2);
  return 2 * tokens *
         (double(s.value_heads) * (3 * dk * dv + c * dv) + double(s.key_heads) * c * dk);
}
double backward_flops(const Shape& s) {
  const double tokens = double(s.tokens * s.documents), c = double(s.chunk);
  const double dk = double(s.key_dim), dv = double(s.value_dim);
  if (s.form == StateForm::Sum)
    return 2 * tokens * double(s.value_heads) * (5 * dk * dv + c * (dv + 1.5 * dk));
  return 2 * tokens * double(s.value_heads) * (8 * dk * dv + c * (2.5 * dv + 3.5 * dk));
}

void measure(const Shape& s, Scalar type, double budget) {
  Run run(s, type, 0);
  const auto forward = snug::bench::best_time(budget, [&] { run.forward(); });
  const auto backward = snug::bench::best_time(budget, [&] { run.backward(); });
  fmt::print(
      "{:5} tokens x {} {:2}/{} heads of {:3}/{:3} chunk {:3} {} {:>4}  forward {:7.2f} ms {:5.1f} "
      "%  "
      "backward {:7.2f} ms {:5.1f} %  {:6.1f} MiB\n",
      s.tokens, s.documents, s.key_heads, s.value_heads, s.key_dim, s.value_dim, s.chunk,
      s.form == StateForm::Sum ? "sum  " : "delta", type == Scalar::F32 ? "f32" : "bf16",
      forward.seconds * 1e3, 100 * forward_flops(s) / forward.seconds / forward.bound,
      backward.seconds * 1e3, 100 * backward_flops(s) / backward.seconds / backward.bound,
      double(run.workspace_bytes()) / (1 << 20));
}

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void once(char** argv) {
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  const StateForm form = std::string_view(argv[1]) == "sum" ? StateForm::Sum : StateForm::Delta;
  const Shape shape{number(2), 1, number(3), number(4), number(5), number(6), 64, form};
  Run run(shape, Scalar::F32, int(number(7)));
  run.forward(), run.backward();  // the pages are there
  const double forward = seconds_of([&] { run.forward(); });
  fmt::print("{} {}\n", forward, seconds_of([&] { run.backward(); }));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 8) {
    once(argv);
    return 0;
  }
  const double budget = argc > 1 ? std::atof(argv[1]) : 0.5;
  fmt::print("{}: {:.1f} GFLOP/s\n", cpu_summary(), cpu_peak_flops_estimate() * 1e-9);
  for (const Shape& shape : kShapes) {
    for (const Scalar type : {Scalar::F32, Scalar::BF16}) measure(shape, type, budget);
  }
}
