// One way in which processes that belong together fail, by name. Each prints what the ranks that
// are left are told; tests/dist/CMakeLists.txt says what must stand in it.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/error.h"
#include "core/dist/world.h"
#include "core/memory/guards.h"

namespace snug::dist {
namespace {

using Clock = std::chrono::steady_clock;

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One write, so that lines of several ranks stay whole.
void say(const World& world, const std::string& text) {
  const std::string line = fmt::format("rank {} says: {}\n", world.rank(), text);
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::_Exit(9);
}

// Fresh for each run of all ranks: named after the launcher, which they have in common.
std::filesystem::path status_folder() {
  return std::filesystem::temp_directory_path() / fmt::format("snug-failures-{}", ::getppid());
}

std::shared_ptr<Mesh> row(World& world) {
  MeshShape shape;
  shape[Axis::Shard] = world.size();
  return world.make_mesh(shape, at::kCPU);
}

void all_reduce(Mesh& mesh, const char* unit) {
  const memory::UnitGuard guard(memory::unit_id(unit));
  mesh.group(Axis::Shard).wait(mesh.group(Axis::Shard).all_reduce(at::zeros({1 << 20})));
}

bool is_last(const World& world) { return world.rank() == world.size() - 1; }

// It is late, but not too late.
void late() {
  const auto world = World::join({.timeout_seconds = 5, .status_folder = {}});
  const auto mesh = row(*world);
  if (is_last(*world)) sleep_for(1.5);
  all_reduce(*mesh, "layers.3");
  say(*world, "all is well");
}

// One rank does not come to a collective. The others say so, and where it is instead.
void absent() {
  const auto world = World::join({.timeout_seconds = 1.5, .status_folder = status_folder()});
  const auto mesh = row(*world);
  world->set_activity("step 12");
  all_reduce(*mesh, "embedding");
  if (is_last(*world)) {
    world->set_activity("step 13");
    sleep_for(6);
    return;
  }
  try {
    all_reduce(*mesh, "layers.3");
    say(*world, "no error");
  } catch (const CommunicationError& error) {
    say(*world, error.what());
  }
  // What comes after it fails at once, for the same reason.
  const auto begin = Clock::now();
  try {
    all_reduce(*mesh, "layers.4");
    say(*world, "no error");
  } catch (const CommunicationError&) {
    say(*world, fmt::format("failed {} after it", seconds_since(begin) < 0.5 ? "soon" : "long"));
  }
}

// An exception takes one rank out of a collective that it has begun. Leaving does not hang, and the
// others need not wait for their deadline.
void throws() {
  const auto begin = Clock::now();
  try {
    const auto world = World::join({.timeout_seconds = 60, .status_folder = status_folder()});
    const auto mesh = row(*world);
    if (!is_last(*world)) {
      try {
        all_reduce(*mesh, "layers.3");
      } catch (const CommunicationError& error) {
        say(*world, fmt::format("{}\nafter {} s", error.what(),
                                seconds_since(begin) < 20 ? "few" : "many"));
        std::_Exit(1);
      }
    }
    const Group::Ticket begun = mesh->group(Axis::Shard).all_reduce(at::zeros({1 << 20}));
    throw UserError("a file is missing");
  } catch (const UserError&) {
    std::printf("left after %s s\n", seconds_since(begin) < 20 ? "few" : "many");
    std::fflush(stdout);
  }
  // Longer than the others need to notice by themselves; mpirun would end them when this one ends.
  sleep_for(8);
}

void aborts() {
  const auto world = World::join({.timeout_seconds = 60, .status_folder = {}});
  const auto mesh = row(*world);
  if (is_last(*world)) world->abort(5);
  all_reduce(*mesh, "layers.3");
}

}  // namespace
}  // namespace snug::dist

int main(int argc, char** argv) {
  using namespace snug;
  memory::install_allocators();
  const std::string scenario = argc > 1 ? argv[1] : "";
  if (scenario == "late") dist::late();
  if (scenario == "absent") dist::absent();
  if (scenario == "throws") dist::throws();
  if (scenario == "aborts") dist::aborts();
  return 0;
}
