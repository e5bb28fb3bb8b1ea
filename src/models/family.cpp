// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "core/nn/linear.h"
#include "files/checksums.h"
#include "files/hub/hub_name.h"
#include "files/weights/pth/pth.h"
#include "models/blip2/model.h"
#include "models/config_fields.h"
#include "models/decoder/units.h"
#include "models/gpt2/model.h"
#include "models/idefics3/model.h"
#include "models/language_part.h"
#include "models/opt/model.h"
#include "models/quantized_folder.h"
#include "models/run_folder.h"
#include "models/score_head.h"
#include "models/t5/model.h"

namespace snug::models {
namespace {

namespace fs = std::filesystem;

nlohmann::json read_json(const fs::path& path) {
  const std::string text = read_file(path, size_t{1} << 24);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw UserError("{} is not valid JSON", path.string());
  return json;
}

std::unique_ptr<Model> make_decoder(decoder::Config config) {
  return std::make_unique<decoder::DecoderModel>(std::move(config));
}

// Makes a family's model from a config.json. `files`: the weights, which decide what some configs
// leave open (a tied head); null if there are none.
using MakeModel = std::unique_ptr<Model> (*)(const nlohmann::json& config, const std::string& where,
                                             const files::TensorSource* files);

// The families that are not rows of decoder::families().
struct OtherFamily {
  const char* model_type;
  MakeModel make;
};

constexpr OtherFamily kOthers[] = {
    {"gpt2", gpt2::make_model},
    {"opt", opt::make_model},
    {"t5", t5::make_model},
    {"blip-2", blip2::make_model},
    {"idefics3", idefics3::make_model},
    {"smolvlm", idefics3::make_model},
};

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files = nullptr) {
  const std::string type = ConfigFields(config, where).text("model_type");
  if (decoder::find_family(type) != nullptr)
    return make_decoder(decoder::read_config(config, where));
  std::vector<std::string_view> known;
  for (const decoder::Family& family : decoder::families()) known.push_back(family.model_type);
  for (const OtherFamily& family : kOthers) {
    if (type == family.model_type) return family.make(config, where, files);
    known.emplace_back(family.model_type);
  }
  throw UserError("{}: model_type \"{}\" is not supported; supported are {}{}", where, type,
                  fmt::join(known, ", "), decoder::nearest_family(type, config));
}

// Whether of such a model the language model is read, and the rest left in its files.
bool is_read_in_part(const nlohmann::json& config) {
  return has_language_part(config) && std::ranges::none_of(kOthers, [&](const OtherFamily& family) {
           return config["model_type"] == family.model_type;
         });
}

// Reads how to prepare pictures: from preprocessor_config.json, or from processor_config.json.
void read_preprocessor(Model& model, const fs::path& folder) {
  auto* reader = dynamic_cast<vision::PictureModel*>(&model);
  if (reader == nullptr) return;
  const auto read = [reader](const nlohmann::json& json, const fs::path& file) {
    reader->set_pixels(vision::read_pixels(json, file.string(), reader->pixels()));
  };
  const fs::path own = folder / "preprocessor_config.json", all = folder / "processor_config.json";
  if (fs::exists(own)) return read(read_json(own), own);
  if (!fs::exists(all)) return;
  const nlohmann::json processors = read_json(all);
  if (processors.is_object() && has_field(processors, "image_processor"))
    read(processors["image_processor"], all);
}

std::unique_ptr<Model> make_model(const files::GgufFile& file) {
  constexpr const char* kGpt2 = "gpt2";
  if (file.text("general.architecture") == kGpt2) return gpt2::model_from_gguf(file);
  return make_decoder(decoder::from_gguf(file, {kGpt2}));
}

// A GGUF file of a language model, and the one beside it with what reads pictures, if there is one.
struct GgufFiles {
  fs::path language, pictures;
};

GgufFiles with_pictures(const fs::path& language) {
  const fs::path pictures = files::pictures_file(language);
  return {language, fs::exists(pictures) ? pictures : fs::path()};
}

// In a folder with one of each their names need not be alike.
GgufFiles find_gguf(const fs::path& folder) {
  std::vector<fs::path> languages, pictures;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".gguf")
      (files::names_pictures_file(entry.path()) ? pictures : languages).push_back(entry.path());
  if (languages.size() == 1 && pictures.size() == 1) return {languages.front(), pictures.front()};
  if (languages.size() > 1) {
    std::vector<std::string> names;
    names.reserve(languages.size());
    for (const fs::path& file : languages) names.push_back(file.filename().string());
    std::ranges::sort(names);
    throw UserError("{} holds {} GGUF models: name one of {}", folder.string(), names.size(),
                    fmt::join(names, ", "));
  }
  if (!languages.empty()) return with_pictures(languages.front());
  return {pictures.empty() ? fs::path() : pictures.front(), {}};
}

