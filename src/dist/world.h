// This process among those that were started together by mpirun or srun. Alone otherwise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <string>

#include "dist/mesh.h"

namespace snug::dist {

// Where a process stands, as its environment says before anything is joined.
struct Position {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // on this machine
  int local_size = 1;
};

// Of mpirun (OMPI_COMM_WORLD_*) or srun (SLURM_*); a single process where neither started it.
// Throws UserError where the variables contradict each other.
Position position_in_environment();

struct WorldOptions {
  double timeout_seconds = 600;  // how long a collective may wait for a peer
  // Where each rank keeps a page that says what it is doing (rank-K.status); empty: nowhere.
  std::filesystem::path status_folder;
};

class World {
 public:
  // Joins the others (MPI_Init). Once a process. With one process nothing is joined.
  static std::shared_ptr<World> join(const WorldOptions& options);
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Position& position() const { return position_; }
  int rank() const { return position_.rank; }
  int size() const { return position_.size; }

  // The groups of all axes for tensors on `device`. Throws UserError where the shape does not have
  // as many ranks as there are processes.
  virtual std::shared_ptr<Mesh> make_mesh(const MeshShape& shape, at::Device device) = 0;
  // What this rank is doing, for its status page and for messages: "step 12".
  virtual void set_activity(const std::string& activity) = 0;
  // Ends all processes. For when this one cannot go on and the others would wait for it.
  [[noreturn]] virtual void abort(int exit_code) = 0;

 protected:
  explicit World(const Position& position) : position_(position) {}

 private:
  Position position_;
};

}  // namespace snug::dist
