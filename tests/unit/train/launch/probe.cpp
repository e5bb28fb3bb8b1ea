// Processes that are started as a run's are, and do as they are told: probe OUT_DIR DEVICES DEED…
// A deed is RANK:WORD[:MORE], for rank RANK or all (*).
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/terminal.h"
#include "core/dist/status_page.h"
#include "core/dist/world.h"
#include "train/launch/launch.h"
#include "train/launch/rank_record.h"

namespace {

volatile std::sig_atomic_t asked_to_stop = 0;

void beat_for(snug::dist::StatusPage& page, int milliseconds) {
  for (int passed = 0; passed < milliseconds && asked_to_stop == 0; passed += 20) {
    page.beat();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void act(const std::string& deed, snug::dist::StatusPage& page) {
  const std::string word = deed.substr(0, deed.find(':'));
  const std::string more = word == deed ? "" : deed.substr(word.size() + 1);
  if (word == "say") std::fprintf(stderr, "%s\n", more.c_str());
  if (word == "print") std::printf("%s\n", more.c_str());
  if (word == "terminal") std::fprintf(stderr, "terminal: %s\n", ::isatty(2) == 1 ? "yes" : "no");
  if (word == "columns") std::fprintf(stderr, "columns: %d\n", snug::terminal_size(2).columns);
  if (word == "draw") std::fprintf(stderr, "\r\x1b[?7l\x1b[32m%s\x1b[0m\x1b[K", more.c_str());
  if (word == "beat") beat_for(page, std::stoi(more));
  if (word == "at") page.set_activity(more);
  if (word == "die") ::raise(std::stoi(more));
  if (word == "exit") std::_Exit(std::stoi(more));
  if (word == "user_error") throw snug::UserError("{}", more);
  if (word == "out_of_memory") throw snug::OutOfMemory(more);
  if (word == "lost") throw snug::CommunicationError(more);
  if (word == "threads") std::printf("threads %s\n", std::getenv("OMP_NUM_THREADS"));
  if (asked_to_stop != 0) throw snug::Interrupted("stopped on request");
}

void be_a_rank(const std::string& out_dir, const std::vector<std::string>& deeds) {
  std::signal(SIGINT, [](int) { asked_to_stop = 1; });
  const snug::dist::Position position = snug::dist::position_in_environment();
  snug::dist::StatusPage page(snug::launch::logs_folder(out_dir), position.rank, position.size);
  page.set_state(snug::dist::RankState::Running);
  for (const std::string& deed : deeds) {
    const std::string rank = deed.substr(0, deed.find(':'));
    if (rank == "*" || rank == std::to_string(position.rank))
      act(deed.substr(rank.size() + 1), page);
  }
  page.set_state(snug::dist::RankState::Ended);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    snug::recipe::Recipe recipe;
    recipe.out_dir = words.at(0);
    recipe.devices = words.at(1);
    if (recipe.devices != "-") recipe.given_keys.insert("devices");
    if (const char* hosts = std::getenv("PROBE_HOSTS")) recipe.hosts = hosts;
    if (const char* seconds = std::getenv("PROBE_TIMEOUT"))
      recipe.collective_timeout = std::atoi(seconds);
    if (const auto code = snug::launch::start(
            recipe, words, [] {}, [] { return 0; }))
      return *code;
    be_a_rank(recipe.out_dir, {words.begin() + 2, words.end()});
    return 0;
  } catch (const snug::Error& error) {
    const bool lost = dynamic_cast<const snug::CommunicationError*>(&error) != nullptr;
    if (!snug::launch::tell_end(error.exit_code(), error.what(), lost))
      std::fprintf(stderr, "snug: %s\n", error.what());
    return error.exit_code();
  }
}
