// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/device_profile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "recipe/gpus.h"
#include "support/temp_folder.h"

namespace snug::plan {
namespace {

// This machine's rates are remembered in a folder of the test's own.
class OwnCache : public ::testing::Environment {
 public:
  void SetUp() override { ::setenv("SNUG_CACHE", folder_.path().c_str(), 1); }

 private:
  test::TempFolder folder_;
};
const ::testing::Environment* const kOwnCache = ::testing::AddGlobalTestEnvironment(new OwnCache);

std::string error_of(const std::string& name) {
  try {
    find_profile(name, 0);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceProfile, NamesAreFoundHoweverTheyAreWritten) {
  const DeviceProfile profile = find_profile("a100-80", 0);
  EXPECT_EQ(profile.kind, at::kCUDA);
  EXPECT_GT(profile.usable_bytes(), 78 * kGiB);
  EXPECT_LT(profile.usable_bytes(), 80 * kGiB);
  EXPECT_EQ(find_profile("A100_80", 0).name, profile.name);
  EXPECT_EQ(find_profile("RTX 4090", 0).name, "rtx-4090");
  for (const std::string& name : profile_names())
    EXPECT_GT(find_profile(name, 0).flops(at::kBFloat16, "high"), 1e9) << name;
}

TEST(DeviceProfile, TensorCoresOfBfloat16CameWithAmpere) {
  for (const std::string name : {"v100-16", "v100-32", "t4"}) {
    const DeviceProfile profile = find_profile(name, 0);
    const auto flops = [&](at::ScalarType type) { return profile.flops(type, "high"); };
    EXPECT_DOUBLE_EQ(flops(at::kBFloat16), flops(at::kFloat)) << name;
    EXPECT_GT(flops(at::kHalf), 5 * flops(at::kBFloat16)) << name;
  }
  const DeviceProfile newer = find_profile("a100-80", 0);
  EXPECT_DOUBLE_EQ(newer.flops(at::kBFloat16, "high"), newer.flops(at::kHalf, "high"));
}

// Data sheets: A100 156 TFLOP/s with TF32 and 19.5 without, H100 SXM 494 and 67. GeForce cards and
// GPUs before Ampere gain nothing, nor do CPUs.
TEST(DeviceProfile, Float32ProductsHaveTheRateOfTheirPrecision) {
  const auto flops = [](const char* name, const char* precision) {
    return find_profile(name, 0).flops(at::kFloat, precision);
  };
  EXPECT_DOUBLE_EQ(flops("a100-80", "high"), 156e12);
  EXPECT_DOUBLE_EQ(flops("a100-80", "medium"), 156e12);
  EXPECT_DOUBLE_EQ(flops("a100-80", "highest"), 19.5e12);
  EXPECT_DOUBLE_EQ(flops("h100-80", "high"), 494.5e12);
  EXPECT_DOUBLE_EQ(flops("h100-80", "highest"), 67e12);
  for (const char* name : {"v100-32", "t4", "rtx-3090", "cpu"}) {
    const DeviceProfile profile = find_profile(name, 0);
    EXPECT_DOUBLE_EQ(profile.flops(at::kFloat, "high"), profile.flops(at::kFloat, "highest"))
        << name;
  }
}

TEST(DeviceProfile, AMistypedNameIsAnsweredWithTheNearest) {
  EXPECT_NE(error_of("rtx4080").find("did you mean rtx-4090?"), std::string::npos);
  EXPECT_NE(error_of("a100").find("did you mean a100-80 or a100-40?"), std::string::npos)
      << error_of("a100");
  EXPECT_EQ(error_of("abacus").find("did you mean"), std::string::npos);
}

TEST(DeviceProfile, AGpuThatRunsIsFoundByItsName) {
  EXPECT_EQ(profile_of_gpu("NVIDIA GeForce RTX 3090").name, "rtx-3090");
  EXPECT_EQ(profile_of_gpu("NVIDIA H100 PCIe").name, "h100-pcie-80");
  EXPECT_FALSE(profile_of_gpu("Tesla T4").flash_attention);
  EXPECT_EQ(profile_of_gpu("A card of tomorrow").name, "a100-80");
}

// A longer name after a shorter one that it contains would never be found.
TEST(DeviceProfile, EveryGpuOfTheTableIsReached) {
  std::set<std::string> names;
  for (const recipe::Gpu& gpu : recipe::gpus()) {
    const recipe::Gpu* found = recipe::gpu_by_cuda_name("NVIDIA " + std::string(gpu.cuda_name));
    ASSERT_NE(found, nullptr) << gpu.cuda_name;
    EXPECT_EQ(found->cuda_name, gpu.cuda_name);
    EXPECT_EQ(found->tflops_16bit, gpu.tflops_16bit) << gpu.cuda_name;
    if (!gpu.profile.empty()) {
      EXPECT_TRUE(names.emplace(gpu.profile).second) << gpu.profile << " twice";
    }
    EXPECT_GT(gpu.memory_gib, 10) << gpu.cuda_name;
    EXPECT_GT(gpu.gb_per_second, gpu.link_gb_per_second) << gpu.cuda_name;
    EXPECT_GT(gpu.tflops_16bit, gpu.tflops_32bit) << gpu.cuda_name;
  }
}

TEST(DeviceProfile, ABudgetMakesItSmaller) {
  const DeviceProfile whole = find_profile("a100-80", 0),
                      small = find_profile("a100-80", 10 * kGiB);
  EXPECT_EQ(small.memory_bytes, 10 * kGiB);
  EXPECT_EQ(whole.usable_bytes() - small.usable_bytes(), whole.memory_bytes - 10 * kGiB);
  EXPECT_THROW(find_profile("a100-80", kMiB), UserError);
  EXPECT_EQ(find_profile("cpu", 3 * kGiB).usable_bytes(), 3 * kGiB);
}

TEST(DeviceProfile, OnesOwnComesFromAFile) {
  const test::TempFolder folder;
  const std::string path = (folder / "mine.yaml").string();
  write_file_atomically(path, "name: mine\nmemory: 24GiB\ncontext: 1GiB\ntflops_16bit: 10\n");
  const DeviceProfile profile = find_profile(path, 0);
  EXPECT_EQ(profile.name, "mine");
  EXPECT_EQ(profile.usable_bytes(), 23 * kGiB);
  EXPECT_DOUBLE_EQ(profile.flops(at::kBFloat16, "high"), 10e12);
  EXPECT_DOUBLE_EQ(profile.flops(at::kFloat, "high"), profile.flops(at::kFloat, "highest"));
  write_file_atomically(path, "memory: 24GiB\ntflops_32bit: 20\ntflops_tf32: 80\n");
  EXPECT_DOUBLE_EQ(find_profile(path, 0).flops(at::kFloat, "high"), 80e12);
  EXPECT_DOUBLE_EQ(find_profile(path, 0).flops(at::kFloat, "highest"), 20e12);
  // Without a word on it devices talk over the link to the host.
  EXPECT_DOUBLE_EQ(profile.intra_node_bytes_per_second, profile.link_bytes_per_second);
  write_file_atomically(path,
                        "memory: 24GiB\nintra_node_gb_per_second: 100\ninter_node_gb_per_second: "
                        "10\nintra_node_microseconds: 4\ninter_node_microseconds: 20\n"
                        "collective_efficiency: 0.5\nnetwork_efficiency: 0.25\n");
  const Network network = network_of(find_profile(path, 0), 4);
  EXPECT_DOUBLE_EQ(network.bytes_per_second_within, 50e9);
  EXPECT_DOUBLE_EQ(network.bytes_per_second_between, 2.5e9);
  EXPECT_DOUBLE_EQ(network.latency_within, 4e-6);
  EXPECT_DOUBLE_EQ(network.latency_between, 20e-6);
}

TEST(DeviceProfile, OnesOwnMaySayWhatItsDiskDoes) {
  const test::TempFolder folder;
  const std::string path = (folder / "mine.yaml").string();
  write_file_atomically(path, "memory: 24GiB\n");
  const DeviceProfile silent = find_profile(path, 0);
  EXPECT_EQ(silent.disk_read_bytes_per_second,
            find_profile("a100-80", 0).disk_read_bytes_per_second);
  write_file_atomically(path,
                        "memory: 24GiB\ndisk_read_gb_per_second: 2\ndisk_write_gb_per_second: 1\n");
  const DeviceProfile profile = find_profile(path, 0);
  EXPECT_DOUBLE_EQ(profile.disk_read_bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(profile.disk_write_bytes_per_second, 1e9);
}

// An unknown machine gets assumed values, apart from what is known.
TEST(DeviceProfile, AnUnknownHostHasWhatIsUsual) {
  recipe::Recipe recipe;
  const auto assumed = [&](const char* device, int64_t budget) {
    return with_host(find_profile(device, budget), recipe, Machine::Elsewhere).assumed_host_bytes;
  };
  EXPECT_EQ(assumed("a100-80", 0), 4 * find_profile("a100-80", 0).memory_bytes);
  EXPECT_EQ(assumed("a100-80", 8 * kGiB), assumed("a100-80", 0)) << "the same machine";
  EXPECT_EQ(assumed("t4", 0), 64 * kGiB) << "at least";
  EXPECT_EQ(assumed("cpu", 0), 0);
  recipe.devices = "8";
  EXPECT_EQ(assumed("a100-80", 0), 32 * find_profile("a100-80", 0).memory_bytes);
  recipe.host_memory = "3GiB";
  EXPECT_EQ(assumed("a100-80", 0), 0);
}

// What the recipe says of the host counts everywhere; what this machine has, where it is meant.
TEST(DeviceProfile, TheHostIsTheRecipesOrThisMachines) {
  const test::TempFolder folder;
  const DeviceProfile gpu = find_profile("a100-80", 0);
  recipe::Recipe recipe;
  EXPECT_EQ(with_host(gpu, recipe, Machine::Elsewhere).host_bytes, 0);
  EXPECT_GT(with_host(gpu, recipe, Machine::Here).host_bytes, kGiB / 2);
  recipe.host_memory = "3GiB";
  EXPECT_EQ(with_host(gpu, recipe, Machine::Elsewhere).host_bytes, 3 * kGiB);
  EXPECT_EQ(with_host(gpu, recipe, Machine::Here).host_bytes, 3 * kGiB);
  recipe.fit_disk = folder.path().string();
  EXPECT_EQ(with_host(gpu, recipe, Machine::Here).disk_bytes, 0);  // nobody asks for a fit
  recipe.fit = true;
  EXPECT_GT(with_host(gpu, recipe, Machine::Here).disk_bytes, 0);
  EXPECT_EQ(with_host(gpu, recipe, Machine::Elsewhere).disk_bytes, 0);
  recipe.fit = false;
  recipe.optimizer_offload = "disk:" + recipe.fit_disk;
  const DeviceProfile here = with_host(gpu, recipe, Machine::Here);
  EXPECT_GT(here.disk_bytes, 0);
  EXPECT_NE(here.disk_read_bytes_per_second, gpu.disk_read_bytes_per_second);
  recipe.optimizer_offload = "disk:/no such folder";
  EXPECT_EQ(with_host(gpu, recipe, Machine::Here).disk_read_bytes_per_second,
            gpu.disk_read_bytes_per_second);
}

// Each GPU has a process of its own; processes on a cpu share it.
TEST(DeviceProfile, ProcessesShareACpu) {
  const DeviceProfile gpu = find_profile("a100-80", 0), cpu = find_profile("cpu", 0);
  EXPECT_DOUBLE_EQ(share_of(gpu, 4).flops_16bit, gpu.flops_16bit);
  EXPECT_DOUBLE_EQ(share_of(cpu, 4).flops_16bit, cpu.flops_16bit / 4);
  EXPECT_DOUBLE_EQ(share_of(cpu, 1).bytes_per_second, cpu.bytes_per_second);
  for (const std::string& name : profile_names()) {
    const DeviceProfile profile = find_profile(name, 0);
    EXPECT_GT(profile.intra_node_bytes_per_second, 1e9) << name;
    EXPECT_GT(profile.inter_node_bytes_per_second, 1e9) << name;
    EXPECT_GT(profile.inter_node_latency, profile.intra_node_latency) << name;
  }
}

TEST(DeviceProfile, FaultsSayWhatAndWhere) {
  EXPECT_NE(error_of("a100-90").find("a100-80"), std::string::npos);
  const test::TempFolder folder;
  const auto fault = [&](const std::string& text) {
    const std::string path = (folder / "bad.yaml").string();
    write_file_atomically(path, text);
    return error_of(path);
  };
  EXPECT_NE(fault("tflops_16bit: 3\n").find("memory is missing"), std::string::npos);
  EXPECT_NE(fault("memory: 24GiB\nflops: 3\n").find("flops is not a key"), std::string::npos);
  EXPECT_NE(fault("memory: [1\n").find("bad.yaml"), std::string::npos);
  EXPECT_NE(fault("memory: much\n").find("memory"), std::string::npos);
  EXPECT_NE(fault("memory: 24GiB\ngb_per_second: 0\n").find("from 1e-06 to 1e+09"),
            std::string::npos);
  for (const char* value : {"1e-320", ".inf", "abc"})
    EXPECT_NE(fault(std::string("memory: 24GiB\ntflops_16bit: ") + value + "\n")
                  .find(std::string("tflops_16bit = ") + value),
              std::string::npos)
        << value;
  EXPECT_NE(fault("memory: 24GiB\ndisk_write_gb_per_second: 0\n").find("from 1e-06 to 1e+09"),
            std::string::npos);
  EXPECT_NE(fault("memory: 100MiB\n").find("context"), std::string::npos);
  EXPECT_NE(fault("memory: 24GiB\ncollective_efficiency: 2\n").find("at most 1"),
            std::string::npos);
  EXPECT_NE(fault("memory: 24GiB\ninter_node_microseconds: -1\n").find("or 0"), std::string::npos);
}

}  // namespace
}  // namespace snug::plan
