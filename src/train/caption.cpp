// SPDX-License-Identifier: Apache-2.0
#include "train/caption.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "data/picture_processor.h"
#include "data/text_encoder.h"
#include "report/text_width.h"
#include "setup/language_model.h"
#include "train/generate.h"
#include "train/host.h"
#include "train/picture_files.h"
#include "train/progress_line.h"
#include "train/prompts.h"

namespace snug::train {
namespace {

namespace fs = std::filesystem;

fs::path text_beside(fs::path picture) { return picture.replace_extension(".txt"); }

// Where captions go, one by one.
class CaptionWriter {
 public:
  explicit CaptionWriter(const config::CaptionOptions& options) : options_(options) {
    if (options.out.empty()) return;
    if (fs::is_directory(options.out))
      throw UserError(
          "--out {}: this is a folder; name a file for all captions, as in --out {}, or let "
          "--beside write one beside each picture",
          options.out, (fs::path(options.out) / "captions.txt").string());
    if (fs::exists(options.out) && !options.force)
      throw UserError("{} is there already; --force writes over it", options.out);
    file_.reset(std::fopen(options.out.c_str(), "wb"));
    if (!file_) throw UserError("{} cannot be written: {}", options.out, std::strerror(errno));
  }

  bool shows() const { return options_.out.empty() && !options_.beside; }

  void write(const fs::path& picture, const std::string& text) {
    if (options_.beside) return write_beside(picture, text);
    std::string line = picture.string() + "\t" + text;
    if (options_.format == "jsonl")
      line = nlohmann::json{{"file", picture.string()}, {"caption", text}}.dump(
          -1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (!file_) return print_piece(line + "\n");
    line += "\n";
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
        std::fflush(file_.get()) != 0)
      throw UserError("{}: {}", options_.out, std::strerror(errno));
  }

 private:
  // Pictures that differ in their ending alone would have one text.
  void write_beside(const fs::path& picture, const std::string& text) {
    const fs::path file = text_beside(picture);
    if (const auto [first, is_new] = beside_.try_emplace(file, picture); !is_new)
      return warn("{} holds the caption of {}; that of {} is: {}", file.string(),
                  first->second.string(), picture.string(), text);
    write_file_atomically(file, text + "\n");
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const config::CaptionOptions& options_;
  std::unique_ptr<std::FILE, Close> file_;
  std::map<fs::path, fs::path> beside_;  // which picture's text was written
};

struct Loaded {
  std::vector<uint8_t> pixels;  // empty where there is a fault
  std::string fault;
};

std::vector<Loaded> load(std::span<const fs::path> files, const data::PictureProcessor& processor) {
  std::vector<Loaded> all(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    try {
      const MappedFile file(files[i]);
      all[i].pixels.resize(static_cast<size_t>(processor.size * processor.size * 3));
      processor.process(file.bytes(), files[i].string(), all[i].pixels.data());
    } catch (const UserError& error) {
      all[i] = {.pixels = {}, .fault = error.what()};
    }
  }
  return all;
}

void check(const config::CaptionOptions& options) {
  if (options.beside && !options.out.empty())
    throw UserError("--beside writes a file a picture, --out one for all; give one of them");
  if (options.beside && options.format != "text")
    throw UserError("--beside writes plain text; leave --format {} out", options.format);
}

// Those that have no caption beside them yet.
std::vector<fs::path> without_caption(std::vector<fs::path> files) {
  const size_t all = files.size();
  std::erase_if(files, [](const fs::path& file) { return fs::exists(text_beside(file)); });
  if (files.size() < all)
    warn("{} of {} pictures have a .txt file beside them and are passed over; --force writes over",
         with_commas(static_cast<int64_t>(all - files.size())),
         with_commas(static_cast<int64_t>(all)));
  return files;
}

class Run {
 public:
  Run(const config::CaptionOptions& options, const setup::LanguageModel& lm)
      : options_(options),
        lm_(lm),
        encoder_(data::make_encoder(*lm.tokenizer)),
        generator_(*lm.executor, *lm.model, *lm.tokenizer, lm.precision.compute),
        generation_(generation_options(options.max_new_tokens,
                                       {.temperature = options.temperature,
                                        .top_k = options.top_k,
                                        .top_p = options.top_p,
                                        .seed = options.seed},
                                       options.beams, options.temperature > 0 ? 1 : 5)),
        processor_(data::read_picture_processor(lm.path, lm.model->reads().image_size)) {}

