// Layer norm, GELU and patches of pictures beside libtorch's operators: milliseconds of each, in
// turns, and how many times as fast ours are. GPT-2's widths at 4096 tokens; pictures of 224
// pixels. Usage: layers_libtorch_bench [rounds].
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/kernels/activation.h"
#include "core/kernels/layer_norm.h"
#include "core/kernels/pictures.h"

namespace {

using namespace snug::kernels;
using namespace snug::kernels::cpu;

struct Pair {
  std::string name;
  std::function<void()> ours, libtorchs;
};

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void compare(const char* title, const std::vector<Pair>& pairs, int rounds) {
  fmt::print("{}\n{:<32}{:>10}{:>10}{:>8}\n", title, "", "ours ms", "libtorch", "ratio");
  for (const Pair& pair : pairs) {
    double ours = 1e9, libtorchs = 1e9;
    for (int round = 0; round < rounds; ++round) {
      ours = std::min(ours, seconds_of(pair.ours));
      libtorchs = std::min(libtorchs, seconds_of(pair.libtorchs));
    }
    fmt::print("{:<32}{:>10.3f}{:>10.3f}{:>8.2f}\n", pair.name, 1e3 * ours, 1e3 * libtorchs,
               libtorchs / ours);
  }
}

void layers(at::ScalarType torch_type, Scalar type, const char* title, int rounds) {
  const int64_t rows = 4096, dim = 768, features = 4 * dim;
  const auto make = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(torch_type); };
  const at::Tensor x = make({rows, dim}), dy = make({rows, dim}), dx = at::empty_like(x);
  const at::Tensor weight = make({dim}), bias = make({dim}), y = at::empty_like(x);
  const at::Tensor wide = make({rows, features}), d_wide = make({rows, features});
  const at::Tensor out = at::empty_like(wide);
  const auto [y2, mean, rstd] = at::native_layer_norm(x.to(at::kFloat), {dim}, {}, {}, 1e-5);
  const at::Tensor d_weight = at::empty({dim}), d_bias = at::empty({dim});
  const at::Tensor row_mean = mean.to(torch_type), row_rstd = rstd.to(torch_type);
  const auto activation = [&](const char* name, Activation ours, const char* approximate) {
    return std::vector<Pair>{{fmt::format("{} forward", name),
                              [&, ours] {
                                activation_forward({.activation = ours,
                                                    .type = type,
                                                    .count = wide.numel(),
                                                    .x = wide.data_ptr(),
                                                    .y = out.data_ptr()});
                              },
                              [&, approximate] { at::gelu(wide, approximate); }},
                             {fmt::format("{} backward", name),
                              [&, ours] {
                                activation_backward({.activation = ours,
                                                     .type = type,
                                                     .count = wide.numel(),
                                                     .dy = d_wide.data_ptr(),
                                                     .x = wide.data_ptr(),
                                                     .dx = out.data_ptr()});
                              },
                              [&, approximate] { at::gelu_backward(d_wide, wide, approximate); }}};
  };
  std::vector<Pair> pairs = {
      {"layer norm forward",
       [&] {
         layer_norm_forward({.type = type,
                             .weight_type = type,
                             .rows = rows,
                             .dim = dim,
                             .x = x.data_ptr(),
                             .weight = weight.data_ptr(),
                             .bias = bias.data_ptr(),
                             .y = y.data_ptr(),
                             .mean = mean.data_ptr<float>(),
                             .rstd = rstd.data_ptr<float>()});
       },
       [&] { at::native_layer_norm(x, {dim}, weight, bias, 1e-5); }},
      {"layer norm backward",
       [&] {
         layer_norm_backward({.type = type,
                              .weight_type = type,
                              .rows = rows,
                              .dim = dim,
                              .dy = dy.data_ptr(),
                              .x = x.data_ptr(),
                              .weight = weight.data_ptr(),
                              .mean = mean.data_ptr<float>(),
                              .rstd = rstd.data_ptr<float>(),
                              .dx = dx.data_ptr(),
                              .dweight = {.data = d_weight.data_ptr<float>()},
                              .dbias = {.data = d_bias.data_ptr<float>()}});
       },
       [&] {
         at::native_layer_norm_backward(dy, x, {dim}, row_mean, row_rstd, weight, bias,
                                        {true, true, true});
       }}};
  for (const auto& more : {activation("gelu (erf)", Activation::Gelu, "none"),
                           activation("gelu (tanh)", Activation::GeluTanh, "tanh")})
    pairs.insert(pairs.end(), more.begin(), more.end());
  compare(title, pairs, rounds);
}

void pictures(int rounds) {
  const int64_t count = 16, side = 224, patch = 14, across = side / patch;
  const at::Tensor pixels = at::randint(256, {count, side, side, 3}, at::kByte);
  const at::Tensor out = at::empty({count * across * across, 3 * patch * patch});
  const at::Tensor mean = at::tensor({0.48F, 0.46F, 0.41F}),
                   std = at::tensor({0.27F, 0.26F, 0.28F});
  compare("16 pictures, float32",
          {{"patches",
            [&] {
              image_patches({.pictures = count,
                             .height = side,
                             .width = side,
                             .patch_size = patch,
                             .mean = {0.48F, 0.46F, 0.41F},
                             .std = {0.27F, 0.26F, 0.28F},
                             .pixels = pixels.data_ptr<uint8_t>(),
                             .out = out.data_ptr()});
            },
            [&] {
              pixels.to(at::kFloat)
                  .div_(255)
                  .sub_(mean)
                  .div_(std)
                  .view({count, across, patch, across, patch, 3})
                  .permute({0, 1, 3, 5, 2, 4})
                  .contiguous();
            }}},
          rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  layers(at::kFloat, Scalar::F32, "float32", rounds);
  layers(at::kBFloat16, Scalar::BF16, "bfloat16", rounds);
  pictures(rounds);
}
