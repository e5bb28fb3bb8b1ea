// Machines that nobody here has, and what is said of them.
// SPDX-License-Identifier: Apache-2.0
#include "watch/doctor/findings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/bytes.h"
#include "report/text_width.h"

namespace snug::doctor {
namespace {

// A server of two GPUs on which all is well.
Facts good_server() {
  Facts f;
  f.snug_version = "0.1.0";
  f.torch_version = "2.11.0";
  f.has_cuda = true;
  f.cuda_runtime = 13000;
  f.nccl = 22809;
  f.visible_gpus = 2;
  f.mpi_library = "Open MPI v4.1.6";
  f.system = "Ubuntu 24.04.1 LTS";
  f.processor = {.name = "AMD EPYC 9354", .cores = 64, .features = {"avx2", "fma", "avx512f"}};
  f.memory = {.total = 512 * kGiB, .available = 480 * kGiB, .shared_memory_size = 256 * kGiB};
  f.gpus.has_library = true;
  f.gpus.driver_version = "580.65.06";
  f.gpus.cuda_version = "13.0";
  for (int i = 0; i < 2; ++i) {
    machine::Gpu gpu;
    gpu.index = i;
    gpu.name = "NVIDIA A100-SXM4-40GB";
    gpu.memory_total = 40 * kGiB;
    gpu.memory_used = 512 * kMiB;
    gpu.links = {{.other = 1 - i, .kind = "NVLink", .lanes = 12}};
    f.gpus.gpus.push_back(gpu);
  }
  f.nvidia_devices = 2;
  f.mpirun = "/usr/bin/mpirun";
  f.mpirun_version = "mpirun (Open MPI) 4.1.6";
  f.out_dir = "out";
  f.disk = {.size = 1000 * kGiB, .free = 500 * kGiB, .kind = "ext4"};
  return f;
}

Facts laptop() {
  Facts f = good_server();
  f.has_cuda = false;
  f.cuda_runtime.reset();
  f.nccl.reset();
  f.visible_gpus = 0;
  f.why_no_gpu = "this build has no CUDA";
  f.gpus = {.has_library = false, .why_not = "there is no NVIDIA driver here"};
  f.nvidia_devices = 0;
  f.memory.page_locked_limit = 8 * kMiB;
  return f;
}

// The finding on a subject; there must be one.
Finding find(const Facts& facts, const std::string& subject) {
  for (const Finding& finding : findings(facts))
    if (finding.subject == subject) return finding;
  ADD_FAILURE() << "nothing of " << subject;
  return {};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// A finding that is not well says why it matters and what mends it.
void expect_whole(const Facts& facts) {
  for (const Finding& finding : findings(facts)) {
    EXPECT_FALSE(finding.subject.empty());
    EXPECT_FALSE(finding.found.empty()) << finding.subject;
    if (finding.level == Level::Ok) continue;
    EXPECT_FALSE(finding.why.empty()) << finding.subject;
    EXPECT_FALSE(finding.mend.empty()) << finding.subject;
  }
}

TEST(Findings, AGoodServerHasNothingToNote) {
  for (const Finding& finding : findings(good_server()))
    EXPECT_EQ(finding.level, Level::Ok) << finding.subject << ": " << finding.found;
  EXPECT_EQ(exit_code(findings(good_server())), 0);
  EXPECT_EQ(find(good_server(), "NCCL").found, "2.28.9");
  EXPECT_TRUE(has(find(good_server(), "between GPUs").found, "NVLink, 12 links"));
}

TEST(Findings, ALaptopWithoutAGpuLacksNothing) {
  for (const Finding& finding : findings(laptop()))
    EXPECT_EQ(finding.level, finding.subject == "CUDA" ? Level::Note : Level::Ok)
        << finding.subject << ": " << finding.found;
}

TEST(Findings, AnOldDriver) {
  Facts f = good_server();
  f.gpus.driver_version = "550.54.15";
  f.gpus.cuda_version = "12.4";
  const Finding finding = find(f, "driver");
  EXPECT_EQ(finding.level, Level::Missing);
  EXPECT_TRUE(has(finding.found, "550.54.15") && has(finding.found, "12.4"));
  EXPECT_TRUE(has(finding.why, "580"));
  EXPECT_TRUE(has(finding.mend, "nvidia-driver-580-server"));
  EXPECT_EQ(exit_code(findings(f)), 2);
  f.in_container = true;
  EXPECT_TRUE(has(find(f, "driver").mend, "on the host"));
  // Newer minor versions of the same major one do, as CUDA promises.
  f.gpus.cuda_version = "13.0";
  f.cuda_runtime = 13020;
  EXPECT_EQ(find(f, "driver").level, Level::Ok);
  expect_whole(f);
}

TEST(Findings, AGpuWithoutADriver) {
  Facts f = laptop();
  f.has_cuda = true;
  f.cuda_runtime = 13000;
  f.nccl = 22809;
  f.nvidia_devices = 1;
  EXPECT_EQ(find(f, "driver").level, Level::Missing);
  EXPECT_TRUE(has(find(f, "driver").found, "1 NVIDIA GPU on the bus"));
  f.in_container = true;
  EXPECT_TRUE(has(find(f, "driver").mend, "--gpus all"));
  // For a program that is not built for it nothing is missing.
  f.has_cuda = false;
  EXPECT_EQ(find(f, "driver").level, Level::Note);
  expect_whole(f);
}

TEST(Findings, ADriverThatWasReplacedUnderARunningKernel) {
  Facts f = good_server();
  f.gpus = {.has_library = true, .why_not = "Driver/library version mismatch (NVML 18)"};
  f.visible_gpus = 0;
  const Finding finding = find(f, "driver");
  EXPECT_EQ(finding.level, Level::Missing);
  EXPECT_TRUE(has(finding.found, "mismatch"));
  EXPECT_TRUE(has(finding.mend, "reboot"));
  expect_whole(f);
}

TEST(Findings, AGpuThatThisBuildDoesNotUse) {
  Facts f = good_server();
  f.has_cuda = false;
  const Finding finding = find(f, "CUDA");
  EXPECT_EQ(finding.level, Level::Note);
  EXPECT_TRUE(has(finding.mend, "scripts/build --cuda"));
  EXPECT_EQ(exit_code(findings(f)), 0);
}

TEST(Findings, GpusThatAreHidden) {
  Facts f = good_server();
  f.visible_gpus = 0;
  f.visible_devices = "7";
  f.why_no_gpu = "the NVIDIA driver reports none";
  const Finding finding = find(f, "CUDA");
  EXPECT_EQ(finding.level, Level::Missing);
  EXPECT_TRUE(has(finding.found, "13.0, no GPU: the NVIDIA driver reports none")) << finding.found;
  EXPECT_TRUE(has(finding.mend, "CUDA_VISIBLE_DEVICES"));
}

// Nothing is missing where there is nothing to drive; the line about CUDA says why it has no GPU.
TEST(Findings, AMachineWithoutAGpuUnderAProgramWithCuda) {
  Facts f = laptop();
  f.has_cuda = true;
  f.cuda_runtime = 13000;
  f.nccl = 22809;
  f.why_no_gpu = "there is no NVIDIA driver here";
  EXPECT_EQ(find(f, "CUDA").found, "13.0, no GPU: there is no NVIDIA driver here");
  EXPECT_EQ(find(f, "CUDA").level, Level::Ok);
  EXPECT_EQ(exit_code(findings(f)), 0);
}

// The driver's line has what to do; CUDA's has the reason alone.
TEST(Findings, AnOldDriverIsWhyCudaHasNoGpu) {
  Facts f = good_server();
  f.gpus.driver_version = "550.54.15";
  f.gpus.cuda_version = "12.4";
  f.visible_gpus = 0;
  f.why_no_gpu = "the NVIDIA driver supports CUDA up to 12.4, and this program needs 13.0";
  EXPECT_EQ(find(f, "driver").level, Level::Missing);
  EXPECT_EQ(find(f, "CUDA").found, "13.0, no GPU: " + f.why_no_gpu);
  EXPECT_TRUE(find(f, "CUDA").mend.empty()) << find(f, "CUDA").mend;
  expect_whole(f);
}

TEST(Findings, OneOfTwoGpusIsHidden) {
  Facts f = good_server();
  f.gpus.gpus[0].bus_id = "00000000:0a:00.0";
  f.gpus.gpus[1].bus_id = "00000000:41:00.0";
  f.visible_gpus = 1;
  f.visible_devices = "1";
  f.visible_bus_ids = {"0000:41:00.0"};
  EXPECT_TRUE(has(find(f, "GPU 0").found, "hidden")) << find(f, "GPU 0").found;
  EXPECT_FALSE(has(find(f, "GPU 1").found, "hidden")) << find(f, "GPU 1").found;
  EXPECT_TRUE(has(find(f, "CUDA").found, "1 GPU visible (CUDA_VISIBLE_DEVICES=1)"));
  // Another's memory on a GPU that is not used is nobody's concern.
  f.gpus.gpus[0].memory_used = 20 * kGiB;
  EXPECT_EQ(find(f, "GPU 0").level, Level::Ok);
  f.visible_gpus = 0;
  f.visible_bus_ids.clear();
  EXPECT_TRUE(has(find(f, "GPU 1").found, "hidden"));
  f.has_cuda = false;
  EXPECT_TRUE(has(find(f, "GPU 1").found, "not used by this build"));
  EXPECT_TRUE(has(find(f, "NCCL").found, "build with CUDA"));
}

// CUDA 13 builds nothing for Volta, whatever driver it has.
TEST(Findings, AGpuThatCudaHasLeftBehind) {
  Facts f = good_server();
  for (machine::Gpu& gpu : f.gpus.gpus) {
    gpu.name = "Tesla V100-SXM2-32GB";
    gpu.compute_capability = 70;
  }
  const Finding finding = find(f, "GPU 1");
  EXPECT_EQ(finding.level, Level::Missing);
  EXPECT_TRUE(has(finding.found, "V100") && has(finding.found, "compute capability 7.0"))
      << finding.found;
  EXPECT_TRUE(has(finding.why, "7.5")) << finding.why;
  EXPECT_TRUE(has(finding.mend, "--accelerator cpu")) << finding.mend;
  EXPECT_EQ(exit_code(findings(f)), 2);
  expect_whole(f);
  // Another GPU of the same machine may do.
  f.gpus.gpus[1].compute_capability = 75;
  f.gpus.gpus[1].uuid = "GPU-1f2e";
  EXPECT_EQ(find(f, "GPU 1").level, Level::Ok);
  EXPECT_TRUE(has(find(f, "GPU 0").mend, "CUDA_VISIBLE_DEVICES=GPU-1f2e")) << find(f, "GPU 0").mend;
  // One that is hidden harms nobody.
  f.gpus.gpus[0].bus_id = "00000000:0a:00.0";
  f.gpus.gpus[1].bus_id = "00000000:41:00.0";
  f.visible_gpus = 1;
  f.visible_bus_ids = {"0000:41:00.0"};
  EXPECT_EQ(find(f, "GPU 0").level, Level::Ok);
}

TEST(Findings, AnOldGpuIsNoReasonToBuildWithCuda) {
  Facts f = good_server();
  f.has_cuda = false;
  for (machine::Gpu& gpu : f.gpus.gpus) gpu.compute_capability = 70;
  EXPECT_EQ(find(f, "CUDA").why, "runs use the processor, as they must here");
  f.gpus.gpus[0].compute_capability = 80;
  EXPECT_EQ(find(f, "CUDA").mend, "scripts/build --cuda");
}

TEST(Findings, AGpuThatOthersUse) {
  Facts f = good_server();
  f.gpus.gpus[1].memory_used = 20 * kGiB;
  EXPECT_EQ(find(f, "GPU 0").level, Level::Ok);
  EXPECT_EQ(find(f, "GPU 1").level, Level::Note);
  EXPECT_TRUE(has(find(f, "GPU 1").mend, "--memory_budget 19456MiB")) << find(f, "GPU 1").mend;
  f.gpus.gpus[1].mig = true;
  EXPECT_TRUE(has(find(f, "GPU 1").found, "MIG"));
  expect_whole(f);
}

TEST(Findings, GpusJoinedByThePciBus) {
  Facts f = good_server();
  for (machine::Gpu& gpu : f.gpus.gpus) {
    gpu.links[0].kind = "host bridge";
    gpu.links[0].lanes = 0;
  }
  const Finding finding = find(f, "between GPUs");
  EXPECT_EQ(finding.level, Level::Note);
  EXPECT_EQ(finding.found, "host bridge");
  EXPECT_EQ(exit_code(findings(f)), 0);
  expect_whole(f);
}

TEST(Findings, TinySharedMemory) {
  Facts f = good_server();
  f.memory.shared_memory_size = 64 * kMiB;
  f.in_container = true;
  EXPECT_EQ(find(f, "/dev/shm").level, Level::Missing) << "two GPUs exchange data there";
  EXPECT_TRUE(has(find(f, "/dev/shm").mend, "docker run --ipc=host"));
  f.gpus.gpus.pop_back();
  EXPECT_EQ(find(f, "/dev/shm").level, Level::Note);
  f.in_container = false;
  EXPECT_TRUE(has(find(f, "/dev/shm").mend, "mount"));
  f.memory.shared_memory_size.reset();
  EXPECT_TRUE(has(find(f, "/dev/shm").found, "does not exist"));
  expect_whole(f);
}

TEST(Findings, NoMpirun) {
  Facts f = good_server();
  f.mpirun.clear();
  EXPECT_EQ(find(f, "mpirun").level, Level::Missing);
  EXPECT_EQ(find(f, "mpirun").mend, "sudo apt-get install openmpi-bin");
  f = laptop();
  f.mpirun.clear();
  EXPECT_EQ(find(f, "mpirun").level, Level::Note);
  EXPECT_EQ(exit_code(findings(f)), 0);
  expect_whole(f);
}

TEST(Findings, LittleMemoryMayBeLocked) {
  Facts f = good_server();
  f.memory.page_locked_limit = 64 * kKiB;
  EXPECT_EQ(find(f, "page-locked").level, Level::Note);
  EXPECT_TRUE(has(find(f, "page-locked").mend, "limits.d"));
  f.in_container = true;
  EXPECT_TRUE(has(find(f, "page-locked").mend, "--ulimit memlock=-1"));
  EXPECT_EQ(find(laptop(), "page-locked").level, Level::Ok) << "nobody there would lock any";
  expect_whole(f);
}

TEST(Findings, Disks) {
  Facts f = good_server();
  f.disk.free = 5 * kGiB;
  EXPECT_EQ(find(f, "disk").level, Level::Note);
  f.disk.free = 0;
  EXPECT_EQ(find(f, "disk").level, Level::Missing);
  expect_whole(f);
  f = good_server();
  f.can_write = false;
  EXPECT_EQ(find(f, "disk").level, Level::Missing);
  f = good_server();
  f.disk.kind = "tmpfs";
  EXPECT_EQ(find(f, "disk").level, Level::Note);
  expect_whole(f);
}

TEST(Findings, AControlGroupsLimit) {
  Facts f = laptop();
  f.memory.limit = 8 * kGiB;
  f.memory.in_use = 3 * kGiB;
  const Finding finding = find(f, "control group");
  EXPECT_EQ(finding.level, Level::Note);
  EXPECT_TRUE(has(finding.mend, "--memory_budget 4608MiB")) << "nine tenths of what is left";
  f.memory.limit = f.memory.total;
  EXPECT_EQ(find(f, "control group").level, Level::Ok);
  expect_whole(f);
}

TEST(Findings, ProcessorsWithoutWhatKernelsWant) {
  Facts f = laptop();
  f.processor.features = {"fma"};
  EXPECT_EQ(find(f, "processor").level, Level::Note);
  f.processor.features = {"asimd"};
  EXPECT_EQ(find(f, "processor").level, Level::Ok);
  f.memory.available = kGiB;
  EXPECT_EQ(find(f, "memory").level, Level::Note);
  expect_whole(f);
}

TEST(Findings, TextInWordsAndInSymbols) {
  Facts f = laptop();
  f.mpirun.clear();
  const std::string words = findings_text(f, findings(f), {.unicode = false, .colours = false});
  EXPECT_TRUE(has(words, "note    mpirun"));
  EXPECT_TRUE(has(words, "-> sudo apt-get install openmpi-bin"));
  EXPECT_TRUE(has(words, "Nothing is missing, 2 notes."));
  EXPECT_TRUE(std::ranges::all_of(words, [](char c) { return c > 0 && c != '\x1b'; }));
  const std::string symbols = findings_text(f, findings(f), {.unicode = true, .colours = true});
  EXPECT_TRUE(has(symbols, "\x1b[33m!\x1b[0m mpirun"));
  EXPECT_TRUE(has(symbols, "→ sudo apt-get"));
}

// A terminal would part words anywhere; commands stay in one piece.
TEST(Findings, NoLineButACommandIsWiderThanTheTerminal) {
  Facts f = good_server();
  f.mpirun.clear();
  f.memory.shared_memory_size = 64 * kMiB;
  f.processor.features = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "amx_tile"};
  for (const size_t columns : {1U, 40U, 80U, 200U}) {
    for (const bool unicode : {false, true}) {
      const std::string text =
          findings_text(f, findings(f), {.unicode = unicode, .colours = false}, columns);
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        if (has(line, "-> ") || has(line, "→ ")) continue;
        EXPECT_LE(report::display_width(line), std::max<size_t>(columns, 42)) << line;
      }
      EXPECT_TRUE(has(text, "-> sudo apt-get install openmpi-bin\n") ||
                  has(text, "→ sudo apt-get install openmpi-bin\n"))
          << text;
    }
  }
}

TEST(Findings, Json) {
  Facts f = good_server();
  f.mpirun.clear();
  const nlohmann::json json = nlohmann::json::parse(findings_json(f, findings(f)));
  EXPECT_EQ(json["missing"], 1);
  EXPECT_EQ(json["cuda"], true);
  const auto& list = json["findings"];
  const auto found = std::ranges::find_if(
      list, [](const nlohmann::json& one) { return one["subject"] == "mpirun"; });
  ASSERT_NE(found, list.end());
  EXPECT_EQ((*found)["level"], "missing");
  EXPECT_EQ((*found)["mend"], "sudo apt-get install openmpi-bin");
}

// This machine, whatever it is, has an answer to every fact.
TEST(Findings, OfThisMachine) {
  const Facts f = gather("out");
  EXPECT_FALSE(f.snug_version.empty());
  EXPECT_EQ(f.torch_version.substr(0, 2), "2.");
  EXPECT_GT(f.memory.total, 0);
  EXPECT_GT(f.disk.size, 0);
  expect_whole(f);
}

}  // namespace
}  // namespace snug::doctor
