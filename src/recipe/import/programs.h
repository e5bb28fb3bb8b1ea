// The programs whose recipes snug reads, one file each with its table of keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/import/draft.h"

namespace snug::recipe {

Program axolotl();
Program llama_factory();
Program trl();
Program transformers();  // without TRL
Program torchtune();

}  // namespace snug::recipe
