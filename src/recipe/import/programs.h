// The programs whose recipes snug reads, one file each with its table of keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/import/draft.h"

namespace snug::recipe {

Program axolotl();
Program llama_factory();
Program trl();              // SFTConfig
Program trl_preferences();  // DPOConfig, ORPOConfig, CPOConfig
Program transformers();     // without TRL
Program torchtune();
// Not among programs(): its file is named by a recipe of another.
const Program& deepspeed();
Program unsloth();        // its calls in a notebook
Program unsloth_train();  // its command

}  // namespace snug::recipe
