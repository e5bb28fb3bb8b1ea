// SPDX-License-Identifier: Apache-2.0
#include "use/generate/prompts.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "data/pictures/picture_sample.h"
#include "data/prompts.h"

namespace snug::use {
namespace {

// A caption sample without a caption.
data::Sample unanswered(const models::Model& model, const data::TextEncoder& encoder,
                        const std::string& text, const data::Reading& reading) {
  return data::make_caption_sample(
      text, "", encoder,
      {.max_seq_length = model.dimensions().max_positions + reading.num_picture_tokens,
       .reading = reading});
}

}  // namespace

void check_reads_pictures(const models::Model& model, const std::string& name) {
  if (model.reads().image_size > 0) return;
  throw UserError(
      "{} cannot read pictures (its model_type is {}); a BLIP-2 or a SmolVLM can, and snug "
      "generate without --image takes text alone",
      name, model.hugging_face_config().value("model_type", "unknown"));
}

Prompt text_prompt(const models::Model& model, const data::TextEncoder& encoder,
                   const std::string& text) {
  data::Reading reading = model.reads();
  if (!reading.source) return {.ids = encoder.encode_prompt(text)};
  reading.num_picture_tokens = 0;
  return sample_prompt(unanswered(model, encoder, text, reading), {});
}

Prompt picture_prompt(const models::Model& model, const data::TextEncoder& encoder,
                      const data::PromptStyle& style, const std::string& text,
                      data::PreparedPicture picture) {
  const data::Reading reading = model.reads();
  if (!reading.pictures_anywhere)
    return sample_prompt(unanswered(model, encoder, text, reading), std::move(picture.pixels));
  std::string asked = data::with_marks(text, 1);
  if (style.is_chat()) {
    const data::Message question{"user", std::move(asked)};
    asked = style.render({&question, 1}, /*add_generation_prompt=*/true);
  }
  data::Sample sample =
      data::make_question(std::move(asked), {&picture.grid, 1}, style.encoder_of_prompts(encoder),
                          {.reading = reading});
  data::room_for_answer(sample, {.max_seq_length = model.dimensions().max_positions});
  return sample_prompt(std::move(sample), std::move(picture.pixels));
}

Prompt prompt_with_pictures(const models::Model& model, const data::TextEncoder& encoder,
                            const std::string& text, std::vector<data::PreparedPicture> pictures) {
  const data::Reading reading = model.reads();
  if (pictures.empty()) return text_prompt(model, encoder, text);
  if (!reading.pictures_anywhere) {
    if (pictures.size() > 1)
      throw UserError("this model reads one picture at a time, and there are {}", pictures.size());
    return sample_prompt(unanswered(model, encoder, text, reading),
                         std::move(pictures.front().pixels));
  }
  std::vector<data::Grid> grids;
  std::vector<uint8_t> pixels;
  for (const data::PreparedPicture& picture : pictures) {
    grids.push_back(picture.grid);
    pixels.insert(pixels.end(), picture.pixels.begin(), picture.pixels.end());
  }
  return sample_prompt(data::make_question(text, grids, encoder, {.reading = reading}),
                       std::move(pixels));
}

std::optional<data::PromptRecord> prompts_of_training(const engine::LanguageModel& lm,
                                                      const engine::LoadedAdapter* adapter) {
  if (adapter != nullptr)
    if (auto record = data::read_prompt_record(adapter->name)) return record;
  return data::read_prompt_record(lm.path);
}

std::string system_message(const std::optional<std::string>& given, const data::PromptStyle& style,
                           const engine::LanguageModel& lm, const engine::LoadedAdapter* adapter) {
  if (given || !style.is_chat()) return given.value_or("");
  const auto record = prompts_of_training(lm, adapter);
  return record ? record->system : "";
}

data::PromptStyle style_of_prompts(const std::string& chosen, const engine::LanguageModel& lm,
                                   const engine::LoadedAdapter* adapter,
                                   const data::TextEncoder& encoder) {
  if (chosen != "auto") return data::PromptStyle::make(chosen, encoder);
  if (const auto record = prompts_of_training(lm, adapter))
    return data::PromptStyle::make(record->style, encoder);
  return data::PromptStyle::make(encoder.chat ? "chat" : "plain", encoder);
}

data::PromptStyle style_of_questions(const std::string& chosen, const engine::LanguageModel& lm,
                                     const engine::LoadedAdapter* adapter,
                                     const data::TextEncoder& encoder) {
  data::PromptStyle style = style_of_prompts(chosen, lm, adapter, encoder);
  if (chosen != "auto" || (lm.model->reads().pictures_anywhere && style.is_chat())) return style;
  return data::PromptStyle::make("plain", encoder);
}

Prompt sample_prompt(data::Sample sample, std::vector<uint8_t> picture) {
  size_t prompt = 0;
  while (prompt < sample.ids.size() && sample.labels[prompt] != sample.ids[prompt]) ++prompt;
  sample.ids.resize(prompt);
  return {.ids = std::move(sample.ids), .picture = std::move(picture)};
}

namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

constexpr const char* kHowToGive =
    "give one with --prompt \"What is Debian?\", as an argument in quotes after the model, or on "
    "standard input";

// False: nothing arrived.
bool wait_for_input(int descriptor, double seconds) {
  pollfd input{.fd = descriptor, .events = POLLIN, .revents = 0};
  int ready = 0;
  do ready = ::poll(&input, 1, static_cast<int>(seconds * 1000));
  while (ready < 0 && errno == EINTR);
  return ready != 0;
}

}  // namespace

std::optional<std::string> text_of_input(int descriptor, double seconds) {
  if (::isatty(descriptor) == 1) return std::nullopt;
  if (!wait_for_input(descriptor, seconds))
    throw UserError("no prompt arrived on standard input within {} seconds; {}", seconds,
                    kHowToGive);
  std::string text;
  char bytes[1 << 16];
  while (true) {
    const ssize_t size = ::read(descriptor, bytes, sizeof bytes);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;  // its end, or it is closed
    text.append(bytes, static_cast<size_t>(size));
    if (text.size() > kMostBytes)
      throw UserError("the prompt on standard input is longer than {} MiB", kMostBytes >> 20);
  }
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (text.empty()) return std::nullopt;
  return text;
}

std::string given_prompt(const std::optional<std::string>& given) {
  if (given) return *given;
  if (auto text = text_of_input(STDIN_FILENO, kPatienceSeconds)) return *std::move(text);
  throw UserError("there is no prompt; {}", kHowToGive);
}

}  // namespace snug::use
