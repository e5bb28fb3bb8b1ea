// The program's door: which command, and which exit code. 0 done, 1 our fault, 2 the user's recipe,
// data or files, 3 out of memory.
// SPDX-License-Identifier: Apache-2.0
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "config/check.h"
#include "config/help.h"
#include "config/parse.h"
#include "config/print.h"
#include "hub/download.h"
#include "train/convert.h"
#include "train/evaluate.h"
#include "train/finetune.h"
#include "train/generate.h"
#include "train/host.h"
#include "train/merge.h"
#include "train/plan.h"

namespace {

using snug::config::Command;
using snug::config::ParsedCommand;

constexpr const char* kVersion = "0.1.0";

int terminal_width() {
  struct winsize size {};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40;
  return known ? size.ws_col : 80;
}

void show_help(const std::string& command) {
  const bool color = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  std::fputs(snug::config::help_text(command, terminal_width(), color).c_str(), stdout);
}

void finetune(const ParsedCommand& parsed, const std::vector<std::string>& words) {
  if (parsed.print_config) {
    std::fputs(snug::config::print_recipe_yaml(parsed.recipe).c_str(), stdout);
    return;
  }
  snug::set_verbose(parsed.recipe.verbose);
  snug::config::check_recipe(parsed.command, parsed.recipe);
  snug::train::check_offload_folder(parsed.recipe);
  snug::train::finetune(parsed.recipe, snug::config::print_command(words));
}

void plan(const ParsedCommand& parsed) {
  if (parsed.print_config) {
    std::fputs(snug::config::print_recipe_yaml(parsed.recipe).c_str(), stdout);
    return;
  }
  snug::set_verbose(parsed.recipe.verbose);
  snug::config::check_recipe(parsed.command, parsed.recipe);
  snug::train::plan(parsed.recipe, parsed.plan);
}

void download(const snug::config::DownloadOptions& options) {
  snug::set_verbose(options.verbose);
  const bool tty = ::isatty(STDERR_FILENO) == 1;
  const std::string folder = options.checkpoint_dir + "/" + options.repo_id;
  const auto files = snug::hub::download(
      {.repo_id = options.repo_id,
       .revision = options.revision,
       .directory = folder,
       .endpoint = options.endpoint,
       .token = options.access_token},
      [&](const snug::hub::Progress& p) {
        if (tty)
          std::fprintf(stderr, "\r\033[K%s  %.0f of %.0f MB  %.1f MB/s", p.file.c_str(),
                       static_cast<double>(p.all_bytes) / 1e6,
                       static_cast<double>(p.all_total) / 1e6, p.bytes_per_second / 1e6);
      });
  if (tty) std::fputs("\r\033[K", stderr);
  std::printf("%zu files in %s\n", files.size(), folder.c_str());
}

void run(const ParsedCommand& parsed, const std::vector<std::string>& words) {
  if (parsed.help) return show_help(parsed.name);
  switch (parsed.command) {
    case Command::FinetuneFull:
    case Command::FinetuneLora:
      return finetune(parsed, words);
    case Command::Plan:
      return plan(parsed);
    case Command::Generate:
      return snug::train::generate(parsed.generate);
    case Command::Chat:
      return snug::train::chat(parsed.generate);
    case Command::Evaluate:
      return snug::train::evaluate(parsed.evaluate);
    case Command::Convert:
      return snug::train::convert(parsed.convert);
    case Command::Merge:
      return snug::train::merge(parsed.merge);
    case Command::Download:
      return download(parsed.download);
    case Command::Completion:
      std::fputs(snug::config::completion_script(parsed.completion.shell).c_str(), stdout);
      return;
    case Command::Version:
      std::printf("snug %s\n", kVersion);
      return;
    case Command::Help:
      return show_help(parsed.help_options.command);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    run(snug::config::parse_command_line(words), words);
    return 0;
  } catch (const snug::InternalError& error) {
    std::fprintf(stderr, "snug: internal error: %s\nPlease report this with the command you ran.\n",
                 error.what());
    return error.exit_code();
  } catch (const snug::Error& error) {
    std::fprintf(stderr, "snug: %s\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    std::fputs("snug: the system has no memory left\n", stderr);
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "snug: internal error: %s\nPlease report this with the command you ran.\n",
                 error.what());
    return 1;
  }
}
