// The world of a single process, the world over MPI, and the choice between them.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/world.h"

#include <cstdlib>

#include <algorithm>

#include "base/error.h"
#include "core/dist/mpi/mpi_group.h"
#include "core/dist/nccl_group.h"
#include "core/dist/position.h"
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

}  // namespace snug::dist
