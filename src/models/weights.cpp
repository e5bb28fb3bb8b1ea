// Loads a checkpoint's tensors into a model's parameters, and quantizes those that are marked so.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "core/kernels/cpu/quantized.h"
#include "core/kernels/dynamic_map.h"
#include "core/kernels/quantized_matrix.h"
#include "core/nn/linear.h"
#include "core/ops/device/device.h"
#include "files/weights/convert.h"
#include "models/family.h"
#include "models/unread_tensors.h"

namespace snug::models {
namespace {

files::DType dtype_of(at::ScalarType type) {
  if (type == at::kFloat) return files::DType::F32;
  return type == at::kBFloat16 ? files::DType::BF16 : files::DType::F16;
}

// From a file's order of rows to ours, in place over a contiguous tensor.
void restore_order(const RowOrder& order, const at::Tensor& value) {
  if (!order.differs()) return;
  const at::Tensor flat = value.detach();
  const at::Tensor in_file = flat.view({order.groups, order.a * order.b, -1});
  const int64_t firsts = order.a * order.first, others = order.b - order.first;
  const at::Tensor first = in_file.narrow(1, 0, firsts).unflatten(1, {order.a, order.first});
  const at::Tensor rest =
      in_file.narrow(1, firsts, order.a * others).unflatten(1, {others, order.a}).transpose(1, 2);
  flat.copy_(at::cat({first, rest}, 2).view_as(flat));
}

int64_t num_tensors(const Placement& place) { return place.second_half.empty() ? 1 : 2; }

// The shape of each of the parameter's tensors in the file, without those that it is stacked with.
std::vector<int64_t> shape_in_file(const nn::Parameter& parameter, const Placement& place) {
  if (!place.shape.empty()) return place.shape;
  std::vector<int64_t> shape = parameter.whole_shape();
  shape[0] /= num_tensors(place);
  if (place.transposed) std::ranges::reverse(shape);
  return shape;
}

// The same with them.
std::vector<int64_t> shape_of_stack(const nn::Parameter& parameter, const Placement& place) {
  std::vector<int64_t> shape = shape_in_file(parameter, place);
  if (place.stacked > 0) shape.insert(shape.begin(), place.stacked);
  return shape;
}

// The same of a slice that has some of our a, which the file has in sections.
std::vector<nn::ElementRange> ranges_in_sections(const nn::Parameter& parameter,
                                                 const RowOrder& order) {
  const std::vector<int64_t>& whole = parameter.whole_shape();
  const int64_t elements =
      std::accumulate(whole.begin(), whole.end(), int64_t{1}, std::multiplies<>());
  const int64_t one = elements / (order.a * order.b);
  const int64_t begin = parameter.slice->begin * order.a / whole[0];
  const int64_t count = parameter.shape[0] * order.a / whole[0];
  std::vector<nn::ElementRange> all;
  for (int64_t before = 0, width = order.first; before < order.b; before += width, width = 1)
    all.push_back({(before * order.a + begin * width) * one, count * width * one});
  return all;
}

// The parameter's ranges of elements in the file's tensor, row-major; of two tensors in both, one
// behind the other.
std::vector<nn::ElementRange> ranges_in_file(const nn::Parameter& parameter,
                                             const Placement& place) {
  nn::Parameter in_file;
  in_file.shape = parameter.shape;
  in_file.slice = parameter.slice;
  if (parameter.slice && place.transposed) {
    std::ranges::reverse(in_file.shape);
    in_file.slice = nn::Slice{.dim = 1 - parameter.slice->dim,
                              .begin = parameter.slice->begin,
                              .whole = shape_in_file(parameter, place),
                              .sections = parameter.slice->sections};
  } else if (parameter.slice && parameter.slice->dim == 0 && place.order.groups == 1) {
    return ranges_in_sections(parameter, place.order);
  }
  return in_file.ranges();
}

void check_shape(const files::TensorInfo& found, const nn::Parameter& parameter,
                 const Placement& place, const Checkpoint& checkpoint) {
  const std::vector<int64_t> wanted = shape_of_stack(parameter, place);
  const int64_t columns =
      std::accumulate(wanted.begin() + 1, wanted.end(), int64_t{1}, std::multiplies<>());
  const int64_t found_columns = found.shape.empty()
                                    ? 1
                                    : std::accumulate(found.shape.begin() + 1, found.shape.end(),
                                                      int64_t{1}, std::multiplies<>());
  const bool whole = place.row_begin == 0 && found.shape == wanted;
  const bool slice = !found.shape.empty() && found.shape.size() == wanted.size() &&
                     found_columns == columns && place.row_begin + wanted[0] <= found.shape[0] &&
                     checkpoint.layout == Layout::LitGpt &&
                     place.tensor.find("qkv") != std::string::npos;
  if (!whole && !slice)
    throw UserError("{}: tensor {} has shape {}, the config asks for {}", checkpoint.path.string(),
                    place.tensor, files::show_shape(found.shape), files::show_shape(wanted));
}

// The name without the components that wrappers and releases of transformers add or omit.
std::string plain_name(std::string_view name) {
  std::string plain;
  while (!name.empty()) {
    const size_t dot = name.find('.');
    const std::string_view word = name.substr(0, dot);
    if (word != "model" && word != "module")
      plain += (plain.empty() ? "" : ".") + std::string(word);
    name.remove_prefix(dot == std::string_view::npos ? name.size() : dot + 1);
  }
  return plain;
}

const files::TensorInfo* find_tensor(const files::TensorSource& tensors, const std::string& name) {
  if (const files::TensorInfo* found = tensors.find(name)) return found;
  const std::string plain = plain_name(name);
  const auto same = std::ranges::find_if(
      tensors.tensors(), [&](const auto& info) { return plain_name(info.name) == plain; });
  return same == tensors.tensors().end() ? nullptr : &*same;
}

// Some elements of a tensor, row-major.
struct Stretch {
  const files::TensorInfo* tensor = nullptr;
  nn::ElementRange range;
};

// Where a parameter's elements are in the checkpoint's files.
struct Found {
  Placement place;
  std::vector<Stretch> stretches;
  int64_t count = 0;  // elements in total
};

const files::TensorInfo& tensor_of_name(const nn::Parameter& parameter, Placement place,
                                        const std::string& name, const Checkpoint& checkpoint) {
  const files::TensorInfo* found = find_tensor(*checkpoint.tensors, name);
  if (found == nullptr)
    throw UserError("{}: tensor {} is missing from {}", checkpoint.path.string(), name,
                    checkpoint.tensors->describe());
  if (!files::is_floating(found->dtype))
    throw UserError(
        "{}: tensor {} holds {} codes of a quantized layout that snug does not read: use the "
        "model's "
        "float weights and let snug quantize them (--quantize bnb.nf4, bnb.int8)",
        checkpoint.path.string(), name, files::name(found->dtype));
  place.tensor = name;
  if (checkpoint.tensors->packed(*found) != nullptr) place.transposed = false;
  check_shape(*found, parameter, place, checkpoint);
  return *found;
}

Found find(const Checkpoint& checkpoint, const nn::Parameter& parameter) {
  Placement place = checkpoint.model->placement(checkpoint.layout, parameter);
  std::vector<const files::TensorInfo*> halves{
      &tensor_of_name(parameter, place, place.tensor, checkpoint)};
  if (!place.second_half.empty())
    halves.push_back(&tensor_of_name(parameter, place, place.second_half, checkpoint));
  // Rows of packed weights are our rows.
  if (checkpoint.tensors->packed(*halves.front()) != nullptr) place.transposed = false;
  const std::vector<int64_t>& whole = parameter.whole_shape();
  const int64_t columns =
      std::accumulate(whole.begin() + 1, whole.end(), int64_t{1}, std::multiplies<>());
  const int64_t elements = whole[0] * columns / std::ssize(halves);  // of each tensor
  const int64_t before = place.row_begin * columns + place.index * elements;
  std::vector<Stretch> stretches;
  for (const auto& [range_begin, count] : ranges_in_file(parameter, place))
    for (int64_t half = 0; half < std::ssize(halves); ++half) {
      const int64_t begin = std::max(range_begin, half * elements);
      const int64_t end = std::min(range_begin + count, (half + 1) * elements);
      if (begin < end)
        stretches.push_back(
            {halves[static_cast<size_t>(half)], {before + begin - half * elements, end - begin}});
    }
  // A slice of rows consists of whole heads.
  int64_t& heads = place.order.groups == 1 ? place.order.a : place.order.groups;
  if (place.order.differs()) heads = heads * parameter.shape[0] / whole[0];
  return {std::move(place), std::move(stretches), parameter.num_elements()};
}

// A stretch's values, converted to `type`.
void read_stretch(const Checkpoint& checkpoint, const Stretch& stretch, files::DType type,
                  std::byte* out) {
  checkpoint.tensors->read(*stretch.tensor, type, out, stretch.range.begin, stretch.range.count);
}

template <class Body>
void for_each_tensor(const Found& found, const Body& body) {
  const files::TensorInfo* last = nullptr;
  for (const Stretch& stretch : found.stretches)
    if (std::exchange(last, stretch.tensor) != stretch.tensor) body(*last);
}

void release(const Checkpoint& checkpoint, const Found& found) {
  for_each_tensor(found, [&](const auto& tensor) { checkpoint.tensors->release(tensor); });
}

// Reads into host memory of a floating-point type.
void read_into(const at::Tensor& host, const Checkpoint& checkpoint, const Found& found) {
  if (found.place.added != 0) {
    const at::Tensor sum = at::empty(host.sizes(), host.options().dtype(at::kFloat));
    Found as_in_file = found;
    as_in_file.place.added = 0;
    read_into(sum, checkpoint, as_in_file);
    host.detach().copy_(sum.sub_(found.place.added));
    return;
  }
  if (found.place.transposed) {
    const at::Tensor turned = at::empty({host.size(1), host.size(0)}, host.options());
    Found as_in_file = found;
    as_in_file.place.transposed = false;
    as_in_file.place.order = {};
    read_into(turned, checkpoint, as_in_file);
    host.detach().copy_(turned.t());
    restore_order(found.place.order, host);
    return;
  }
  const files::DType wanted = dtype_of(host.scalar_type());
  auto* out = static_cast<std::byte*>(host.mutable_data_ptr());
  for (const Stretch& stretch : found.stretches) {
    read_stretch(checkpoint, stretch, wanted, out);
    out += files::bytes_for(wanted, stretch.range.count);
  }
  release(checkpoint, found);
  restore_order(found.place.order, host);
}

// Quantizes a stretch while reading: straight from the mapped file if it has the required type,
// else a chunk at a time.
void quantize_stretch(const Checkpoint& checkpoint, const Stretch& stretch, at::ScalarType type,
                      kernels::cpu::Quantizer& quantizer) {
  const files::DType wanted = dtype_of(type);
  const auto [begin, num_elements] = stretch.range;
  const files::TensorInfo& tensor = *stretch.tensor;
  const std::span<const std::byte> raw =
      tensor.dtype == wanted ? checkpoint.tensors->raw(tensor) : std::span<const std::byte>();
  if (!raw.empty())
    return quantizer.add(raw.data() + files::bytes_for(wanted, begin), ops::to_scalar(type),
                         num_elements);
  const int64_t most = std::min(int64_t{1} << 22, num_elements);
  const at::Tensor part = at::empty({most}, at::TensorOptions().dtype(type));
  for (int64_t done = 0; done < num_elements; done += most) {
    const int64_t count = std::min(most, num_elements - done);
    read_stretch(checkpoint, {stretch.tensor, {begin + done, count}}, wanted,
                 static_cast<std::byte*>(part.mutable_data_ptr()));
    quantizer.add(part.const_data_ptr(), ops::to_scalar(type), count);
  }
}

bool same_bits(std::span<const float> table, const float* ours) {
  return std::memcmp(table.data(), ours, table.size_bytes()) == 0;
}

// The tensor's codes and scales as bitsandbytes made them; null if they are not of this format.
const files::BitsAndBytesParts* codes_of(const files::TensorSource& tensors,
                                         const files::TensorInfo& tensor,
                                         const kernels::FormatTraits& format) {
  const files::PackedValues* packed = tensors.packed(tensor);
  const files::BitsAndBytesParts* own = packed == nullptr ? nullptr : packed->bits_and_bytes();
  if (own == nullptr || own->kind + (own->nested_scales.empty() ? "" : "-dq") != format.name ||
      own->block != format.block(tensor.shape.back()))
    return nullptr;
  if (format.four_bits() && !same_bits(own->codes, format.values)) return nullptr;
  if (format.nested && (own->nested_block != kernels::kScaleBlock ||
                        !same_bits(own->nested_codes, kernels::signed_dynamic_map().values)))
    return nullptr;
  return own;
}

// Takes codes and scales of the very format as they are. False if there are others, or if the
// parameter does not consist of whole blocks of them in the file's order.
bool take_codes(const Checkpoint& checkpoint, const nn::Parameter& parameter, const Found& found,
                std::byte* out) {
  if (found.place.order.differs() || found.place.transposed || found.place.added != 0) return false;
  const kernels::QuantizedFormat name = parameter.quantization->format;
  const kernels::FormatTraits& format = kernels::traits(name);
  const kernels::QuantizedLayout layout =
      kernels::quantized_layout(name, parameter.shape[0], parameter.shape[1]);
  const int64_t block = format.block(parameter.shape[1]);
  const int64_t elements_a_byte = format.four_bits() ? 2 : 1;
  const auto takes = [&](const Stretch& stretch) {
    const bool is_whole = found.stretches.size() == 1 && stretch.range.begin == 0 &&
                          stretch.range.count == stretch.tensor->num_elements();
    const bool is_in_blocks =
        !format.nested && stretch.range.begin % block == 0 && stretch.range.count % block == 0;
    return (is_whole || is_in_blocks) &&
           codes_of(*checkpoint.tensors, *stretch.tensor, format) != nullptr;
  };
  if (!std::ranges::all_of(found.stretches, takes)) return false;
  std::fill_n(out, layout.bytes, std::byte{});
  std::byte *codes = out + layout.codes, *scales = out + layout.scales;
  const auto copy = [](std::span<const std::byte> part, int64_t begin, int64_t count,
                       std::byte*& to) {
    to = std::ranges::copy(part.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), to)
             .out;
  };
  for_each_tensor(found, [&](const auto& tensor) { checkpoint.tensors->verify(tensor); });
  for (const auto& [tensor, range] : found.stretches) {
    const files::BitsAndBytesParts& own = *codes_of(*checkpoint.tensors, *tensor, format);
    const int64_t scale_bytes = format.nested ? 1 : sizeof(float);
    copy(own.weight, range.begin / elements_a_byte,
         (range.count + elements_a_byte - 1) / elements_a_byte, codes);
    copy(own.scales, range.begin / block * scale_bytes,
         (range.count + block - 1) / block * scale_bytes, scales);
    if (!format.nested) continue;
    std::ranges::copy(own.nested_scales, out + layout.nested_scales);
    std::memcpy(out + layout.mean, &own.mean, sizeof(own.mean));
  }
  release(checkpoint, found);
  return true;
}

void quantize_from(const Checkpoint& checkpoint, const nn::Parameter& parameter, const Found& found,
                   std::byte* out) {
  if (take_codes(checkpoint, parameter, found, out)) return;
  kernels::cpu::Quantizer quantizer(parameter.quantization->format, parameter.shape[0],
                                    parameter.shape[1], out);
  const at::ScalarType type = parameter.quantization->source;
  if (found.place.order.differs() || found.place.transposed) {
    const int64_t rows = parameter.shape[0];
    const at::Tensor own = at::empty({rows, found.count / rows}, at::TensorOptions().dtype(type));
    read_into(own, checkpoint, found);
    quantizer.add(own.const_data_ptr(), ops::to_scalar(type), found.count);
  } else {
    for (const Stretch& stretch : found.stretches)
      quantize_stretch(checkpoint, stretch, type, quantizer);
    release(checkpoint, found);
  }
  quantizer.finish();
}

// Refuses tensors that the model does not use: more layers than the config says, or biases or a
// head that the config does not mention.
void refuse_unread(const Checkpoint& checkpoint, const std::set<const files::TensorInfo*>& read) {
  std::vector<std::string> names = unread_tensors(*checkpoint.tensors, read);
  const Model& model = checkpoint.stored != nullptr ? *checkpoint.stored : *checkpoint.model;
  std::erase_if(names, [&](const std::string& name) { return model.may_leave_out(name); });
  if (names.empty()) return;
  const size_t count = names.size();
  constexpr size_t kShown = 4;
  names.resize(std::min(count, kShown));
  throw UserError(
      "{}: the config has no place for {}: {}{}; check the number of layers, biases and tied "
      "embeddings in the config, or remove from the file what does not belong to the model",
      checkpoint.tensors->label(), count == 1 ? "1 tensor" : fmt::format("{} tensors", count),
      fmt::join(names, ", "), count > kShown ? ", …" : "");
}

// The parameters' tensors, each once, in the order of units and their parameters.
std::vector<const files::TensorInfo*> tensors_of(const Checkpoint& checkpoint,
                                                 const std::vector<nn::Parameter*>& parameters) {
  std::vector<const files::TensorInfo*> order;
  std::set<const files::TensorInfo*> known;
  for (const nn::Parameter* parameter : parameters) {
    if (parameter->is_added() || checkpoint.draws(*parameter)) continue;
    const Placement place = checkpoint.model->placement(checkpoint.layout, *parameter);
    for (const std::string& name : {place.tensor, place.second_half}) {
      if (name.empty()) continue;
      const files::TensorInfo* tensor = find_tensor(*checkpoint.tensors, name);
      if (tensor != nullptr && known.insert(tensor).second) order.push_back(tensor);
    }
  }
  return order;
}

void load(const nn::Parameter& parameter, const Checkpoint& checkpoint) {
  const Found found = find(checkpoint, parameter);
  for_each_tensor(found, [&](const auto& tensor) { checkpoint.tensors->read_ahead(tensor); });
  const at::Tensor& value = parameter.kept();
  // For a value on a device the file is read into host memory first, one tensor at a time.
  const at::Tensor host =
      value.is_cpu() ? value : at::empty(value.sizes(), at::TensorOptions().dtype(value.dtype()));
  if (parameter.quantization) {
    quantize_from(checkpoint, parameter, found, static_cast<std::byte*>(host.mutable_data_ptr()));
  } else {
    read_into(host, checkpoint, found);
  }
  if (!value.is_cpu()) value.detach().copy_(host);
}

}  // namespace

