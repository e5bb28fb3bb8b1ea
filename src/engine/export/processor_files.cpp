// SPDX-License-Identifier: Apache-2.0
#include "engine/export/processor_files.h"

#include "base/error.h"
#include "base/files.h"

namespace snug::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPreprocessor = "preprocessor_config.json";
constexpr const char* kProcessor = "processor_config.json";

bool copy_if_there(const char* name, const fs::path& from, const fs::path& to) {
  if (from.empty() || !fs::exists(from / name)) return false;
  write_file_atomically(to / name, read_file(from / name, size_t{1} << 24));
  return true;
}

json preprocessor_of(const data::Reading& reads) {
  json written{{"do_convert_rgb", true},      {"do_resize", true},
               {"do_rescale", true},          {"rescale_factor", 1.0 / 255},
               {"do_normalize", true},        {"image_mean", reads.image_mean},
               {"image_std", reads.image_std}};
  constexpr int kLanczos = 1, kBicubic = 3;
  if (reads.pictures_anywhere)  // `snug` without the file reads the same
    written.update({{"processor_class", "Idefics3Processor"},
                    {"image_processor_type", "Idefics3ImageProcessor"},
                    {"do_image_splitting", true},
                    {"do_pad", true},
                    {"size", {{"longest_edge", reads.scaled_side()}}},
                    {"max_image_size", {{"longest_edge", reads.image_size}}},
                    {"resample", kLanczos}});
  else
    written.update({{"processor_class", "Blip2Processor"},
                    {"image_processor_type", "BlipImageProcessor"},
                    {"size", {{"height", reads.image_size}, {"width", reads.image_size}}},
                    {"resample", kBicubic}});
  return written;
}

// Of pictures, of videos and of both.
void copy_processors(const fs::path& folder, const fs::path& from) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(from, ignored))
    if (const std::string name = entry.path().filename(); name.ends_with("processor_config.json"))
      copy_if_there(name.c_str(), from, folder);
}

}  // namespace

void write_processor_files(const fs::path& folder, const models::Model& model,
                           const fs::path& from) {
  if (model.whole() != nullptr) return copy_processors(folder, from);
  const data::Reading reads = model.reads();
  if (reads.image_size == 0) return;
  const bool has_own = copy_if_there(kPreprocessor, from, folder);
  const bool has_all = copy_if_there(kProcessor, from, folder);
  if (reads.pictures_anywhere && !has_all)
    write_file_atomically(folder / kProcessor, json{{"processor_class", "Idefics3Processor"},
                                                    {"image_seq_len", reads.num_picture_tokens}}
                                                       .dump(2) +
                                                   "\n");
  if (!has_own && !has_all)
    write_file_atomically(folder / kPreprocessor, preprocessor_of(reads).dump(2) + "\n");
}

}  // namespace snug::engine
