// Timing of a device's kernels beside what it gives at best. On a GPU by its events, so that the
// host's launches do not count while they are faster than what they launch. Arrays are larger than
// a GPU's second level of cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

namespace snug::bench {

// Sizes of a language model's step.
struct Sizes {
  int64_t rows, dim, features, heads, head_dim, vocabulary, logit_rows, parameters, product;
};

class DeviceBench {
 public:
  DeviceBench(at::Device device, double milliseconds, std::string only)
      : device_(device), seconds_(milliseconds / 1000), only_(std::move(only)) {}

  bool on_gpu() const { return device_.is_cuda(); }
  at::TensorOptions options(at::ScalarType type) const { return at::dtype(type).device(device_); }

  at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType type = at::kBFloat16) const {
    return at::randn(sizes, options(type));
  }
  at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) const {
    return at::zeros(sizes, options(type));
  }
  at::Tensor ids(int64_t count, int64_t below) const {
    return at::randint(below, {count}, options(at::kInt));
  }

  // What memory bounds: `bytes` must be read and written. The first one is the copy that others are
  // set against.
  template <class Host, class Device>
  void stream(const std::string& name, double bytes, Host host, Device device) {
    const double seconds = time(name, host, device);
    if (seconds == 0) return;
    if (best_rate_ == 0) best_rate_ = bytes / seconds;
    std::printf(R"({"kernel": "%s", "us": %.2f, "bytes": %.0f, "gb_per_s": %.2f, "of_copy": %.3f})"
                "\n",
                name.c_str(), seconds * 1e6, bytes, bytes / seconds / 1e9,
                bytes / seconds / best_rate_);
    std::fflush(stdout);
  }
  template <class Run>
  void stream(const std::string& name, double bytes, Run run) {
    stream(name, bytes, run, run);
  }

  // What arithmetic bounds. The first one is the product that others are set against.
  template <class Run>
  void compute(const std::string& name, double operations, Run run) {
    const double seconds = time(name, run, run);
    if (seconds == 0) return;
    if (best_product_ == 0) best_product_ = operations / seconds;
    std::printf(
        R"({"kernel": "%s", "us": %.2f, "operations": %.0f, "tflops": %.2f, "of_product": %.3f})"
        "\n",
        name.c_str(), seconds * 1e6, operations, operations / seconds / 1e12,
        operations / seconds / best_product_);
    std::fflush(stdout);
  }

 private:
  // The best of three rounds of as many calls as the time allows; 0 where it is not asked for. With
  // no time each is called once, for a profiler.
  double time(const std::string& name, const std::function<void()>& host,
              const std::function<void()>& device) const {
    if (name.find(only_) == std::string::npos) return 0;
    const std::function<void()>& run = on_gpu() ? device : host;
    run();
    if (seconds_ <= 0) return 0;
    const double once = std::max(round(1, run), 1e-7);
    const int calls = std::clamp(static_cast<int>(seconds_ / 3 / once), 1, 1000);
    double best = once;
    for (int i = 0; i < 3; ++i) best = std::min(best, round(calls, run) / calls);
    return best;
  }

  double round(int calls, const std::function<void()>& run) const {
    if (!on_gpu()) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) run();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device_);
    c10::Event begin(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream);
    for (int i = 0; i < calls; ++i) run();
    end.record(stream);
    end.synchronize();
    return begin.elapsedTime(end) / 1000;
  }

  at::Device device_;
  double seconds_;
  std::string only_;
  double best_rate_ = 0, best_product_ = 0;
};

inline double bytes_of(std::initializer_list<at::Tensor> tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

inline void* address(const at::Tensor& t) { return t.mutable_data_ptr(); }
inline float* floats(const at::Tensor& t) { return t.mutable_data_ptr<float>(); }
inline int32_t* ints(const at::Tensor& t) { return t.mutable_data_ptr<int32_t>(); }

// Each measures what its file holds.
void measure_layers(DeviceBench& bench, const Sizes& s);
void measure_updates(DeviceBench& bench, const Sizes& s);

}  // namespace snug::bench
