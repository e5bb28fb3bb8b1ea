// Opens checkpoints: finds a checkpoint's model family, builds the model and loads its weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "files/weights/gguf/gguf.h"
#include "files/weights/tensor_source.h"
#include "models/model.h"
#include "recipe/hub_models.h"

namespace snug::models {

// An open checkpoint: its model (parameters not yet allocated) and its tensors.
struct Checkpoint {
  Layout layout = Layout::HuggingFace;
  std::filesystem::path path;
  std::unique_ptr<Model> model;
  std::unique_ptr<files::TensorSource> tensors;
  // For the layout Gguf the same object as `tensors`; its metadata holds the vocabulary.
  const files::GgufFile* gguf = nullptr;
  // Whether its vocabulary has more rows than the files (grow_vocabulary).
  bool has_more_rows = false;
  // The model as the files have it, where score_documents() gave it another head; else null.
  std::unique_ptr<Model> stored;

  // Whether the files do not have this parameter, which is drawn instead: a new head's weight.
  bool draws(const nn::Parameter& parameter) const {
    return stored != nullptr && parameter.role == nn::ParameterRole::Head;
  }
};

// The command that fetches a checkpoint that is not here.
std::string download_command(const std::filesystem::path& checkpoint);

// Whether the folder has a config.json and no weights, as snug plan fetches it.
bool is_shape_alone(const std::filesystem::path& folder);

// `path`: a Hugging Face or LitGPT directory, or a GGUF file. A model that sees pictures is a pair
// of these, NAME.gguf and mmproj-NAME.gguf, or the only two in a folder. Of a Hugging Face model
// that snug does not read whole the language model is opened, if it is known
// (models/language_part.h): Model::whole() says of which. Throws UserError.
Checkpoint open_checkpoint(const std::filesystem::path& path);

// A model from a config.json, or by its name as named_model() has it, without weights.
std::unique_ptr<Model> model_from_config(const std::filesystem::path& config_json);

// A model of the table of models.
std::unique_ptr<Model> named_model(const recipe::HubModel& named);

// A second model of the same shape, without weights.
std::unique_ptr<Model> model_like(const Model& model);
// The same with another config.json. Throws UserError.
std::unique_ptr<Model> model_like(const Model& model, const nlohmann::json& config);
// The same with an untied head.
std::unique_ptr<Model> model_with_own_head(const Model& model);

// Gives an open checkpoint's model a head that scores documents for these labels, in place of the
// vocabulary's, before anything else knows its parameters: the head is drawn, not read.
// `pad_token`: of the tokenizer, -1 if it has none. Throws UserError where its family has no such
// head, or it has one for other labels.
void score_documents(Checkpoint& checkpoint, const std::vector<std::string>& labels,
                     int64_t pad_token);

// The parameters with a row for each token: of the embedding and of a head of its own.
std::vector<nn::Parameter*> vocabulary_parameters(const Model& model);

// Gives an open checkpoint's model a vocabulary of `rows` in its embedding and head, before
// anything else knows its parameters; rows that the files do not have begin as the mean of the
// others, as in transformers' resize_token_embeddings (mean_resizing). Does nothing if it has as
// many. Throws UserError for a model with an encoder or pictures.
void grow_vocabulary(Checkpoint& checkpoint, int64_t rows);
// Gives those rows to tensors that are open anew.
void add_rows_to_files(Checkpoint& checkpoint);

// Reads a parameter from the checkpoint into a new tensor of `type`, a constant of float32. For a
// slice only its elements are read.
at::Tensor read_parameter(const Checkpoint& checkpoint, const nn::Parameter& parameter,
                          at::ScalarType type);
// The smallest type that holds it as it is in the checkpoint: float32 for quantized weights but
// those in MXFP4.
at::ScalarType stored_type(const Checkpoint& checkpoint, const nn::Parameter& parameter);

// From our order of rows to a file's.
at::Tensor in_order(const RowOrder& order, const at::Tensor& value);

// Announces what load_weights will read, in this order, in one call or several, so that it is read
// ahead from disk. Throws UserError if there are tensors that no parameter of the model uses.
void expect_weights(Checkpoint& checkpoint, const std::vector<nn::Parameter*>& parameters);

// Marks the linear layers whose weights a folder of bitsandbytes has as numbers beside those in 4
// or 8 bits (Parameter::stays_plain). Nothing in other folders.
void mark_plain_weights(Checkpoint& checkpoint);

// Fills every allocated parameter from the checkpoint, one tensor at a time, converting to the
// parameter's type. Throws UserError naming a tensor that is missing or of another shape.
void load_weights(Checkpoint& checkpoint);
// The same for some of the model's parameters.
void load_weights(Checkpoint& checkpoint, const std::vector<nn::Parameter*>& parameters);

}  // namespace snug::models
