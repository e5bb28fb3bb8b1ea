// The zip layout of torch.save, pickled with protocol 2. One storage a tensor.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "files/weights/pth/pth.h"
#include "files/weights/pth/zip.h"

namespace snug::files {
namespace {

constexpr const char* kPrefix = "archive/";

const char* storage_name(DType type) {
  switch (type) {
    case DType::F64:
      return "DoubleStorage";
    case DType::F32:
      return "FloatStorage";
    case DType::F16:
      return "HalfStorage";
    case DType::BF16:
      return "BFloat16Storage";
    case DType::I64:
      return "LongStorage";
    case DType::I32:
      return "IntStorage";
    case DType::I16:
      return "ShortStorage";
    case DType::I8:
      return "CharStorage";
    case DType::U8:
      return "ByteStorage";
    case DType::Bool:
      return "BoolStorage";
    default:
      throw InternalError(fmt::format("PyTorch has no storage of {}", name(type)));
  }
}

void put_u32(std::string& out, uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_pickle_text(std::string& out, std::string_view text) {
  out += 'X';
  put_u32(out, static_cast<uint32_t>(text.size()));
  out += text;
}

void put_global(std::string& out, std::string_view module, std::string_view name) {
  out += fmt::format("c{}\n{}\n", module, name);
}

void put_integer(std::string& out, int64_t value) {
  if (value == static_cast<int32_t>(value)) {
    out += 'J';
    put_u32(out, static_cast<uint32_t>(value));
  } else {
    out += "\x8a\x08";
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

void put_tuple(std::string& out, std::span<const int64_t> values) {
  out += '(';
  for (const int64_t value : values) put_integer(out, value);
  out += 't';
}

void put_empty_ordered_dict(std::string& out) {
  put_global(out, "collections", "OrderedDict");
  out += ")R";
}

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(shape[d], 1);
  return strides;
}

// _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())
void put_tensor(std::string& out, const TensorInfo& tensor, const std::string& key) {
  put_global(out, "torch._utils", "_rebuild_tensor_v2");
  out += "((";
  put_pickle_text(out, "storage");
  put_global(out, "torch", storage_name(tensor.dtype));
  put_pickle_text(out, key);
  put_pickle_text(out, "cpu");
  put_integer(out, tensor.num_elements());
  out += "tQ";
  put_integer(out, 0);
  put_tuple(out, tensor.shape);
  put_tuple(out, row_major_strides(tensor.shape));
  out += '\x89';
  put_empty_ordered_dict(out);
  out += "tR";
}

std::string make_pickle(const std::vector<TensorInfo>& tensors) {
  std::string out = "\x80\x02";
  put_empty_ordered_dict(out);
  out += '(';
  for (size_t i = 0; i < tensors.size(); ++i) {
    put_pickle_text(out, tensors[i].name);
    put_tensor(out, tensors[i], std::to_string(i));
  }
  return out + "u.";
}

}  // namespace

void write_pth(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
               const TensorBytes& bytes) {
  ZipWriter zip(path);
  const std::string prefix = kPrefix;
  zip.add(prefix + "data.pkl", std::string_view(make_pickle(tensors)));
  zip.add(prefix + "byteorder", std::string_view("little"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const std::byte> content = bytes(tensors[i]);
    SNUG_CHECK(content.size() == static_cast<size_t>(tensors[i].nbytes),
               "\"{}\" came with {} of its {} bytes", tensors[i].name, content.size(),
               tensors[i].nbytes);
    zip.add(fmt::format("{}data/{}", prefix, i), content);
  }
  zip.add(prefix + "version", std::string_view("3\n"));
  zip.finish();
}

}  // namespace snug::files
