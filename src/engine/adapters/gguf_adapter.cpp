// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/gguf_adapter.h"

#include <ATen/TensorOperators.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "core/nn/linear.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/merge.h"
#include "files/checkpoint/tensor_bytes.h"
#include "files/weights/gguf/gguf.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;

void check_is_plain_lora(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                         const fs::path& directory) {
  const auto refuse = [&](const std::string& what) {
    throw UserError(
        "{}: {}, which a GGUF adapter cannot hold; snug merge {} makes one model of adapter and "
        "base, which snug convert writes as GGUF",
        directory.string(), what, directory.string());
  };
  for (const auto& [module, parts] : adapter.modules)
    if (parts.magnitude.defined()) refuse(fmt::format("{} has DoRA's magnitudes", module));
  if (parts_head(base, adapter))
    refuse("it changes the head alone, and the base's head is its embedding");
  for (const nn::Linear* linear : linears_of(*base.model)) {
    if (!adapter.modules.contains(linear->name())) continue;
    const models::Placement place = base.model->placement(models::Layout::Gguf, linear->weight());
    if (place.stacked > 0)
      refuse(fmt::format("it adapts {}, one expert of several in a tensor", linear->name()));
    if (files::is_pictures_tensor(place.tensor))
      refuse(fmt::format("it adapts {}, which reads pictures", linear->name()));
  }
  for (const auto& [name, _] : changed_base_weights(base, adapter))
    refuse(fmt::format("it brings its own {}", name));
}

// Readers scale B A by alpha / rank in every module.
double alpha_of(const checkpoint::Adapter& adapter) {
  for (const auto& [_, parts] : adapter.modules)
    if (parts.scaling != 0) return parts.scaling * static_cast<double>(parts.rank());
  return 1;  // 0 would mean that B A is not scaled
}

// A module whose own scale is another one has the difference in B.
at::Tensor scaled_b(const checkpoint::ModuleAdapter& parts, double alpha) {
  const double factor = parts.scaling * static_cast<double>(parts.rank()) / alpha;
  const at::Tensor b = parts.b.to(at::kFloat);
  return factor == 1 ? b : b * factor;
}

struct Named {
  std::string name;
  at::Tensor value;
};

std::vector<Named> tensors_of(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                              double alpha, at::ScalarType type) {
  std::vector<Named> tensors;
  for (const nn::Linear* linear : linears_of(*base.model)) {
    const auto found = adapter.modules.find(linear->name());
    if (found == adapter.modules.end()) continue;
    const models::Placement place = base.model->placement(models::Layout::Gguf, linear->weight());
    const at::Tensor b = models::in_order(place.order, scaled_b(found->second, alpha).contiguous());
    tensors.push_back({place.tensor + ".lora_a", found->second.a.to(type).contiguous()});
    tensors.push_back({place.tensor + ".lora_b", b.to(type).contiguous()});
  }
  return tensors;
}

}  // namespace

void export_gguf_adapter(const fs::path& file, const models::Checkpoint& base,
                         const checkpoint::Adapter& adapter, const fs::path& directory,
                         at::ScalarType type) {
  check_is_plain_lora(base, adapter, directory);
  const double alpha = alpha_of(adapter);
  const std::vector<Named> tensors = tensors_of(base, adapter, alpha, type);
  std::vector<files::TensorInfo> infos;
  for (const auto& [name, value] : tensors)
    infos.push_back(
        files::make_tensor_info(name, checkpoint::dtype_of(value), value.sizes().vec()));
  make_place_for_gguf(file);
  files::GgufWriter out(file);
  base.model->write_gguf_config(out);
  out.set_text("general.type", "adapter");
  out.set_text("general.name", file.stem().string());
  out.set_text("adapter.type", "lora");
  out.set_f32("adapter.lora.alpha", static_cast<float>(alpha));
  out.declare(infos);
  for (const auto& [name, value] : tensors) out.write(name, checkpoint::bytes_of(value));
  out.finish();
}

}  // namespace snug::engine