Checkpoint open_gguf(const GgufFiles& paths) {
  Checkpoint checkpoint{.layout = Layout::Gguf, .path = paths.language};
  auto file = files::GgufFile::open(paths.language);
  if (file->text("general.architecture") == files::kPicturesArchitecture)
    throw UserError(
        "{}: this file is the part of a model that reads pictures; name the language model's file, "
        "NAME.gguf, and this one is read beside it if it is called mmproj-NAME.gguf",
        paths.language.string());
  auto pictures = paths.pictures.empty() ? nullptr : files::GgufFile::open(paths.pictures);
  if (pictures != nullptr && !idefics3::are_gguf_pictures(*pictures)) {
    warn("{}: snug does not read projectors of type {}; the language model is read alone",
         paths.pictures.string(), pictures->text("clip.projector_type", "(none)"));
    pictures = nullptr;
  }
  if (pictures != nullptr) {
    checkpoint.model = idefics3::model_from_gguf(*file, *pictures);
    file = files::GgufFile::join(std::move(file), std::move(pictures));
  } else {
    checkpoint.model = make_model(*file);
  }
  checkpoint.gguf = file.get();
  checkpoint.tensors = std::move(file);
  return checkpoint;
}

// A file that was changed on purpose, such as an edited config, is no error.
void warn_of_changed_files(const fs::path& folder) {
  if (const std::string fault = files::fault_of_files(folder); !fault.empty())
    warn("{}: {}, or was changed after snug wrote it ({})", folder.string(), fault,
         files::kChecksumsName);
}

Checkpoint open_litgpt(const fs::path& path) {
  warn_of_changed_files(path);
  Checkpoint checkpoint{.layout = Layout::LitGpt, .path = path};
  // Opened by name: LitGPT's folder may also have the Hugging Face weights that it converted.
  checkpoint.tensors = files::open_pth(path / "lit_model.pth");
  checkpoint.model =
      make_decoder(decoder::from_litgpt(path / "model_config.yaml", *checkpoint.tensors));
  return checkpoint;
}

// transformers' generate() stops at what generation_config.json names, and the config's tokens then
// count for nothing; chat models have the end of a turn there.
nlohmann::json with_generation_ends(nlohmann::json config, const fs::path& folder) {
  const fs::path file = folder / "generation_config.json";
  if (!fs::exists(file)) return config;
  const nlohmann::json generation = read_json(file);
  const nlohmann::json ends =
      generation.is_object() ? generation.value("eos_token_id", nlohmann::json()) : nullptr;
  if (ends.empty()) return config;  // null, or no tokens
  const bool in_parts = config.contains("text_config") && config["text_config"].is_object();
  (in_parts ? config["text_config"] : config)["eos_token_id"] = ends;
  return config;
}

Checkpoint open_language_part(const fs::path& path, const nlohmann::json& config) {
  Checkpoint checkpoint{.layout = Layout::HuggingFace, .path = path};
  LanguagePart part = language_part(config, path, files::open_model_directory(path));
  checkpoint.model = make_model(with_generation_ends(part.config, path),
                                (path / "config.json").string() + ": text_config");
  checkpoint.model->set_whole(std::move(part.whole));
  checkpoint.tensors = std::move(part.tensors);
  unpack_quantized(*checkpoint.tensors, config, path);
  mark_plain_weights(checkpoint);
  return checkpoint;
}

Checkpoint open_hugging_face(const fs::path& path) {
  warn_of_changed_files(path);
  const fs::path config_json = path / "config.json";
  const nlohmann::json read = read_json(config_json);
  if (is_read_in_part(read)) return open_language_part(path, read);
  Checkpoint checkpoint{.layout = Layout::HuggingFace, .path = path};
  const nlohmann::json config = with_generation_ends(read, path);
  checkpoint.model = make_model(config, config_json.string());  // faults of the config come first
  checkpoint.tensors = files::open_model_directory(path);
  unpack_quantized(*checkpoint.tensors, config, path);
  checkpoint.model = make_model(config, config_json.string(), checkpoint.tensors.get());
  mark_plain_weights(checkpoint);
  read_preprocessor(*checkpoint.model, path);
  return checkpoint;
}

}  // namespace

