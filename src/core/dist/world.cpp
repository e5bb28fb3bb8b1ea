// The world of a single process, the world over MPI, and the choice between them.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/world.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/dist/mpi/mpi_group.h"
#include "core/dist/nccl_group.h"
#include "core/dist/status_page.h"

namespace snug::dist {
namespace {

void check_shape(const MeshShape& shape, int size) {
  if (shape.num_ranks() == size) return;
  const std::string axes = recipe::mesh_text(shape);
  throw UserError("mesh {} has {} ranks, but {} process{} been started; they must be the same",
                  axes.empty() ? "of one" : axes, shape.num_ranks(), size,
                  size == 1 ? " has" : "es have");
}

class SingleWorld : public World {
 public:
  explicit SingleWorld(const WorldOptions& options)
      : World(Position{}), page_(options.status_folder, 0, 1) {
    page_.set_state(RankState::Running);
  }
  ~SingleWorld() override {
    page_.set_state(std::uncaught_exceptions() == 0 ? RankState::Ended : RankState::Failed);
  }

  std::shared_ptr<Mesh> make_mesh(const MeshShape& shape, at::Device /*device*/) override {
    check_shape(shape, 1);
    return single_mesh();
  }
  void set_activity(const std::string& activity) override { page_.set_activity(activity); }
  void abort(int exit_code) override { std::_Exit(exit_code); }

 private:
  StatusPage page_;
};

class MpiWorld : public World {
 public:
  MpiWorld(const Position& position, const WorldOptions& options)
      : World(position),
        options_(options),
        thread_(std::make_shared<MpiThread>(position, options)) {}

  std::shared_ptr<Mesh> make_mesh(const MeshShape& shape, at::Device device) override {
    check_shape(shape, size());
    if (device.is_meta()) return planned_mesh(shape, rank());
    auto mesh =
        dist::make_mesh(shape, rank(), [&](const std::string& name, const std::vector<int>& ranks) {
          auto group = make_mpi_group(name, ranks);
          return device.is_cuda() && ranks.size() > 1
                     ? make_nccl_group(std::move(group), device, options_.timeout_seconds)
                     : std::move(group);
        });
    // All ranks meet here, so that status pages are this run's from here on.
    mesh->world().barrier();
    return mesh;
  }

  void set_activity(const std::string& activity) override {
    thread_->page().set_activity(activity);
  }

  void abort(int exit_code) override { thread_->abort(exit_code); }

 private:
  std::unique_ptr<Group> make_mpi_group(const std::string& name, const std::vector<int>& ranks) {
    const auto own = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    const int channel = next_channel_++ % MpiGroup::kNumChannels;
    return std::make_unique<MpiGroup>(name, Members{ranks, static_cast<int>(own)}, channel,
                                      thread_);
  }

  WorldOptions options_;
  std::shared_ptr<MpiThread> thread_;
  int next_channel_ = 0;
};

// The variable `size` shows whether this launcher was used.
struct Launcher {
  const char* started_by;
  const char* size;
  const char* rank;
  const char* local_rank;
  const char* local_size;  // null: found from Slurm's list
};

// A batch script also has SLURM_NTASKS without srun; only srun sets the step's variables.
constexpr Launcher kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", nullptr},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

int number_in(const char* variable, const char* text) {
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size() || number < 0) {
    throw UserError("environment: {}={} is not a number of processes", variable, text);
  }
  return number;
}

int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : number_in(variable, text);
}

// "2(x3),1" is 2, 2, 2, 1: how many tasks of the step each machine has.
int slurm_tasks_here(int otherwise) {
  const char* list = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  if (list == nullptr) return otherwise;
  int machines_before = number_of("SLURM_NODEID", 0);
  std::string_view rest(list);
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    int tasks = 0;
    int machines = 1;
    std::from_chars(entry.data(), entry.data() + entry.size(), tasks);
    if (const size_t times = entry.find("(x"); times != std::string_view::npos) {
      std::from_chars(entry.data() + times + 2, entry.data() + entry.size(), machines);
    }
    if (machines_before < machines) return tasks > 0 ? tasks : otherwise;
    machines_before -= machines;
  }
  return otherwise;
}

const Launcher* launcher_in_environment() {
  for (const Launcher& launcher : kLaunchers) {
    if (std::getenv(launcher.size) != nullptr && std::getenv(launcher.rank) != nullptr) {
      return &launcher;
    }
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<World> World::join(const WorldOptions& options) {
  const Position position = position_in_environment();
  if (position.size > 1) return std::make_shared<MpiWorld>(position, options);
  if (is_started_by_torchrun()) {
    throw UserError(
        "torchrun started this process as rank {} of {}, and MPI cannot join processes that it has "
        "not started; start with mpirun or srun",
        std::getenv("RANK"), std::getenv("WORLD_SIZE"));
  }
  return std::make_shared<SingleWorld>(options);
}

// Each launcher sets its own environment variables for rank and size.

std::string started_by() {
  const Launcher* launcher = launcher_in_environment();
  return launcher == nullptr ? "" : launcher->started_by;
}

bool is_started_by_torchrun() {
  return launcher_in_environment() == nullptr && std::getenv("RANK") != nullptr &&
         std::getenv("MASTER_ADDR") != nullptr && number_of("WORLD_SIZE", 1) > 1;
}

Position position_in_environment() {
  Position position;
  const Launcher* launcher = launcher_in_environment();
  if (launcher == nullptr) return position;
  position.size = number_of(launcher->size, 1);
  position.rank = number_of(launcher->rank, 0);
  position.local_rank = number_of(launcher->local_rank, 0);
  position.local_size = launcher->local_size == nullptr
                            ? slurm_tasks_here(position.local_rank + 1)
                            : number_of(launcher->local_size, position.local_rank + 1);
  if (position.size < 1 || position.rank >= position.size) {
    throw UserError("environment: {}={} and {}={} contradict each other; start through {} again",
                    launcher->rank, position.rank, launcher->size, position.size,
                    launcher->started_by);
  }
  if (position.local_rank >= position.local_size || position.local_size > position.size) {
    throw UserError(
        "environment: process {} of {} on this machine, of {} in all, is impossible; start through "
        "{} again",
        position.local_rank, position.local_size, position.size, launcher->started_by);
  }
  return position;
}

}  // namespace snug::dist
