// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"
#include "models/family.h"

// Changed copies of models' config.json: what is still read becomes a model without weights, which
// writes its config again.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, "config.json", [](const std::filesystem::path& path) {
    const auto model = snug::models::model_from_config(path);
    if (model->parameters().size() < 1000) snug::models::model_like(*model)->hugging_face_config();
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_json(bytes, random);
}