std::string Model::litgpt_config() const {
  throw UserError("LitGPT does not support {}; write a Hugging Face directory (--to hf)",
                  hugging_face_config().value("model_type", "this one"));
}

void Model::write_gguf_config(files::GgufWriter& /*out*/) const {
  throw UserError("snug cannot write {} as a GGUF file; write a Hugging Face directory (--to hf)",
                  hugging_face_config().value("model_type", "this model"));
}

void Model::write_gguf_pictures_config(files::GgufWriter& /*out*/) const {
  throw InternalError("a model without pictures has no GGUF file for them");
}

double Model::flops_per_token(double seqlen, double /*pictures*/) const {
  const Dimensions d = dimensions();
  // 2 per multiply-add. Each weight counts for the forward and its input's gradient, a trained one
  // also for its own gradient. The embedding is a lookup; a tied one counts as the head's product.
  double flops = 6.0 * static_cast<double>(d.num_layers * d.num_heads * d.head_dim) * seqlen;
  const auto add = [&flops](const nn::Parameter& weight) {
    const auto& shape = weight.whole_shape();
    flops += (weight.trained ? 6.0 : 4.0) * static_cast<double>(shape[0] * shape[1]);
  };
  for (nn::Unit* unit : const_cast<Model*>(this)->units())
    for (nn::Linear* linear : unit->linears()) {
      add(linear->weight());
      if (linear->adapter() == nullptr) continue;
      add(linear->adapter()->a);
      add(linear->adapter()->b);
    }
  return flops;
}

std::vector<HeadCount> Model::head_counts() const {
  const Dimensions d = dimensions();
  return {{"attention heads", d.num_heads}, {"key-value heads", d.num_kv_heads}};
}

std::vector<nn::Parameter*> Model::parameters() {
  std::vector<nn::Parameter*> all;
  for (nn::Unit* unit : units())
    for (nn::Parameter* parameter : unit->parameters()) all.push_back(parameter);
  return all;
}

int64_t Model::num_parameters() {
  int64_t total = 0;
  for (const nn::Parameter* parameter : parameters())
    if (!parameter->constant) total += parameter->num_elements();
  return total;
}

namespace {

std::unique_ptr<Model> model_of(const nlohmann::json& config, const std::string& where) {
  const bool in_part = is_read_in_part(config);
  auto model = in_part ? make_model(language_config(config, where), where + ": text_config")
                       : make_model(config, where);
  if (in_part) model->set_whole(std::make_shared<WholeModel>(WholeModel{.config = config}));
  mark_plain_weights(*model, config);
  return model;
}

}  // namespace

std::unique_ptr<Model> model_from_config(const fs::path& config_json) {
  const fs::path file = shipped_file(config_json);
  const std::string where = config_json.string();
  const recipe::HubModel* named =
      fs::is_regular_file(file) ? nullptr : recipe::find_hub_model(recipe::hub_id_of(where));
  if (named != nullptr) return named_model(*named);
  auto model = model_of(read_json(file), where);
  read_preprocessor(*model, file.parent_path());
  return model;
}

std::unique_ptr<Model> named_model(const recipe::HubModel& named) {
  return model_of(nlohmann::json::parse(named.config), named.id());
}

std::string download_command(const fs::path& checkpoint) {
  const std::string name = hub::hub_name(checkpoint);
  return "snug download " + (name.empty() ? "ORG/NAME" : name);
}

bool is_shape_alone(const fs::path& folder) {
  if (!fs::is_directory(folder) || !fs::exists(folder / "config.json")) return false;
  return std::ranges::none_of(fs::directory_iterator(folder), [](const auto& entry) {
    const std::string ending = entry.path().extension().string();
    return ending == ".safetensors" || ending == ".bin" || ending == ".pth" || ending == ".gguf";
  });
}

