// The shapes in the table of models: the parameters that their makers count, and the needs that
// are kept beside it.
// SPDX-License-Identifier: Apache-2.0
#include "plan/command/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/files.h"
#include "models/family.h"
#include "support/drawn_cases.h"
#include "support/source_dir.h"

namespace snug::plan {
namespace {

// A count to four digits is rounded; "7B" and "350M" are names.
double tolerance_of(const recipe::HubModel& model) {
  const auto digits =
      std::ranges::count_if(model.published, [](char c) { return c >= '0' && c <= '9'; });
  return digits >= 4 ? 5.01e-4 * model.size() : 0.15 * model.size();
}

TEST(NamedModels, HaveTheParametersThatAreCounted) {
  for (const recipe::HubModel& model : recipe::hub_models()) {
    const auto made = models::named_model(model);
    const auto found = static_cast<double>(made->num_parameters());
    if (model.parameters > 0)
      EXPECT_EQ(made->num_parameters(), model.parameters) << model.id();
    else
      EXPECT_NEAR(found, model.size(), tolerance_of(model)) << model.id();
  }
}

TEST(NamedModels, NeedWhatIsKeptOfThem) {
  const std::filesystem::path file =
      std::filesystem::path(SNUG_SOURCE_DIR) / "recipes/models/needs.json";
  const auto all = recipe::hub_models();
  if (std::getenv("SNUG_WRITE_REFERENCE") != nullptr) {
    std::map<std::string, Needs> needs;
    for (const recipe::HubModel& model : all) needs[model.id()] = plan_needs(model);
    write_file_atomically(file, text_of(needs));
  }
  const std::map<std::string, Needs> kept = kept_needs();
  EXPECT_EQ(kept.size(), all.size());
  constexpr size_t kPlanned = 3;
  for (const size_t at : tests::drawn_of(all.size(), kPlanned, "needs of models")) {
    const std::string& id = all[at].id();
    ASSERT_TRUE(kept.contains(id)) << id;
    const Needs planned = plan_needs(all[at]);
    EXPECT_GT(planned.lora, 0) << id;
    const auto is_near = [&](int64_t a, int64_t b) {
      return std::abs(static_cast<double>(a - b)) <= 0.01 * static_cast<double>(b);
    };
    EXPECT_TRUE(is_near(kept.at(id).qlora, planned.qlora) &&
                is_near(kept.at(id).lora, planned.lora) &&
                is_near(kept.at(id).all_weights, planned.all_weights))
        << id << ": renew the file with SNUG_WRITE_REFERENCE=1 plan_test "
        << "--gtest_filter=NamedModels.*";
  }
}

}  // namespace
}  // namespace snug::plan
