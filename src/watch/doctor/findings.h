// What the doctor finds: facts are gathered first and judged afterwards, by pure functions, so that
// machines that nobody here has can be tested too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "watch/machine/machine.h"

namespace snug::doctor {

// CUDA versions are written as CUDA does: 13000 is 13.0.
struct Facts {
  // This program.
  std::string snug_version, torch_version;
  bool has_cuda = false;                     // built with CUDA
  std::optional<int> cuda_runtime, nccl;     // versions of the loaded libraries
  int visible_gpus = 0;                      // GPUs that CUDA would use
  std::vector<std::string> visible_bus_ids;  // of visible_gpus; empty if not known
  std::string why_no_gpu;                    // the reason if visible_gpus is 0
  std::string mpi_library;                   // name and version
  // This machine.
  std::string system;  // "Ubuntu 24.04.1 LTS"
  bool in_container = false;
  machine::Processor processor;
  machine::Memory memory;
  machine::Gpus gpus;
  int nvidia_devices = 0;              // on the PCI bus, with a driver or without
  std::string visible_devices;         // CUDA_VISIBLE_DEVICES; empty: not set
  std::string mpirun, mpirun_version;  // its path; empty: none
  std::filesystem::path out_dir;
  machine::Disk disk;     // of out_dir
  bool can_write = true;  // to out_dir
};

Facts gather(const std::filesystem::path& out_dir);

enum class Level { Ok, Note, Missing };
const char* name(Level level);

struct Finding {
  Level level = Level::Ok;
  std::string subject;  // "driver", "/dev/shm", …
  std::string found;
  std::string why;   // why it matters, unless the level is Ok
  std::string mend;  // a command, or advice if there is no command
};

std::vector<Finding> findings(const Facts& facts);

// Those about NVIDIA's GPUs: driver, CUDA, each GPU, the links between them, NCCL.
std::vector<Finding> gpu_findings(const Facts& facts);

// 2 if something is missing, else 0.
int exit_code(const std::vector<Finding>& findings);

// Without unicode, words replace symbols. Commands stay on one line, so that they can be copied;
// other text is wrapped at `columns` (0: not wrapped).
std::string findings_text(const Facts& facts, const std::vector<Finding>& findings,
                          const TextStyle& style, size_t columns = 0);
std::string findings_json(const Facts& facts, const std::vector<Finding>& findings);

// The oldest CUDA version that the driver must support for a build with CUDA.
inline constexpr int kWantedCuda = 13000;
// The oldest compute capability that CUDA 13 and libtorch's kernels support: 7.5, Turing.
inline constexpr int kOldestCapability = 75;

}  // namespace snug::doctor
