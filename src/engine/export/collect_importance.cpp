// SPDX-License-Identifier: Apache-2.0
#include "engine/export/collect_importance.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/input_observer.h"
#include "core/nn/linear.h"
#include "engine/batch.h"

namespace snug::engine {
namespace {

// Sums of squares of what one matrix has read.
struct Squares {
  at::Tensor sums;  // (in) float64
  int64_t num_rows = 0;

  // x (N, in), some rows at a time, so that no float32 copy of it exists whole.
  void add(const at::Tensor& x) {
    constexpr int64_t kRows = 256;
    if (!sums.defined()) sums = at::zeros({x.size(1)}, x.options().dtype(at::kDouble));
    for (int64_t begin = 0; begin < x.size(0); begin += kRows)
      sums.add_(x.slice(0, begin, begin + kRows).to(at::kFloat).square().sum(0));
    num_rows += x.size(0);
  }

  std::vector<float> means() const {
    const at::Tensor values = (sums / num_rows).to(at::kCPU, at::kFloat).contiguous();
    const auto* first = values.const_data_ptr<float>();
    return {first, first + values.numel()};
  }
};

}  // namespace

files::ImportanceMatrix collect_importance(exec::Executor& executor, const models::Model& model,
                                           data::BatchSource& samples, int64_t num_samples,
                                           const CollectOptions& options) {
  std::map<std::string, Squares> squares;
  const nn::InputObserver observer([&](const nn::Linear& layer, const at::Tensor& x) {
    squares[model.placement(models::Layout::Gguf, layer.weight()).tensor].add(x);
  });
  for (int64_t begin = 0; begin < num_samples; begin += options.micro_batch_size) {
    std::vector<int64_t> mine(
        static_cast<size_t>(std::min(options.micro_batch_size, num_samples - begin)));
    std::iota(mine.begin(), mine.end(), begin);
    executor.last_logits(to_device(*samples.make(mine), executor.device(), HeadRows::All),
                         options.compute);
    if (options.progress) options.progress(begin + std::ssize(mine));
  }
  files::ImportanceMatrix matrix;
  for (const auto& [name, own] : squares) matrix.columns.emplace(name, own.means());
  return matrix;
}

}  // namespace snug::engine
