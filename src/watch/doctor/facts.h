// What the doctor looks at, all of it; gathered in one place, judged in another (findings.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "watch/machine/machine.h"

namespace snug::doctor {

// A CUDA version as CUDA writes it: 13000 is 13.0.
struct Facts {
  // This program.
  std::string snug_version, torch_version;
  bool has_cuda = false;                     // built with it
  std::optional<int> cuda_runtime, nccl;     // versions of the libraries it runs with
  int visible_gpus = 0;                      // that CUDA would use
  std::vector<std::string> visible_bus_ids;  // of those; empty where CUDA cannot be asked
  std::string why_no_gpu;                    // the reason where visible_gpus is 0
  std::string mpi_library;                   // its own name and version
  // This machine.
  std::string system;  // "Ubuntu 24.04.1 LTS"
  bool in_container = false;
  machine::Processor processor;
  machine::Memory memory;
  machine::Gpus gpus;
  int nvidia_devices = 0;              // that the bus shows, with a driver or without
  std::string visible_devices;         // CUDA_VISIBLE_DEVICES; empty: not set
  std::string mpirun, mpirun_version;  // its path; empty: none
  std::filesystem::path out_dir;
  machine::Disk disk;     // of out_dir
  bool can_write = true;  // there
};

Facts gather(const std::filesystem::path& out_dir);

}  // namespace snug::doctor
