// The processes that mpirun or srun started together; otherwise just this one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/dist/mesh.h"

namespace snug::dist {

// A process's rank and size, from its environment, before MPI is initialized.
struct Position {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // on this machine
  int local_size = 1;
};

// Reads the variables of mpirun (OMPI_COMM_WORLD_*) or srun (SLURM_*); without them a single
// process. Throws UserError if they contradict each other.
Position position_in_environment();

struct WorldOptions {
  double timeout_seconds = 600;  // how long a collective may wait for a peer
  // Folder of the ranks' status pages (rank-K.status); empty: none.
  std::filesystem::path status_folder;
};

class World {
 public:
  // Joins the other processes (MPI_Init), once per process. Does nothing with a single process.
  static std::shared_ptr<World> join(const WorldOptions& options);
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Position& position() const { return position_; }
  int rank() const { return position_.rank; }
  int size() const { return position_.size; }

  // Makes the groups of all axes for tensors on `device`. Throws UserError if the shape's number of
  // ranks differs from the number of processes.
  virtual std::shared_ptr<Mesh> make_mesh(const MeshShape& shape, at::Device device) = 0;
  // Sets this rank's activity for its status page and messages: "step 12".
  virtual void set_activity(const std::string& activity) = 0;
  // Ends all processes, if this one cannot continue and the others would wait for it.
  [[noreturn]] virtual void abort(int exit_code) = 0;

 protected:
  explicit World(const Position& position) : position_(position) {}

 private:
  Position position_;
};

// The launcher that started this process.

// "mpirun", "srun" or "mpiexec"; empty for a single process.
std::string started_by();

// Whether torchrun started several processes, which MPI cannot join.
bool is_started_by_torchrun();

}  // namespace snug::dist
