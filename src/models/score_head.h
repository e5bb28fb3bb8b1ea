// Models whose head scores whole documents, as transformers' …ForSequenceClassification classes do:
// a config.json names such a class and the labels, and the layer "score" stands in place of the
// vocabulary's head.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/reading.h"

namespace snug::models {

// What scores are for, by the head's row; empty: it is a model with a vocabulary's head. Throws
// UserError naming `where`.
std::vector<std::string> read_labels(const nlohmann::json& config, const std::string& where);

// Makes of a language model's config.json, which names its class, that of one that scores
// documents; without labels, does nothing. Throws UserError where transformers has no such class.
void write_labels(nlohmann::json& config, const std::vector<std::string>& labels);

// How such a model reads: `pad_token` as its config has it, a number or null.
data::Reading reading_of(const std::vector<std::string>& labels, const nlohmann::json& pad_token,
                         data::Reading reads = {});

}  // namespace snug::models