Checkpoint open_checkpoint(const fs::path& path) {
  if (hub::is_absent(path))
    throw UserError(
        "checkpoint {} does not exist or is empty; give a Hugging Face or LitGPT directory or a "
        "GGUF file, or "
        "fetch one with: {}",
        path.string(), download_command(path));
  if (path.extension() == ".json" && !fs::is_directory(path))
    throw UserError(
        "{}: a configuration file has no weights; give a model's folder or a .gguf file. To plan "
        "from this file: snug plan --model.config {}",
        path.string(), path.string());
  for (const char* ending : {".yaml", ".yml", ".jsonl", ".csv", ".tsv", ".parquet", ".txt"})
    if (path.extension() == ending && !fs::is_directory(path))
      throw UserError(
          "{}: this file is no model; give a model's folder or a .gguf file. Recipes are given "
          "with "
          "--config, rows with --data.json_path",
          path.string());
  if (!fs::is_directory(path)) return open_gguf(with_pictures(path));
  if (is_shape_alone(path) && !hub::hub_name(path).empty())
    throw UserError("{} has the model's config but no weights; fetch them with: {}", path.string(),
                    download_command(path));
  const bool has_litgpt = fs::exists(path / "lit_model.pth");
  if (has_litgpt && fs::exists(path / "model_config.yaml")) return open_litgpt(path);
  if (fs::exists(path / "config.json")) return open_hugging_face(path);
  if (const GgufFiles found = find_gguf(path); !found.language.empty()) return open_gguf(found);
  if (fs::exists(path / "adapter_config.json"))
    throw UserError(
        "{} holds an adapter, not a model: give its base, or merge both with snug merge {}",
        path.string(), path.string());
  throw UserError(
      "{} holds no model: neither config.json (Hugging Face) nor model_config.yaml with "
      "lit_model.pth (LitGPT) nor a .gguf file is in it{}",
      path.string(), found_of_a_run(path));
}

namespace {

// What the config of a quantized folder said of `from`, which the model's own config does not
// repeat.
void mark_alike(Model& model, const Model& from) {
  std::set<std::string> plain;
  for (const nn::Parameter* parameter : const_cast<Model&>(from).parameters())
    if (parameter->stays_plain) plain.insert(parameter->name);
  for (nn::Parameter* parameter : model.parameters())
    parameter->stays_plain = plain.contains(parameter->name);
}

}  // namespace

std::unique_ptr<Model> model_like(const Model& model) {
  return model_like(model, model.hugging_face_config());
}

// It prepares pictures as `model` does.
std::unique_ptr<Model> model_like(const Model& model, const nlohmann::json& config) {
  auto twin = make_model(config, "the model's config");
  mark_alike(*twin, model);
  twin->take_whole(model);
  if (const auto* reader = dynamic_cast<const vision::PictureModel*>(&model))
    dynamic_cast<vision::PictureModel&>(*twin).set_pixels(reader->pixels());
  return twin;
}

void score_documents(Checkpoint& checkpoint, const std::vector<std::string>& labels,
                     int64_t pad_token) {
  const std::vector<std::string> known = checkpoint.model->labels();
  if (known == labels) return;
  const std::string where =
      checkpoint.path.empty() ? "the model's config" : checkpoint.path.string();
  if (!known.empty())
    throw UserError("{}: its head scores documents for {} ({}), not for {} ({})", where,
                    known.size(), fmt::join(known, ", "), labels.size(), fmt::join(labels, ", "));
  if (const WholeModel* whole = checkpoint.model->whole())
    warn(
        "{}: a model that scores documents is written without the other parts of a {}; an adapter "
        "for it belongs to the folder that snug convert --text_only makes",
        where, whole->model_type());
  nlohmann::json config = checkpoint.model->hugging_face_config();
  write_labels(config, labels);
  if (pad_token >= 0) config["pad_token_id"] = pad_token;
  const files::TensorSource* files =
      checkpoint.layout == Layout::HuggingFace ? checkpoint.tensors.get() : nullptr;
  checkpoint.stored = std::exchange(checkpoint.model, make_model(config, where, files));
  mark_alike(*checkpoint.model, *checkpoint.stored);
}

std::unique_ptr<Model> model_with_own_head(const Model& model) {
  nlohmann::json config = model.hugging_face_config();
  if (has_field(config, "text_config")) config["text_config"][kTied] = false;
  if (!has_field(config, "text_config") || has_field(config, kTied)) config[kTied] = false;
  return model_like(model, config);
}

}  // namespace snug::models