void mark_plain_weights(Checkpoint& checkpoint) {
  const files::TensorSource& tensors = *checkpoint.tensors;
  const auto keeps_codes = [&](const files::TensorInfo& tensor) {
    const files::PackedValues* packed = tensors.packed(tensor);
    return packed != nullptr && packed->bits_and_bytes() != nullptr;
  };
  if (std::ranges::none_of(tensors.tensors(), keeps_codes)) return;
  for (nn::Unit* unit : checkpoint.model->units())
    for (nn::Linear* linear : unit->linears()) {
      nn::Parameter& weight = linear->weight();
      const Placement place = checkpoint.model->placement(checkpoint.layout, weight);
      const files::TensorInfo* tensor = find_tensor(tensors, place.tensor);
      weight.stays_plain = tensor != nullptr && !keeps_codes(*tensor);
    }
}

std::vector<nn::Parameter*> vocabulary_parameters(const Model& model) {
  const int64_t rows = model.dimensions().vocabulary;
  std::vector<nn::Parameter*> found;
  for (nn::Unit* unit : const_cast<Model&>(model).units()) {
    const bool is_head = unit->kind() == nn::UnitKind::Head;
    if (!is_head && unit->kind() != nn::UnitKind::Embedding) continue;
    for (nn::Parameter* parameter : unit->parameters()) {
      if (!parameter->is_added() && parameter->whole_shape()[0] == rows) found.push_back(parameter);
      if (!is_head) break;  // what follows the tokens' table are positions
    }
  }
  return found;
}

