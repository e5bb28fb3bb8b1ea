// What a model reads, as data sets want to know it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/sample.h"
#include "models/model.h"

namespace snug::setup {

data::Reading reading_of(const models::Model& model);

}  // namespace snug::setup
