// Chats with pictures, in the forms that people keep them in, against transformers: the loss, and
// every gradient (tests/oracles/smolvlm_rows.py).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

const fs::path kModel = fs::path(SNUG_SOURCE_DIR) / "tests/data/system/smolvlm";
const fs::path kRows = kModel / "rows";

// Tensors of a safetensors file of float32.
std::map<std::string, std::vector<float>> weights_in(const fs::path& file) {
  const std::string bytes = read_file(file);
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  std::map<std::string, std::vector<float>> weights;
  const json header = json::parse(bytes.substr(sizeof size, size));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    EXPECT_EQ(entry["dtype"], "F32") << name;
    std::vector<float>& values = weights[name];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + sizeof size + size + begin, end - begin);
  }
  return weights;
}

json expected() { return json::parse(read_file(kRows / "expected.json")); }

TEST(PictureRows, HaveTheLossOfTransformersInEachForm) {
  const json wanted = expected();
  int64_t learned = 0;
  for (const json& row : wanted["rows"]) learned += row["learned"].get<int64_t>();
  for (const char* form : {"parts", "conversations", "beside"}) {
    const Result result =
        run({"evaluate", kModel, "--data", "JSON", "--data.json_path",
             kRows / (std::string(form) + ".jsonl"), "--data.val_split_fraction", "0", "--split",
             "train", "--precision", "32-true", "--json", "true"});
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const json figures = json::parse(result.output.substr(result.output.find("{\"")));
    EXPECT_NEAR(figures["loss"].get<double>(), wanted["loss"].get<double>(), 2e-5) << form;
    EXPECT_EQ(figures["tokens"], learned) << form;
    EXPECT_EQ(figures["mask_prompt"], true) << form;
  }
}

// A step of plain gradient descent, whose change of each weight is its gradient: packed, in two
// micro-batches, padded, and on two ranks, of which one has a micro-batch without pictures. What a
// plan says of the memory is what is measured.
TEST(PictureRows, HaveTheGradientsOfTransformers) {
  const json wanted = expected();
  const auto before = weights_in(kModel / "model.safetensors");
  const std::vector<Words> cases{{"--train.micro_batch_size", "4"},
                                 {"--train.micro_batch_size", "2"},
                                 {"--train.micro_batch_size", "4", "--data.packing", "false"},
                                 {"--train.micro_batch_size", "1", "--devices", "2"}};
  for (const Words& more : cases) {
    const TempFolder folder;
    Words command{"finetune_full",
                  kModel,
                  "--data.json_path",
                  kRows / "parts.jsonl",
                  "--data.val_split_fraction",
                  "0",
                  "--precision",
                  "32-true",
                  "--optimizer",
                  "SGD",
                  "--optimizer.lr",
                  "1",
                  "--train.max_norm",
                  "none",
                  "--train.max_steps",
                  "1",
                  "--train.lr_warmup_steps",
                  "0",
                  "--train.global_batch_size",
                  "4",
                  "--out_dir",
                  folder / "out"};
    command.insert(command.end(), more.begin(), more.end());
    const Result result = run(command);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const json figures = json::parse(read_file(folder / "out/run.json"));
    const json& step = figures["steps"].at(0);
    EXPECT_NEAR(step["loss"].get<double>(), wanted["loss"].get<double>(), 2e-5);
    EXPECT_EQ(figures["memory"]["predicted"]["peak_allocated"],
              figures["memory"]["measured"]["peak_allocated"])
        << more.back();
    EXPECT_EQ(json::parse(read_file(folder / "out/final/prompt_style.json")),
              (json{{"prompt_style", "chat"}, {"mask_prompt", true}}));
    const double lr = step["lr"];
    ASSERT_GT(lr, 0);
    const auto after = weights_in(folder / "out/final/model.safetensors");
    ASSERT_EQ(wanted["gradients"].size(), after.size());
    for (const auto& [name, gradient] : wanted["gradients"].items()) {
      double squares = 0, sum = 0;
      for (size_t i = 0; i < before.at(name).size(); ++i) {
        const double change = (static_cast<double>(before.at(name)[i]) - after.at(name)[i]) / lr;
        squares += change * change;
        sum += change;
      }
      // Each change is rounded as the weight is: some 1e-7 of it.
      const double norm = gradient["norm"];
      const double rounding = 2e-7 * std::sqrt(static_cast<double>(before.at(name).size())) / lr;
      EXPECT_NEAR(std::sqrt(squares), norm, 1e-4 * norm + 10 * rounding) << name;
      EXPECT_NEAR(sum, gradient["sum"].get<double>(), 1e-3 * norm + 100 * rounding) << name;
    }
  }
}

}  // namespace
}  // namespace snug::tests