void grow_vocabulary(Checkpoint& checkpoint, int64_t rows) {
  const Model& before = *checkpoint.model;
  if (rows <= before.dimensions().vocabulary) return;
  const data::Reading reads = before.reads();
  if (reads.source || reads.image_size > 0)
    throw UserError("a model {} takes no more tokens than its vocabulary has (tokens.add)",
                    reads.image_size > 0 ? "that looks at pictures" : "with an encoder");
  nlohmann::json config = before.hugging_face_config();
  for (const char* key : {"vocab_size", "vocab_size_per_layer_input"})
    if (config.contains(key)) config[key] = std::max(rows, config[key].get<int64_t>());
  checkpoint.model = model_like(before, config);
  checkpoint.has_more_rows = true;
  add_rows_to_files(checkpoint);
}

void add_rows_to_files(Checkpoint& checkpoint) {
  if (!checkpoint.has_more_rows || checkpoint.tensors == nullptr) return;
  for (const nn::Parameter* parameter : vocabulary_parameters(*checkpoint.model)) {
    const std::vector<int64_t>& shape = parameter->whole_shape();
    const Placement place = checkpoint.model->placement(checkpoint.layout, *parameter);
    const files::TensorInfo* tensor = find_tensor(*checkpoint.tensors, place.tensor);
    // Reading says what is wrong with others.
    if (tensor != nullptr && tensor->shape.size() == shape.size() && tensor->num_elements() > 0)
      checkpoint.tensors->add_mean_rows(*tensor, shape[0]);
  }
}

