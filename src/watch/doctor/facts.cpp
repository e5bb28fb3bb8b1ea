// SPDX-License-Identifier: Apache-2.0
#include "watch/doctor/findings.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/program.h"
#include "base/text.h"
#include "core/dist/mpi/bundled_mpi.h"
#include "engine/cuda_device.h"

namespace snug::doctor {
namespace {

namespace fs = std::filesystem;

// The version reported by a library of this process; empty if it is not loaded. The function is
// looked up by name, so that this also compiles without CUDA.
std::optional<int> version_by(const char* function) {
  auto* call = reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, function));
  int version = 0;
  if (call == nullptr || call(&version) != 0) return std::nullopt;
  return version;
}

// The PCI bus ids of the GPUs that CUDA would use: "0000:01:00.0".
std::vector<std::string> bus_ids(int gpus) {
  using Call = int (*)(char*, int, int);
  auto* call = reinterpret_cast<Call>(::dlsym(RTLD_DEFAULT, "cudaDeviceGetPCIBusId"));
  std::vector<std::string> ids;
  for (int gpu = 0; call != nullptr && gpu < gpus; ++gpu) {
    std::array<char, 32> text{};
    if (call(text.data(), static_cast<int>(text.size()), gpu) == 0) ids.emplace_back(text.data());
  }
  return ids;
}

// This call is allowed before MPI_Init. Its first line is the library's name and version.
std::string mpi_library() {
  using Call = int (*)(char*, int*);
  auto* call = reinterpret_cast<Call>(::dlsym(RTLD_DEFAULT, "MPI_Get_library_version"));
  std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING is at most that
  int length = 0;
  if (call == nullptr || call(text.data(), &length) != 0) return {};
  const std::string whole = text.data();
  return whole.substr(0, whole.find_first_of(",\n"));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

std::string program_on_path(const std::string& name) {
  std::istringstream folders(variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path path = fs::path(folder) / name;
    if (::access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path)) return path;
  }
  return {};
}

std::string mpirun_here() {
  const fs::path bundled = dist::bundled_mpirun();
  return bundled.empty() ? program_on_path("mpirun") : bundled.string();
}

std::string first_line_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 512> line{};
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return {};
  const std::string text = line.data();
  return text.substr(0, text.find('\n'));
}

std::string system_name() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PRETTY_NAME=\"")) return line.substr(13, line.size() - 14);
  return "Linux";
}

std::string text_in(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  std::getline(in, text);
  return text;
}

// Display and 3D controllers of vendor 10de.
int nvidia_devices() {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", error))
    if (text_in(entry.path() / "vendor") == "0x10de" &&
        text_in(entry.path() / "class").starts_with("0x03"))
      ++count;
  return count;
}

// Runs create the folders that do not exist yet.
bool can_write(const fs::path& folder) {
  std::error_code error;
  const fs::path at = machine::nearest_folder(folder);
  return fs::is_directory(at, error) && ::access(at.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

Facts gather(const fs::path& out_dir) {
  namespace cuda = engine::cuda;
  Facts facts{.snug_version = kVersion,
              .torch_version = TORCH_VERSION,
              .has_cuda = cuda::is_built(),
              .visible_gpus = cuda::count(),
              .mpi_library = mpi_library(),
              .system = system_name(),
              .in_container = machine::in_container(),
              .processor = machine::processor(),
              .memory = machine::memory(),
              .gpus = machine::gpus(machine::Links::Read),
              .nvidia_devices = nvidia_devices(),
              .visible_devices = variable("CUDA_VISIBLE_DEVICES"),
              .mpirun = mpirun_here(),
              .out_dir = out_dir,
              .disk = machine::disk(out_dir),
              .can_write = can_write(out_dir)};
  if (facts.visible_gpus == 0) facts.why_no_gpu = cuda::why_none();
  if (facts.has_cuda) {
    facts.cuda_runtime = version_by("cudaRuntimeGetVersion");
    facts.nccl = version_by("ncclGetVersion");
    facts.visible_bus_ids = bus_ids(facts.visible_gpus);
  }
  if (!facts.mpirun.empty())
    facts.mpirun_version =
        first_line_of(fmt::format("{} --version 2>/dev/null", shell_quoted(facts.mpirun)));
  return facts;
}

}  // namespace snug::doctor
