// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_processor.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "files/pictures/picture.h"

namespace snug::data {
namespace {

using nlohmann::json;

constexpr const char* kFileName = "preprocessor_config.json";
constexpr const char* kFileOfAll = "processor_config.json";

// The file's values, each checked for its type, with the file's name in every error.
class Config {
 public:
  Config(json values, std::string name) : values_(std::move(values)), name_(std::move(name)) {}

  bool flag(const char* key, bool otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(key, "true or false");
    return value->get<bool>();
  }
  double number(const char* key, double otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) refuse(key, "a number");
    return value->get<double>();
  }
  // {"height": 224, "width": 224}, or 224.
  int64_t side(int64_t otherwise) const {
    const json* value = find("size");
    if (value == nullptr) return otherwise;
    if (value->is_number_integer()) return value->get<int64_t>();
    const auto part = [&](const char* key) -> int64_t {
      const auto found = value->find(key);
      if (found == value->end() || !found->is_number_integer())
        refuse("size", "{\"height\": …, \"width\": …}");
      return found->get<int64_t>();
    };
    if (!value->is_object()) refuse("size", "{\"height\": …, \"width\": …}");
    if (part("height") != part("width")) refuse("size", "a height that equals the width");
    return part("width");
  }
  [[noreturn]] void refuse(const char* key, std::string_view wanted) const {
    throw UserError("{}: {} = {}; it must be {}", name_, key, values_[key].dump(), wanted);
  }

 private:
  const json* find(const char* key) const {
    const auto found = values_.find(key);
    return found == values_.end() || found->is_null() ? nullptr : &*found;
  }

  json values_;
  std::string name_;
};

Config read_config(const std::filesystem::path& path) {
  json values = json::parse(read_file(path, size_t{1} << 20), nullptr, false);
  if (!values.is_object()) throw UserError("{}: not a JSON object", path.string());
  // Newer directories have all processors in one file.
  if (const auto own = values.find("image_processor"); own != values.end() && own->is_object())
    values = json(*own);
  return {values, path.string()};
}

}  // namespace

void PictureProcessor::process(std::span<const std::byte> bytes, const std::string& where,
                               uint8_t* out) const {
  const files::Picture picture = files::decode_picture(bytes, where);
  const Extent from = {picture.width, picture.height}, to = {size, size};
  if (!resizes && (from.width != size || from.height != size))
    throw UserError(
        "{}: {} × {} pixels, but the model takes {} × {} and {} says do_resize = false; resize the "
        "pictures or set it to true",
        where, from.width, from.height, size, size, kFileName);
  resize(picture.rgb.data(), from, resampling, out, to);
}

PictureProcessor read_picture_processor(const std::filesystem::path& directory,
                                        int64_t image_size) {
  PictureProcessor processor{.size = image_size};
  std::filesystem::path path = directory / kFileName;
  if (!std::filesystem::exists(path)) path = directory / kFileOfAll;
  if (!std::filesystem::exists(path)) return processor;
  const Config config = read_config(path);
  if (config.flag("do_center_crop", false)) config.refuse("do_center_crop", "false");
  processor.resizes = config.flag("do_resize", true);
  if (const int64_t side = config.side(image_size); processor.resizes && side != image_size)
    throw UserError("{}: size = {}, but the model takes pictures of {} pixels a side",
                    path.string(), side, image_size);
  const double resample = config.number("resample", 3);
  if (!(resample >= 0 && resample <= 5) || resample != std::floor(resample))
    config.refuse("resample", "0 (nearest), 1 (lanczos), 2 (bilinear) or 3 (bicubic)");
  processor.resampling = static_cast<Resampling>(static_cast<int>(resample));
  return processor;
}

}  // namespace snug::data
