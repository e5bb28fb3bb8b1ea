// SPDX-License-Identifier: Apache-2.0
#include "recipe/techniques/technique.h"

namespace snug::recipe {

namespace {

bool casts_weights(const Recipe& r) {
  return r.precision == Precision::MixedBFloat16 || r.precision == Precision::MixedFloat16;
}

}  // namespace

// Saves time and takes memory.
Technique cast_cache() {
  constexpr std::string_view kFreesWhatIsKept =
      "one frees the weights that the other keeps copies of";
  return {
      .key = "cast_cache",
      .option =
          [](Recipe& r) {
            return Row{.key = "cast_cache",
                       .slot = &r.cast_cache,
                       .help =
                           "in mixed precision, keep the 16-bit copy of each weight until its "
                           "last use in a step rather than make it for each product: fewer "
                           "bytes moved, 2 bytes a parameter more in memory"};
          },
      .excludes = {{"weight_streaming", kFreesWhatIsKept}, {"expert_streaming", kFreesWhatIsKept}},
      .conditions = {{casts_weights,
                      "cast_cache = true: only -mixed precision casts weights; leave it out, or "
                      "use --precision bf16-mixed"}},
      .values = {"false", "true"},
      .may_try = casts_weights,
      .cost_words_of_off = "weights are cast again for each product"};
}

}  // namespace snug::recipe
