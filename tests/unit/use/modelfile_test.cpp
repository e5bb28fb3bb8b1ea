// The Modelfiles of chat templates, whose TEMPLATE tests/oracles/modelfiles.py renders with Go and
// compares with Jinja; and of prompt styles and templates that have none.
// SPDX-License-Identifier: Apache-2.0
#include "use/modelfile.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "text/template/chat_template.h"

namespace snug::use {
namespace {

using nlohmann::json;

json read_data(const std::string& name) {
  return json::parse(read_file(std::string(SNUG_SOURCE_DIR) + "/tests/data/tokenizer/" + name));
}

data::PromptStyle chat_style(const std::string& source) {
  const auto chat = std::make_shared<tokenizer::ChatTemplate>(source, "test");
  data::TextEncoder encoder;
  encoder.chat = [chat](std::span<const tokenizer::Message> messages, bool opens,
                        std::string_view tools) {
    return chat->apply(messages, opens, tools, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  };
  return data::PromptStyle::make("chat", encoder);
}

const ModelfileOptions kOptions{.gguf = {"m.gguf"}, .bos = "<s>", .stops = {"</s>"}};

TEST(Modelfile, TakesChatTemplatesApart) {
  const json data = read_data("jinja.json");
  std::map<std::string, std::string> sources, found;
  for (const json& chat : data["chats"]) sources[chat["name"]] = chat["template"];
  for (const auto& [name, source] : sources) found[name] = modelfile(chat_style(source), kOptions);
  EXPECT_EQ(json(found).dump(1), read_data("modelfiles.json").dump(1));
}

TEST(Modelfile, SaysWhyThereIsNoTemplate) {
  // The number of messages counts, which no turn of its own can say.
  const std::string text = modelfile(
      chat_style("{% for m in messages %}{{ loop.index }} {{ m['content'] }}\n{% endfor %}"),
      kOptions);
  EXPECT_EQ(text.find("TEMPLATE \"\"\""), text.npos) << text;
  EXPECT_NE(
      text.find("# the model's chat template does not write conversations message by message"),
      text.npos)
      << text;
  EXPECT_NE(text.find("PARAMETER stop \"</s>\""), text.npos) << text;
}

TEST(Modelfile, LeavesOutWhatGoWouldRead) {
  const std::string text = modelfile(
      chat_style("{% for m in messages %}{{ '{{' + m['content'] + '}}' }}{% endfor %}"), kOptions);
  EXPECT_EQ(text.find("TEMPLATE \"\"\""), text.npos) << text;
}

TEST(Modelfile, HasTheSystemMessageOfTrainingWhereItCanBeRead) {
  const auto with_system = [](const std::string& source, const std::string& system) {
    ModelfileOptions options = kOptions;
    options.system = system;
    return modelfile(chat_style(source), options);
  };
  const std::string turns =
      "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_NE(with_system(turns, "Say letters.").find("SYSTEM \"\"\"Say letters.\"\"\"\n"),
            std::string::npos);
  EXPECT_EQ(with_system(turns, "").find("SYSTEM"), std::string::npos);
  const std::string quoted = with_system(turns, "Say \"\"\"x.");
  EXPECT_EQ(quoted.find("SYSTEM"), std::string::npos);
  EXPECT_NE(quoted.find("# the training's system message has three quotation marks"),
            std::string::npos);
  // A template that refuses such a turn.
  const std::string none =
      "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('none') }}{% endif "
      "%}"
      "<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  const std::string text = with_system(none, "Say letters.");
  EXPECT_NE(text.find("TEMPLATE"), std::string::npos);
  EXPECT_EQ(text.find("SYSTEM"), std::string::npos) << text;
}

TEST(Modelfile, HasTheStylesOfFineTuning) {
  EXPECT_EQ(modelfile(data::PromptStyle::make("plain", {}), kOptions),
            "FROM ./m.gguf\nTEMPLATE \"\"\"{{ .Prompt }}\"\"\"\nPARAMETER stop \"</s>\"\n");
  EXPECT_NE(modelfile(data::PromptStyle::make("alpaca", {}), kOptions)
                .find("### Instruction:\n{{ .Prompt }}\n\n### Response:\n\"\"\"\n"),
            std::string::npos);
}

}  // namespace
}  // namespace snug::use
