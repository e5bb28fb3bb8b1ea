// Entry point: runs the command and returns its exit code. 0 success, 1 internal error, 2 error in
// the recipe, data or files, 3 out of memory, 4 a lab's row differs from what its suite expects,
// 130 stopped on request.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "base/lost_pages.h"
#include "base/program.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/failed_allocation.h"
#include "core/dist/mpi/bundled_mpi.h"
#include "core/dist/world.h"
#include "engine/cuda_device.h"
#include "engine/host.h"
#include "lab/lab.h"
#include "models/family.h"
#include "plan/command/models.h"
#include "plan/command/plan.h"
#include "plan/devices/device_profile.h"
#include "recipe/check.h"
#include "recipe/import/import.h"
#include "recipe/options/help.h"
#include "recipe/parse.h"
#include "recipe/print.h"
#include "train/finetune.h"
#include "train/launch/launch.h"
#include "train/launch/layout.h"
#include "train/out_dir/earlier_run.h"
#include "use/caption/caption.h"
#include "use/commands.h"
#include "use/demo/demo.h"
#include "watch/doctor/doctor.h"
#include "watch/monitor/monitor.h"

namespace {

using snug::recipe::Command;
using snug::recipe::ParsedCommand;

void show_help(const std::string& command, bool all_options) {
  const bool color = snug::style_of(STDOUT_FILENO).colours;
  const int width = std::max(snug::terminal_size(STDOUT_FILENO).columns, 40);
  using snug::recipe::HelpOf;
  const HelpOf options = all_options ? HelpOf::All : HelpOf::Common;
  std::fputs(snug::recipe::help_text(command, width, color, options).c_str(), stdout);
}

// The GPUs that this program can use. The driver may know more: a build without CUDA uses none, and
// CUDA_VISIBLE_DEVICES may hide some.
snug::lab::GpusHere gpus_here() {
  namespace cuda = snug::engine::cuda;
  const int count = cuda::count();
  if (count == 0) return {.why_none = cuda::why_none()};
  return {.count = count, .name = cuda::name()};
}

// Throws UserError for an unknown GPU. A CPU has no profile to look up: it is measured.
void check_profile(const std::string& device, int64_t budget_bytes) {
  if (device != "cpu") snug::plan::find_profile(device, budget_bytes);
}

void tell_of_import(const ParsedCommand& parsed) {
  if (!parsed.import_note.empty()) std::fprintf(stderr, "%s\n", parsed.import_note.c_str());
}

int finetune(ParsedCommand parsed, const std::vector<std::string>& words) {
  snug::recipe::Recipe& recipe = parsed.recipe;
  if (parsed.print_config) {
    std::fputs(snug::recipe::print_recipe_yaml(recipe).c_str(), stdout);
    return 0;
  }
  snug::set_verbose(recipe.verbose);
  const auto check = [&] {
    snug::recipe::check_recipe(parsed.command, recipe);
    snug::engine::check_offload_folder(recipe);
  };
  const std::string command = snug::recipe::print_command(words);
  std::optional<snug::FolderLock> lock;
  const auto take_folder = [&] {  // once a run, in the process that the user started
    tell_of_import(parsed);
    lock.emplace(snug::LockWish{.target = recipe.out_dir, .command = command});
    // Under an mpirun that the user started, the ranks' keepers already write there.
    if (snug::dist::position_in_environment().size == 1) snug::train::put_logs_by(recipe.out_dir);
  };
  if (const auto code =
          snug::launch::start(recipe, words, check, snug::engine::cuda::count, take_folder))
    return *code;
  snug::train::finetune(recipe, command);
  return 0;
}

// Replaces this process (execv), so that the run and its timings are those of the command shown.
[[noreturn]] void become(std::vector<std::string> words) {
  words.insert(words.begin(), "snug");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execv("/proc/self/exe", argv.data());
  throw snug::UserError("cannot start the run: {}", std::strerror(errno));
}

// The recipe and a model of the user's own are checked before anything is written or fetched.
void demo(const snug::recipe::DemoOptions& options) {
  if (options.fetch_only) {
    std::puts(snug::demo::fetch_model(options).c_str());
    return;
  }
  const std::vector<std::string> words = snug::demo::finetune_words(options);
  const ParsedCommand run = snug::recipe::parse_command_line(words);
  if (run.print_config) become(words);
  snug::set_verbose(run.recipe.verbose);
  snug::recipe::check_recipe(run.command, run.recipe);
  // Held until this process becomes the run, which takes the lock again. A folder that does not
  // exist needs no lock.
  std::optional<snug::FolderLock> lock;
  if (!options.data_only && std::filesystem::is_directory(run.recipe.out_dir))
    lock.emplace(snug::LockWish{.target = run.recipe.out_dir, .command = "snug demo"});
  if (!options.data_only && !options.checkpoint_dir.empty() && run.recipe.model.config.empty())
    snug::models::open_checkpoint(options.checkpoint_dir);
  snug::demo::make_questions(options);
  if (options.data_only) return;
  snug::demo::fetch_model(options);
  std::printf("Command   %s\n", snug::recipe::print_command(words).c_str());
  if (run.recipe.train.save_model)
    std::printf("Then      snug chat %s/final\n", run.recipe.out_dir.c_str());
  become(words);
}

// A file that `snug import` wrote may be made anew, and what is no file is written through.
void check_may_be_replaced(const std::string& out) {
  if (!std::filesystem::is_regular_file(out)) return;
  const std::string text = snug::read_file(out);
  const std::string first = text.substr(0, text.find('\n'));
  if (!first.starts_with("# From ") || !first.ends_with(", by snug import."))
    throw snug::UserError("{} exists already, and snug import did not write it; name another file",
                          out);
}

void import_recipe(const snug::recipe::ImportOptions& options) {
  check_may_be_replaced(options.out);
  const snug::recipe::Imported imported = snug::recipe::import_file(options.recipe);
  const std::string text = snug::recipe::print_imported(imported, options.recipe);
  if (options.out.empty())
    std::fputs(text.c_str(), stdout);
  else
    snug::write_file_atomically(options.out, text);
  snug::recipe::check_imported(imported);
}

void plan(const ParsedCommand& parsed, const std::vector<std::string>& words) {
  if (parsed.print_config) {
    std::fputs(snug::recipe::print_recipe_yaml(parsed.recipe).c_str(), stdout);
    return;
  }
  snug::set_verbose(parsed.recipe.verbose);
  tell_of_import(parsed);
  snug::recipe::Recipe recipe = parsed.recipe;
  snug::launch::resolve_hosts(recipe);
  snug::recipe::check_recipe(parsed.command, recipe);
  snug::plan::plan(recipe, parsed.plan, words);
}

// Returns the exit code.
int run(const ParsedCommand& parsed, const std::vector<std::string>& words) {
  if (parsed.help) {
    show_help(parsed.name, parsed.help_all);
    return 0;
  }
  switch (parsed.command) {
    case Command::Demo:
      demo(parsed.demo);
      break;
    case Command::FinetuneFull:
    case Command::FinetuneLora:
      return finetune(parsed, words);
    case Command::Plan:
      plan(parsed, words);
      break;
    case Command::Models:
      snug::plan::list_models(parsed.models);
      break;
    case Command::Import:
      import_recipe(parsed.import_options);
      break;
    case Command::Generate:
      snug::use::generate(parsed.generate);
      break;
    case Command::Caption:
      return snug::use::caption(parsed.caption);
    case Command::Chat:
      snug::use::chat(parsed.chat);
      break;
    case Command::Data:
      snug::use::show_data(parsed.show_data);
      break;
    case Command::Evaluate:
      snug::use::evaluate(parsed.evaluate);
      break;
    case Command::Convert:
      snug::use::convert(parsed.convert);
      break;
    case Command::Merge:
      snug::use::merge(parsed.merge);
      break;
    case Command::Bench:
      return snug::use::bench(parsed.bench, words);
    case Command::Lab:
      return snug::lab::lab(parsed.lab, words, {gpus_here, check_profile});
    case Command::Monitor:
      return snug::monitor::monitor(parsed.monitor);
    case Command::Doctor:
      return snug::doctor::doctor(parsed.doctor);
    case Command::Verify:
      snug::use::verify(parsed.verify);
      break;
    case Command::Download:
      snug::use::download(parsed.download);
      break;
    case Command::Completion:
      std::fputs(snug::recipe::completion_script(parsed.completion.shell).c_str(), stdout);
      break;
    case Command::Version:
      std::printf("snug %s\nlibtorch %s, %s CUDA, compiled by GCC %s\n", snug::kVersion,
                  TORCH_VERSION, snug::engine::cuda::is_built() ? "with" : "without", __VERSION__);
      break;
    case Command::Help:
      show_help(parsed.help_options.command, !parsed.help_options.options.empty());
      break;
  }
  return 0;
}

// Shortens a message that repeats very long input: keeps its start and its end.
std::string shortened(const std::string& text) {
  constexpr size_t kMost = 8000, kEnd = 1000;
  if (text.size() <= kMost) return text;
  return text.substr(0, kMost - kEnd) + "\n[...]\n" + text.substr(text.size() - kEnd);
}

// With several processes, only the one whose output the user sees prints the error, once. It comes
// after all output, where both go to the same place.
int fail(int exit_code, const std::string& whole, bool lost_another_rank = false) {
  const std::string text = shortened(snug::printable_lines(whole));
  std::fflush(stdout);
  if (!snug::launch::tell_end(exit_code, text, lost_another_rank))
    std::fprintf(stderr, "snug: %s\n", text.c_str());
  return exit_code;
}

int fail_internally(const std::exception& error) {
  if (snug::launch::tell_end(1, error.what(), false)) return 1;
  std::fprintf(stderr, "snug: internal error: %s\nPlease report this with the command you ran.\n",
               error.what());
  return 1;
}

// Whoever reads a plan from a file must hear that a full disk has cut it.
void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw snug::UserError("the output could not be written: {}", std::strerror(errno));
}

