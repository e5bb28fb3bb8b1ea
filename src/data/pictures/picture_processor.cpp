// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_processor.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "files/pictures/picture.h"

namespace snug::data {
namespace {

using json = nlohmann::ordered_json;

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
  // {"longest_edge": 2048}
  int64_t longest_edge(const char* key, int64_t otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    const auto found = value->is_object() ? value->find("longest_edge") : value->end();
    if (found == value->end() || !found->is_number_integer() || found->get<int64_t>() < 1)
      refuse(key, "{\"longest_edge\": …}");
    return found->get<int64_t>();
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

// A picture's bytes, (height, width, 3).
struct Pixels {
  Extent extent;
  std::vector<uint8_t> rgb;
};

Pixels resized(const Pixels& picture, Extent to, Resampling resampling) {
  Pixels result{to, std::vector<uint8_t>(static_cast<size_t>(to.width * to.height * 3))};
  resize(picture.rgb.data(), picture.extent, resampling, result.rgb.data(), to);
  return result;
}

double proportion(Extent e) { return static_cast<double>(e.width) / static_cast<double>(e.height); }

// The other side of a picture that is wide or tall; cut to a whole number as Python's int() does.
int64_t other_side(int64_t side, bool wide, double proportion) {
  const auto known = static_cast<double>(side);
  return static_cast<int64_t>(wide ? known / proportion : known * proportion);
}

// With a longer side of `longest` pixels, the other one an even number of them; none beyond 4096.
Extent scaled(Extent from, int64_t longest) {
  constexpr int64_t kMost = 4096;
  bool wide = from.width >= from.height;
  int64_t other = other_side(longest, wide, proportion(from));
  other = std::max<int64_t>(1, other + other % 2);
  const Extent to = wide ? Extent{longest, other} : Extent{other, longest};
  wide = to.width >= to.height;
  if ((wide ? to.width : to.height) <= kMost) return to;
  other = std::max<int64_t>(1, other_side(kMost, wide, proportion(to)));
  return wide ? Extent{kMost, other} : Extent{other, kMost};
}

int64_t round_up(int64_t length, int64_t tile) { return (length + tile - 1) / tile * tile; }

// The next larger sides that are whole tiles: the longer one first, the other in proportion to it.
Extent whole_tiles(Extent from, int64_t tile) {
  const bool wide = from.width >= from.height;
  const int64_t longer = round_up(wide ? from.width : from.height, tile);
  const int64_t other = round_up(other_side(longer, wide, proportion(from)), tile);
  return wide ? Extent{longer, other} : Extent{other, longer};
}

void add_tile(const Pixels& picture, int64_t top, int64_t left, int64_t side,
              std::vector<uint8_t>& out) {
  for (int64_t row = top; row < top + side; ++row) {
    const auto begin = picture.rgb.begin() + (row * picture.extent.width + left) * 3;
    out.insert(out.end(), begin, begin + side * 3);
  }
}

// Idefics3ImageProcessor's keys: the longer side of whole pictures, and the tiles' side.
void read_tiles(const Config& config, const std::string& where, PictureProcessor& processor) {
  processor.cuts = config.flag("do_image_splitting", true);
  processor.longest_side = config.longest_edge("size", processor.longest_side);
  if (const int64_t tile = config.longest_edge("max_image_size", processor.size);
      tile != processor.size)
    throw UserError("{}: max_image_size = {}, but the model takes pictures of {} pixels a side",
                    where, tile, processor.size);
  if (!processor.resizes) config.refuse("do_resize", "true");
}

}  // namespace

std::vector<PreparedPicture> PictureProcessor::prepare(std::span<const std::string> files) const {
  std::vector<PreparedPicture> pictures;
  for (const std::string& file : files) pictures.push_back(prepare(MappedFile(file).bytes(), file));
  return pictures;
}

Grid PictureProcessor::grid(Extent picture) const {
  if (!cuts) return {};
  const Extent whole = whole_tiles(scaled(picture, longest_side), size);
  const Grid grid{whole.height / size, whole.width / size};
  return grid == Grid{1, 1} ? Grid{} : grid;
}

PreparedPicture PictureProcessor::prepare(std::span<const std::byte> bytes,
                                          const std::string& where) const {
  const files::Picture decoded = files::decode_picture(bytes, where);
  Pixels picture{{decoded.width, decoded.height}, decoded.rgb};
  if (!resizes && (picture.extent.width != size || picture.extent.height != size))
    throw UserError(
        "{}: {} × {} pixels, but the model takes {} × {} and {} says do_resize = false; resize the "
        "pictures or set it to true",
        where, picture.extent.width, picture.extent.height, size, size, kFileName);
  PreparedPicture result{.grid = grid(picture.extent), .pixels = {}};
  // One after the other, each rounded to bytes.
  if (longest_side > 0)
    picture = resized(picture, scaled(picture.extent, longest_side), resampling);
  if (cuts) picture = resized(picture, whole_tiles(picture.extent, size), resampling);
  for (int64_t row = 0; row < result.grid.rows; ++row)
    for (int64_t column = 0; column < result.grid.columns; ++column)
      add_tile(picture, row * size, column * size, size, result.pixels);
  const Pixels small = resized(picture, {size, size}, resampling);
  result.pixels.insert(result.pixels.end(), small.rgb.begin(), small.rgb.end());
  return result;
}

PictureProcessor read_picture_processor(const std::filesystem::path& directory,
                                        const Reading& reading) {
  PictureProcessor processor{.size = reading.image_size};
  if (reading.pictures_anywhere) {
    processor.resampling = Resampling::Lanczos;
    processor.longest_side = reading.scaled_side();
    processor.cuts = true;
  }
  std::filesystem::path path = directory / kFileName;
  if (!std::filesystem::exists(path)) path = directory / kFileOfAll;
  if (!std::filesystem::exists(path)) return processor;
  const Config config = read_config(path);
  if (config.flag("do_center_crop", false)) config.refuse("do_center_crop", "false");
  processor.resizes = config.flag("do_resize", true);
  if (reading.pictures_anywhere) {
    read_tiles(config, path.string(), processor);
  } else if (const int64_t side = config.side(processor.size);
             processor.resizes && side != processor.size) {
    throw UserError("{}: size = {}, but the model takes pictures of {} pixels a side",
                    path.string(), side, processor.size);
  }
  const double resample = config.number("resample", static_cast<int>(processor.resampling));
  if (!(resample >= 0 && resample <= 5) || resample != std::floor(resample))
    config.refuse("resample", "0 (nearest), 1 (lanczos), 2 (bilinear) or 3 (bicubic)");
  processor.resampling = static_cast<Resampling>(static_cast<int>(resample));
  return processor;
}

}  // namespace snug::data