at::Tensor in_order(const RowOrder& order, const at::Tensor& value) {
  if (!order.differs()) return value;
  const at::Tensor ours = value.view({order.groups, order.a, order.b, -1});
  const at::Tensor first = ours.narrow(2, 0, order.first).flatten(1, 2);
  const at::Tensor rest = ours.narrow(2, order.first, order.b - order.first).transpose(1, 2);
  return at::cat({first, rest.flatten(1, 2)}, 1).view_as(value);
}

void expect_weights(Checkpoint& checkpoint, const std::vector<nn::Parameter*>& parameters) {
  auto all = tensors_of(checkpoint, checkpoint.model->parameters());
  // A head that another is in place of is left out on purpose.
  if (checkpoint.stored != nullptr)
    for (const nn::Parameter* parameter : checkpoint.stored->parameters())
      if (parameter->role == nn::ParameterRole::Head)
        all.push_back(
            find_tensor(*checkpoint.tensors,
                        checkpoint.stored->placement(checkpoint.layout, *parameter).tensor));
  refuse_unread(checkpoint, {all.begin(), all.end()});
  checkpoint.tensors->expect(tensors_of(checkpoint, parameters));
}

void load_weights(Checkpoint& checkpoint) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<nn::Parameter*> parameters = checkpoint.model->parameters();
  expect_weights(checkpoint, parameters);
  load_weights(checkpoint, parameters);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  int64_t bytes = 0;
  for (const nn::Parameter* parameter : parameters)
    bytes += static_cast<int64_t>(parameter->kept().nbytes());
  detail("{} of weights loaded from {} in {:.1f} s", format_bytes(bytes),
         checkpoint.tensors->describe(), seconds.count());
}

void load_weights(Checkpoint& checkpoint, const std::vector<nn::Parameter*>& parameters) {
  for (const nn::Parameter* parameter : parameters)
    if (!parameter->is_added() && !parameter->kept().is_meta() && !checkpoint.draws(*parameter))
      load(*parameter, checkpoint);
}

at::Tensor read_parameter(const Checkpoint& checkpoint, const nn::Parameter& parameter,
                          at::ScalarType type) {
  if (parameter.constant) type = at::kFloat;
  at::Tensor value = at::empty(parameter.shape, at::TensorOptions().dtype(type));
  read_into(value, checkpoint, find(checkpoint, parameter));
  return value;
}

at::ScalarType stored_type(const Checkpoint& checkpoint, const nn::Parameter& parameter) {
  const Found found = find(checkpoint, parameter);
  const auto all_have = [&](files::DType type) {
    return found.place.added == 0 && std::ranges::all_of(found.stretches, [&](const Stretch& s) {
             return s.tensor->dtype == type;
           });
  };
  if (all_have(files::DType::BF16) || all_have(files::DType::MXFP4)) return at::kBFloat16;
  return all_have(files::DType::F16) ? at::kHalf : at::kFloat;
}

}  // namespace snug::models