  // Returns how many could not be read.
  size_t caption(const std::vector<fs::path>& files) {
    CaptionWriter writer(options_);
    const ProgressLine progress(files.size(), !writer.shows());
    const std::span<const fs::path> all(files);
    const auto most = static_cast<size_t>(options_.batch_size);
    const auto part = [&](size_t begin) {
      return all.subspan(begin, std::min(most, all.size() - begin));
    };
    const auto load_part = [&](size_t begin) { return load(part(begin), processor_); };
    std::future<std::vector<Loaded>> next = std::async(std::launch::async, load_part, 0);
    for (size_t begin = 0; begin < all.size(); begin += most) {
      std::vector<Loaded> loaded = next.get();
      // The next ones are read while these are told.
      if (begin + most < all.size()) next = std::async(std::launch::async, load_part, begin + most);
      tell(part(begin), std::move(loaded), progress, writer);
      progress.show(std::min(begin + most, all.size()));
    }
    progress.clear();
    std::fprintf(stderr, "(%zu captions, %.1f pictures/s)\n", files.size() - unreadable_,
                 static_cast<double>(files.size()) / progress.seconds());
    return unreadable_;
  }

 private:
  void tell(std::span<const fs::path> files, std::vector<Loaded> loaded,
            const ProgressLine& progress, CaptionWriter& writer) {
    std::vector<Prompt> prompts;
    std::vector<fs::path> told;
    for (size_t i = 0; i < files.size(); ++i) {
      if (loaded[i].fault.empty()) {
        prompts.push_back(
            picture_prompt(*lm_.model, encoder_, options_.prompt, std::move(loaded[i].pixels)));
        told.push_back(files[i]);
      } else {
        ++unreadable_;
        progress.clear();
        std::fprintf(stderr, "snug: %s\n", report::printable(loaded[i].fault).c_str());
      }
    }
    GenerationOptions own = generation_;
    own.sampling.seed += num_told_;
    num_told_ += prompts.size();
    const auto texts = write_captions(generator_, prompts, own, options_.batch_size);
    for (size_t i = 0; i < texts.size(); ++i) writer.write(told[i], texts[i]);
  }

  const config::CaptionOptions& options_;
  const setup::LanguageModel& lm_;
  data::TextEncoder encoder_;
  TextGenerator generator_;
  GenerationOptions generation_;
  data::PictureProcessor processor_;
  size_t num_told_ = 0, unreadable_ = 0;
};

}  // namespace

void check_reads_pictures(const models::Model& model, const std::string& name) {
  if (model.reads().image_size > 0) return;
  throw UserError(
      "{} reads no pictures (its model_type is {}); captions come from BLIP-2 models, texts from "
      "snug generate",
      name, model.hugging_face_config().value("model_type", "unknown"));
}

std::vector<std::string> write_captions(TextGenerator& generator, std::span<const Prompt> prompts,
                                        const GenerationOptions& options, int64_t batch_size) {
  std::vector<std::string> captions;
  for (const Generation& made : generator.generate_all(prompts, options, batch_size)) {
    std::string text = made.text;
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const size_t end = text.find_last_not_of(' ') + 1;
    captions.push_back(begin < end ? text.substr(begin, end - begin) : "");
  }
  return captions;
}

int caption(const config::CaptionOptions& options) {
  set_verbose(options.verbose);
  check(options);
  std::vector<fs::path> files = find_pictures(options.images);
  if (options.beside && !options.force) files = without_caption(std::move(files));
  if (files.empty()) return 0;
  const Host host = prepare_host(options.memory_budget, options.num_threads, options.accelerator);
  std::vector<std::string> adapters;
  if (!options.adapter.empty()) adapters.push_back(options.adapter);
  const setup::LanguageModel lm = setup::open_language_model(
      options.checkpoint_dir, host.device,
      {.precision = options.precision, .quantize = options.quantize, .adapters = adapters});
  check_reads_pictures(*lm.model, options.checkpoint_dir);
  const size_t unreadable = Run(options, lm).caption(files);
  if (unreadable == 0) return 0;
  std::fprintf(stderr, "snug: %zu of %zu pictures could not be read\n", unreadable, files.size());
  return 2;
}

}  // namespace snug::train
