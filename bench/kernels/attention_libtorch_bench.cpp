// libtorch's scaled_dot_product_attention on the shapes of attention_bench: key and value heads
// repeated and biases laid out for all pairs beforehand (not timed), forward and backward through
// autograd.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "kernels/gemm_timing.h"

int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 0.5;
  at::set_num_threads(omp_get_max_threads());
  for (const auto& s : snug::bench::kAttentionShapes) {
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      at::Tensor inputs[3];
      for (at::Tensor& x : inputs) {
        x = at::randn({s.documents, s.heads, s.tokens, s.dim}).to(type).requires_grad_(true);
      }
      std::optional<at::Tensor> biases;
      if (s.buckets > 0)
        biases = at::randn({1, s.heads, s.tokens, s.tokens}).to(type).requires_grad_(true);
      auto attend = [&] {
        return at::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], biases, s.dropout,
                                                s.causal);
      };
      const auto forward = snug::bench::best_time(budget, [&] { attend(); });
      const at::Tensor out = attend(), d_out = at::randn_like(out);
      const auto backward = snug::bench::best_time(budget, [&] {
        std::vector<at::Tensor> trained = {inputs[0], inputs[1], inputs[2]};
        if (biases) trained.push_back(*biases);
        torch::autograd::grad({out}, trained, {d_out}, true);
      });
      const double flops = snug::bench::attention_flops(s);
      fmt::print(
          "{:5} tokens x {} {:2} heads of {:3}{} {:>5}  forward {:7.2f} ms {:5.1f} %  "
          "backward {:7.2f} ms {:5.1f} %\n",
          s.tokens, s.documents, s.heads, s.dim, snug::bench::extras(s),
          type == at::kFloat ? "f32" : "bf16", forward.seconds * 1e3,
          100 * flops / forward.seconds / forward.bound, backward.seconds * 1e3,
          250 * flops / backward.seconds / backward.bound);
    }
  }
}