// A file that is opened while standard input, output or error are closed would take their place,
// and get what the program prints. They lead nowhere instead; that a result cannot be printed is
// still an error.
void open_standard_streams() {
  int opened = 0;
  while (opened >= 0 && opened <= STDERR_FILENO) {
    const bool is_output =
        ::fcntl(STDIN_FILENO, F_GETFD) >= 0 && ::fcntl(STDOUT_FILENO, F_GETFD) < 0;
    opened = ::open(is_output ? "/dev/full" : "/dev/null", O_RDWR);
  }
  if (opened > STDERR_FILENO) ::close(opened);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  snug::tell_of_lost_pages();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow further is an error of its write
  try {
    std::error_code gone;
    if (std::filesystem::current_path(gone).empty())
      throw snug::UserError(
          "the folder that this was started in no longer exists ({}); go to another",
          gone.message());
    snug::dist::locate_bundled_mpi();
    const std::vector<std::string> words(argv + 1, argv + argc);
    // A step is counted with its plan.
    if (words.size() > 1 && words[0] == "bench" && words[1] == "step") {
      std::vector<std::string> plan = {"plan", "--operations", "true"};
      plan.insert(plan.end(), words.begin() + 2, words.end());
      become(plan);
    }
    const int code = run(snug::recipe::parse_command_line(words), words);
    flush_output();
    return code;
  } catch (const snug::InternalError& error) {
    return fail_internally(error);
  } catch (const snug::CommunicationError& error) {
    return fail(error.exit_code(), error.what(), true);
  } catch (const snug::Error& error) {
    return fail(error.exit_code(), error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(2, error.path1().string() + ": " + error.code().message());
  } catch (const std::bad_alloc&) {
    return fail(3, snug::failed_allocation_text());
  } catch (const std::system_error& error) {
    // A thread that cannot be started.
    if (error.code() != std::errc::resource_unavailable_try_again) return fail_internally(error);
    return fail(3,
                "the system allows no more threads, or no memory for one: see ulimit -u, -v, -d");
  } catch (const std::exception& error) {
    return fail_internally(error);
  }
}
