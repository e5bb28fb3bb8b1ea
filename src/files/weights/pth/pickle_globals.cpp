// SPDX-License-Identifier: Apache-2.0
#include "files/weights/pth/pickle_globals.h"

#include <array>

namespace snug::files {
namespace {

constexpr PickleGlobal storage(const char* name, DType type) {
  return {"torch", name, Meaning::Storage, type};
}
constexpr PickleGlobal opaque(const char* module, const char* name) {
  return {module, name, Meaning::Opaque};
}

constexpr auto kGlobals = std::to_array<PickleGlobal>({
    {"collections", "OrderedDict", Meaning::OrderedDict},
    {"torch._utils", "_rebuild_tensor", Meaning::RebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", Meaning::RebuildTensor},
    {"torch._utils", "_rebuild_parameter", Meaning::RebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", Meaning::RebuildParameter},
    {"torch._tensor", "_rebuild_from_type_v2", Meaning::RebuildFromType},
    {"torch", "Size", Meaning::Size},
    storage("DoubleStorage", DType::F64),
    storage("FloatStorage", DType::F32),
    storage("HalfStorage", DType::F16),
    storage("BFloat16Storage", DType::BF16),
    storage("LongStorage", DType::I64),
    storage("IntStorage", DType::I32),
    storage("ShortStorage", DType::I16),
    storage("CharStorage", DType::I8),
    storage("ByteStorage", DType::U8),
    storage("BoolStorage", DType::Bool),
    {"torch.storage", "UntypedStorage", Meaning::Storage, DType::U8},
    opaque("torch", "device"),
    opaque("torch", "Tensor"),
    opaque("torch.nn.parameter", "Parameter"),
    opaque("torch", "float64"),
    opaque("torch", "float32"),
    opaque("torch", "float16"),
    opaque("torch", "bfloat16"),
    opaque("torch", "int64"),
    opaque("torch", "int32"),
    opaque("torch", "int16"),
    opaque("torch", "int8"),
    opaque("torch", "uint8"),
    opaque("torch", "bool"),
    opaque("torch.serialization", "_get_layout"),
    opaque("_codecs", "encode"),
});

}  // namespace

std::optional<int64_t> find_pickle_global(std::string_view module, std::string_view name) {
  for (size_t i = 0; i < kGlobals.size(); ++i)
    if (module == kGlobals[i].module && name == kGlobals[i].name) return static_cast<int64_t>(i);
  return {};
}

const PickleGlobal& pickle_global(int64_t index) { return kGlobals.at(static_cast<size_t>(index)); }

}  // namespace snug::files
