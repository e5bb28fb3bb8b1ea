// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/adapter_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include "base/error.h"
#include "files/weights/byte_reader.h"

namespace snug::checkpoint {
namespace {

using files::DType;
using files::printable;
using files::show_shape;

at::ScalarType type_of(DType type) {
  return type == DType::BF16 ? at::kBFloat16 : type == DType::F16 ? at::kHalf : at::kFloat;
}

void check_finite(const at::Tensor& value, const std::string& name, const std::string& where) {
  if (!at::isfinite(value).all().item<bool>())
    throw UserError(
        "{}: tensor {} holds NaN or infinite numbers; its training diverged, use an earlier "
        "checkpoint",
        where, printable(name));
}

void check_matrices(const std::string& module, const ModuleAdapter& parts,
                    const AdapterConfig& config, const std::string& where) {
  const std::string shown = printable(module);
  for (const auto& [name, matrix] : {std::pair("lora_A", &parts.a), std::pair("lora_B", &parts.b)})
    if (!matrix->defined())
      throw UserError("{}: {}.{} is missing; the file is incomplete, save or fetch it again", where,
                      shown, name);
  const std::string a = show_shape(parts.a.sizes()), b = show_shape(parts.b.sizes());
  if (parts.a.dim() != 2 || parts.b.dim() != 2 || parts.a.size(0) != parts.b.size(1) ||
      parts.a.numel() == 0 || parts.b.numel() == 0)
    throw UserError(
        "{}: {}: lora_A is {} and lora_B is {}; they must be (rank, inputs) and (outputs, rank)",
        where, shown, a, b);
  const int64_t rank = rank_of(config, module);
  if (parts.rank() != rank)
    throw UserError(
        "{}: {}: lora_A is {}, of rank {}, but the configuration says rank {}; configuration and "
        "weights do not belong together",
        where, shown, a, parts.rank(), rank);
}

void check_magnitude(const std::string& module, ModuleAdapter& parts, const AdapterConfig& config,
                     const std::string& where) {
  const std::string shown = printable(module);
  const bool present = parts.magnitude.defined();
  if (config.use_dora && !present)
    throw UserError("{}: {}.lora_magnitude_vector is missing, but \"use_dora\" requires it", where,
                    shown);
  if (!config.use_dora && present)
    throw UserError(
        "{}: there is a {}.lora_magnitude_vector, but the configuration does not set \"use_dora\"; "
        "configuration and weights do not belong together",
        where, shown);
  if (!present) return;
  if (parts.magnitude.numel() != parts.out_features())
    throw UserError("{}: {}.lora_magnitude_vector is {}; it must be {}", where, shown,
                    show_shape(parts.magnitude.sizes()),
                    show_shape(std::vector<int64_t>{parts.out_features()}));
  parts.magnitude = parts.magnitude.flatten();
}

}  // namespace

at::Tensor read_adapter_tensor(const files::TensorSource& source, const files::TensorInfo& info) {
  if (!files::is_floating(info.dtype) || files::is_quantized(info.dtype))
    throw UserError("{}: tensor {} has type {}; it must be floating-point", source.label(),
                    printable(info.name), files::name(info.dtype));
  const DType stored = info.dtype == DType::F64 ? DType::F32 : info.dtype;
  at::Tensor value = at::empty(info.shape, at::TensorOptions().dtype(type_of(stored)));
  source.read(info, stored, value.mutable_data_ptr());
  source.release(info);
  check_finite(value, info.name, source.label());
  return value;
}

void check_and_scale(Adapter& adapter, const std::string& where) {
  if (adapter.modules.empty()) throw UserError("{} holds no adapter", where);
  for (auto& [module, parts] : adapter.modules) {
    check_matrices(module, parts, adapter.config, where);
    check_magnitude(module, parts, adapter.config, where);
    if (!adapts(adapter.config, module))
      throw UserError(
          "{}: {} has an adapter that the configuration's target_modules do not name; "
          "configuration "
          "and weights do not belong together",
          where, printable(module));
    parts.scaling = scaling_of(adapter.config, module);
  }
}

}  // namespace snug::checkpoint
