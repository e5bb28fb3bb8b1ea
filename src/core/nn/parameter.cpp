// SPDX-License-Identifier: Apache-2.0
#include "core/nn/parameter.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <utility>

#include "core/kernels/cpu/parallel.h"
#include "core/kernels/random_key.h"
#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "core/ops/linear/stored_weight.h"

namespace snug::nn {

using kernels::mix64;

uint64_t hash_name(const std::string& name) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

namespace {

// Box-Muller from two uniform draws of the counter.
float normal_at(uint64_t stream, uint64_t index) {
  constexpr double kScale = 1.0 / 9007199254740992.0;  // 2^-53
  const double u = (static_cast<double>(mix64(stream + 2 * index) >> 11) + 0.5) * kScale;
  const double v = static_cast<double>(mix64(stream + 2 * index + 1) >> 11) * kScale;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

// Uniform in (-1, 1).
float uniform_at(uint64_t stream, uint64_t index) {
  constexpr double kScale = 1.0 / 4503599627370496.0;  // 2^-52
  return static_cast<float>((static_cast<double>(mix64(stream + index) >> 11) + 0.5) * kScale -
                            1.0);
}

// Each element's random number depends only on its index in the unsplit tensor, so threads and
// ranks can share the work. On one thread a model of 7 billion parameters takes minutes.
template <class T>
void fill(T* out, const std::vector<ElementRange>& ranges, uint64_t stream, Init init,
          double scale) {
  for (const ElementRange& range : ranges) {
    const auto draw = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto index = static_cast<uint64_t>(range.begin + i);
        const float drawn =
            init == Init::Normal ? normal_at(stream, index) : uniform_at(stream, index);
        out[i] = static_cast<T>(drawn * static_cast<float>(scale));
      }
    };
    kernels::cpu::parallel_ranges(range.count, 1, /*num_threads=*/0, draw);
    out += range.count;
  }
}

int64_t product(const std::vector<int64_t>& sizes, size_t from) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(from), sizes.end(), int64_t{1},
                         std::multiplies<>());
}

}  // namespace

std::vector<int64_t> Slice::by_sections(std::vector<int64_t> shape) const {
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(dim);
  *at /= sections;
  shape.insert(at, sections);
  return shape;
}

int64_t Parameter::num_elements() const { return product(shape, 0); }

std::vector<ElementRange> Parameter::ranges() const {
  if (!slice) return {{0, num_elements()}};
  const auto dim = static_cast<size_t>(slice->dim);
  const int64_t inner = product(shape, dim + 1);
  const int64_t section = slice->whole[dim] / slice->sections;
  const int64_t count = shape[dim] / slice->sections * inner;
  std::vector<ElementRange> all;
  for (int64_t outer = 0; outer < num_elements() / std::max<int64_t>(count, 1); ++outer)
    all.push_back({(outer * section + slice->begin) * inner, count});
  return all;
}

std::optional<Split> split_of(const std::vector<SplitRow>& table, std::string_view parameter) {
  const std::string_view layer = parameter.substr(0, parameter.rfind('.'));
  for (const SplitRow& row : table)
    if (layer == row.layer ||
        (layer.ends_with(row.layer) && layer[layer.size() - row.layer.size() - 1] == '.'))
      return row.split;
  return std::nullopt;
}

void Parameter::cut(std::shared_ptr<const ops::TensorShare> with,
                    const std::optional<Split>& split) {
  shape = whole_shape();
  slice.reset();
  share = std::move(with);
  // A bias has no columns.
  if (share == nullptr || !split || split->dim >= std::ssize(shape)) return;
  slice = Slice{.dim = split->dim, .whole = shape, .sections = split->sections};
  int64_t& size = shape[static_cast<size_t>(split->dim)];
  const int64_t section = size / split->sections;
  // Sizes differ by at most one, larger slices first, so that a plan for rank 0 holds for all.
  const int64_t parts = share->size(), rank = share->rank();
  const int64_t least = section / parts, larger = section % parts;
  slice->begin = rank * least + std::min(rank, larger);
  size = split->sections * (least + (rank < larger ? 1 : 0));
}

void Parameter::place(std::shared_ptr<const ops::TensorShare> on, int64_t owner) {
  shape = whole_shape();
  share = std::move(on);
  slice = Slice{.whole = shape, .owner = owner};
  if (share->rank() == owner) return;
  if (share->rank() > owner) slice->begin = shape.front();
  shape.front() = 0;
}

void Parameter::allocate(at::Device device, at::ScalarType type) {
  const memory::CategoryGuard category(memory::Category::Parameters);
  value = at::empty(stored_shape(), at::TensorOptions().device(device).dtype(stored_type(type)));
  value.set_requires_grad(trained && !quantization);
}

void Parameter::allocate_home() {
  home = memory::empty_on_host(value.sizes(), value.scalar_type(), value.device(),
                               memory::Category::Parameters, memory::HostUse::Written);
}

void Parameter::initialize(uint64_t seed, double deviation) {
  const at::Tensor& to = kept();
  if (to.is_meta() || is_elsewhere()) return;
  if (init == Init::Ones || init == Init::Zeros) {
    to.detach().fill_(init == Init::Ones ? 1 : 0);
    return;
  }
  const uint64_t stream = mix64(seed) ^ hash_name(name);
  const std::vector<ElementRange> places = ranges();
  const double scale = init_scale.value_or(deviation);
  // Numbers are drawn on the host, so that they are the same for every device.
  const bool in_place = to.is_cpu() && !quantization;
  const at::ScalarType type = quantization ? quantization->source : to.scalar_type();
  const at::Tensor host = in_place ? to : at::empty(shape, at::TensorOptions().dtype(type));
  if (type == at::kFloat)
    fill(host.mutable_data_ptr<float>(), places, stream, init, scale);
  else if (type == at::kBFloat16)
    fill(host.mutable_data_ptr<at::BFloat16>(), places, stream, init, scale);
  else
    fill(host.mutable_data_ptr<at::Half>(), places, stream, init, scale);
  if (!in_place) write(host);
}

std::vector<int64_t> Parameter::stored_shape() const {
  if (!quantization) return shape;
  return {kernels::quantized_bytes(quantization->format, shape[0], shape[1])};
}

at::ScalarType Parameter::stored_type(at::ScalarType plain) const {
  return quantization ? at::kByte : unquantized_type(plain);
}

ops::StoredWeight Parameter::stored(const at::Tensor& copy) const {
  if (!quantization) {
    ops::StoredWeight plain(copy);
    plain.kept_cast = kept_cast;
    return plain;
  }
  return {copy, quantization->format, shape[0], shape[1]};
}

void Parameter::write(const at::Tensor& dense) const {
  const at::Tensor& to = kept();
  if (!quantization) {
    to.detach().copy_(dense);
    return;
  }
  const at::Tensor numbers = dense.detach().to(quantization->source).contiguous();
  to.copy_(ops::quantize(numbers, quantization->format).data);
}

}  // namespace snug::nn
