// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/error.h"
#include "core/dist/nccl_group.h"
#include "core/memory/allocators.h"
#include "core/memory/guards.h"
#include "core/memory/ledger.h"
#include "core/memory/placement.h"
#include "core/ops/attention/score_block.h"
#include "core/ops/device/copy_stream.h"
#include "core/ops/device/host_waits.h"
#include "core/ops/device/recording.h"
#include "core/ops/device/upload.h"
#include "core/ops/elementwise.h"
#include "core/ops/routing.h"
#include "core/simulated/streams.h"

namespace snug::simulated {
namespace {

class SimulatedGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // A copy of the process has no device's thread: each death test starts a fresh one.
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    ::setenv("SNUG_SIMULATED_GPUS", "2", 1);
    ::setenv("SNUG_SIMULATED_MEMORY", "268435456", 1);
    memory::install_allocators();
  }
  void TearDown() override { EXPECT_EQ(fault(), ""); }

  static at::Tensor make(int64_t count, at::ScalarType type = at::kFloat) {
    return at::empty({count}, at::TensorOptions().device(at::kCUDA).dtype(type));
  }
  static c10::cuda::CUDAStream side_stream() {
    at::globalContext().lazyInitDevice(at::kCUDA);
    return c10::cuda::getStreamFromPool();
  }
  // Reads x on another stream, which it returns, behind what this one has queued.
  static c10::cuda::CUDAStream read_behind(const at::Tensor& x) {
    const c10::cuda::CUDAStream side = side_stream();
    c10::Event made(at::kCUDA);
    made.record(c10::cuda::getCurrentCUDAStream().unwrap());
    made.block(side.unwrap());
    const c10::cuda::CUDAStreamGuard guard(side);
    const at::Tensor read = x.add(1);
    return side;
  }
};

// Runs it all; a fault ends the process with its line on the standard error.
void finish() {
  cudaDeviceSynchronize();
  std::_Exit(fault().empty() ? 0 : 1);
}

TEST_F(SimulatedGpu, ComputesWhatTheCpuDoes) {
  const at::Tensor a = at::randn({7, 5}), b = at::randn({5, 3});
  EXPECT_TRUE(at::allclose(at::mm(a.cuda(), b.cuda()).cpu(), at::mm(a, b)));
  EXPECT_TRUE(at::equal(at::cat({a.cuda(), a.cuda()}).sum(0).cpu(), at::cat({a, a}).sum(0)));
  EXPECT_EQ(a.cuda().max().item<float>(), a.max().item<float>());
  EXPECT_TRUE(at::equal(at::nonzero(a.cuda().gt(0)).cpu(), at::nonzero(a.gt(0))));
}

at::Tensor pinned(memory::HostUse use, int64_t count = 1024) {
  const at::Tensor tensor =
      memory::empty_on_host({count}, at::kFloat, at::kCUDA, memory::Category::Data, use);
  return tensor.fill_(1);
}

TEST_F(SimulatedGpu, AWaitForWorkThatIsNotDoneIsCounted) {
  const at::Tensor here = pinned(memory::HostUse::Landing);
  const at::Tensor there = at::full({1024}, 2.0F, at::TensorOptions().device(at::kCUDA));
  here.copy_(there, /*non_blocking=*/true);
  const int64_t before = num_host_waits();
  cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream());
  EXPECT_EQ(here[0].item<float>(), 2);
  EXPECT_EQ(num_host_waits(), before + 1);
  cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream());
  EXPECT_EQ(num_host_waits(), before + 1);
}

// A plan counts what is said to wait.
TEST_F(SimulatedGpu, WhatWaitsSaysSo) {
  const at::Tensor here = pinned(memory::HostUse::Landing);
  const at::Tensor there = at::zeros({1024}, at::TensorOptions().device(at::kCUDA));
  // How often is said, and how often the host has waited.
  const auto waits_of = [](const std::function<void()>& call) {
    const int64_t said = ops::num_host_waits(), waited = num_host_waits();
    call();
    return std::pair(ops::num_host_waits() - said, num_host_waits() - waited);
  };
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"copy", [&] { ops::copy(here, there); }},
      {"copy and convert", [&] { ops::copy(here, there.to(at::kBFloat16)); }},
      {"copy a storage", [&] { ops::copy_storage(here, there); }},
      {"read a number", [&] { ops::read_number(there.sum()); }},
      {"read the choice of experts", [&] { ops::read_experts(there.to(at::kLong)); }},
      {"distances' buckets", [&] { ops::bias_buckets(8, 16, true, there.device()); }},
  };
  for (const auto& [name, call] : calls)
    EXPECT_EQ(waits_of(call), std::pair(int64_t{1}, int64_t{1})) << name;
  // Its copies may be done before it waits.
  const auto [said, waited] =
      waits_of([&] { ops::Upload(at::kCUDA).tensor(here.const_data_ptr(), {8}, at::kFloat); });
  EXPECT_LE(waited, said) << "an upload";
}

// Recorded work is done as often as it is launched, on what is there then, and gets the same memory
// again.
TEST_F(SimulatedGpu, RecordedWorkIsDoneWhenItIsLaunched) {
  const c10::cuda::CUDAStreamGuard own(side_stream());
  const at::Tensor x = at::full({1000}, 1.0F, at::TensorOptions().device(at::kCUDA));
  at::Tensor sum;
  {
    const ops::Recording recording(x.device(), [&] {
      const at::Tensor twice = x.mul(2);
      sum = twice.add(x).sum();
    });
    EXPECT_EQ(x[0].item<float>(), 1) << "nothing is done yet";
    for (const float value : {1.0F, 4.0F, 2.0F}) {
      x.fill_(value);
      recording.launch();
      EXPECT_EQ(sum.item<float>(), 3000 * value);
    }
  }
}

// Recordings of one pool write over what each other has freed and not over what they keep.
TEST_F(SimulatedGpu, RecordingsShareWhatTheyFree) {
  const c10::cuda::CUDAStreamGuard own(side_stream());
  const at::Tensor x = at::full({4096}, 1.0F, at::TensorOptions().device(at::kCUDA));
  std::vector<std::unique_ptr<ops::Recording>> recordings;
  std::vector<at::Tensor> kept(3);
  for (int i = 0; i < 3; ++i)
    recordings.push_back(std::make_unique<ops::Recording>(x.device(), [&] {
      const at::Tensor passing = x.mul(i + 1);
      kept[static_cast<size_t>(i)] = passing.add(x).narrow(0, 0, 16).clone();
    }));
  const int64_t taken = memory::cuda_ledger().allocated();
  for (const int i : {0, 2, 1, 0, 1, 2}) {
    x.fill_(static_cast<float>(i + 1));
    recordings[static_cast<size_t>(i)]->launch();
    EXPECT_EQ(kept[static_cast<size_t>(i)][0].item<float>(), (i + 1) * (i + 2));
  }
  EXPECT_EQ(memory::cuda_ledger().allocated(), taken) << "launching allocates nothing";
}

TEST_F(SimulatedGpu, RecordedWorkMayNotWaitNorTouchTheHost) {
  const auto record = [](const std::function<void(const at::Tensor&)>& work) {
    const c10::cuda::CUDAStreamGuard own(side_stream());
    const at::Tensor x = at::zeros({64}, at::TensorOptions().device(at::kCUDA));
    try {
      const ops::Recording recording(x.device(), [&] { work(x); });
    } catch (const std::exception&) {
    }
    finish();
  };
  EXPECT_DEATH(record([](const at::Tensor& x) { x.sum().item(); }),
               "a copy from or to the host in work that is being recorded");
  EXPECT_DEATH(record([](const at::Tensor& x) { x.copy_(at::ones({64})); }),
               "a copy from or to the host in work that is being recorded");
  EXPECT_DEATH(
      record([](const at::Tensor&) { cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream()); }),
      "an event or a wait in work that is being recorded");
  EXPECT_DEATH(record([](const at::Tensor& x) { read_behind(x); }),
               "an event or a wait in work that is being recorded");
}

// What says that it waits is refused before it does, and the GPU goes on.
TEST_F(SimulatedGpu, ARecordingThatFailsIsGivenUp) {
  const c10::cuda::CUDAStreamGuard own(side_stream());
  const at::Tensor x = at::full({64}, 3.0F, at::TensorOptions().device(at::kCUDA));
  const int64_t taken = memory::cuda_ledger().allocated();
  EXPECT_THROW(ops::Recording(x.device(), [&] { ops::read_number(x.mul(2).sum()); }), UserError);
  EXPECT_EQ(memory::cuda_ledger().allocated(), taken);
  EXPECT_EQ(ops::read_number(x.sum()), 192);
}

TEST_F(SimulatedGpu, TheDefaultStreamIsNotRecorded) {
  EXPECT_THROW(ops::Recording({at::kCUDA, 0}, [] {}), c10::Error);
  cudaGetLastError();
}

constexpr char kTouchesPinned[] = "the host touches pinned memory of a copy that it has not waited";

// The device's order is no wait of the host's, nor is that the copy happens to be done.
TEST_F(SimulatedGpu, TheHostWaitsBeforeItReadsWhatACopyWrites) {
  const auto copied = [](bool waits) {
    const at::Tensor here = pinned(memory::HostUse::Landing);
    const at::Tensor there = at::zeros({1024}, at::TensorOptions().device(at::kCUDA));
    ops::CopyStream copies(there.device());
    const auto ticket = copies.start({{.to = here, .from = there}});
    copies.wait(ticket);
    if (waits) copies.wait_on_host(ticket);
    std::_Exit(here[0].item<float>() == 0 ? 0 : 1);
  };
  EXPECT_EXIT(copied(true), ::testing::ExitedWithCode(0), "");
  EXPECT_DEATH(copied(false), kTouchesPinned);
}

TEST_F(SimulatedGpu, TheHostMayReadWhatACopyReadsAndWaitsBeforeItWrites) {
  const auto copied = [](bool waits) {
    const at::Tensor home = pinned(memory::HostUse::Written);
    const at::Tensor there = at::empty({1024}, at::TensorOptions().device(at::kCUDA));
    ops::CopyStream copies(there.device());
    const auto ticket = copies.start({{.to = there, .from = home}});
    if (home[0].item<float>() != 1) std::_Exit(2);
    if (waits) copies.wait_on_host(ticket);
    home.fill_(3);
    finish();
  };
  EXPECT_EXIT(copied(true), ::testing::ExitedWithCode(0), "");
  EXPECT_DEATH(copied(false), kTouchesPinned);
}

// Its memory is the next one's, which writes it at once.
TEST_F(SimulatedGpu, AnUploadWaitsForItsCopiesBeforeItGivesMemoryBack) {
  const std::vector<float> values(1024, 1);
  at::Tensor first, second;
  first = ops::Upload(at::kCUDA).tensor(values.data(), {1024}, at::kFloat);
  second = ops::Upload(at::kCUDA).tensor(values.data(), {1024}, at::kFloat);
  EXPECT_EQ(at::add(first, second).sum().item<float>(), 2048);
}

// A landing block may be given back before its copy is done, and is written by copies alone.
TEST_F(SimulatedGpu, WhatTheHostWritesIsNoLandingMemory) {
  const std::vector<float> values(1024, 1);
  const at::Tensor there = at::zeros({1024}, at::TensorOptions().device(at::kCUDA));
  ops::CopyStream copies(there.device());
  copies.wait(
      copies.start({{.to = memory::empty_on_host({1024}, at::kFloat, at::kCUDA,
                                                 memory::Category::Data, memory::HostUse::Landing),
                     .from = there}}));
  ops::Upload upload(at::kCUDA);
  EXPECT_EQ(upload.tensor(values.data(), {1024}, at::kFloat).sum().item<float>(), 1024);
}

TEST_F(SimulatedGpu, ACopyThatIsToBeWaitedForIsDone) {
  const at::Tensor there = at::full({1024}, 3.0F, at::TensorOptions().device(at::kCUDA));
  const at::Tensor plain = pinned(memory::HostUse::Landing);
  ops::copy(plain, there);
  EXPECT_EQ(plain.sum().item<float>(), 3 * 1024);
  const at::Tensor converted = pinned(memory::HostUse::Landing);
  ops::copy(converted, there.to(at::kBFloat16));
  EXPECT_EQ(converted.sum().item<float>(), 3 * 1024);
  const at::Tensor storage = pinned(memory::HostUse::Landing);
  ops::copy_storage(storage, there);
  EXPECT_EQ(storage.sum().item<float>(), 3 * 1024);
}

// The host may change its memory after the copy has read it.
TEST_F(SimulatedGpu, ACopyThatIsToBeWaitedForHasReadTheHostsMemory) {
  const at::Tensor there = make(1024), storage = make(1024), converted = make(1024, at::kBFloat16);
  const at::Tensor home = pinned(memory::HostUse::Written);
  ops::copy(there, home);
  home.fill_(2);
  ops::copy(converted, home);
  home.fill_(3);
  ops::copy_storage(storage, home);
  home.fill_(4);
  EXPECT_EQ(there.sum().item<float>(), 1024);
  EXPECT_EQ(converted.sum().item<float>(), 2 * 1024);
  EXPECT_EQ(storage.sum().item<float>(), 3 * 1024);
}

TEST_F(SimulatedGpu, MemoryIsNotUnpinnedWhileACopyNeedsIt) {
  const auto unpinned = [](bool waits) {
    alignas(4096) static float values[1024] = {};
    memory::pin_memory(values, sizeof values);
    const at::Tensor there = at::empty({1024}, at::TensorOptions().device(at::kCUDA));
    cudaMemcpyAsync(there.mutable_data_ptr(), values, sizeof values, cudaMemcpyDefault,
                    c10::cuda::getCurrentCUDAStream());
    waits ? memory::unpin_memory(values) : static_cast<void>(cudaHostUnregister(values));
    finish();
  };
  EXPECT_EXIT(unpinned(true), ::testing::ExitedWithCode(0), "");
  EXPECT_DEATH(unpinned(false), "memory is unpinned while a copy needs it");
}

TEST_F(SimulatedGpu, StreamsWithoutAnEventRace) {
  const auto unordered = [] {
    const at::Tensor x = at::zeros({64}, at::TensorOptions().device(at::kCUDA));
    const c10::cuda::CUDAStreamGuard guard(side_stream());
    x.add_(1);
    finish();
  };
  EXPECT_EXIT(unordered(), ::testing::ExitedWithCode(1),
              "aten::add reads .* on stream 1, which aten::zero_ on stream 0 wrote with no event");
}

TEST_F(SimulatedGpu, AFaultNamesWhatQueuedBothWorks) {
  const auto unordered = [] {
    const memory::UnitGuard unit(memory::unit_id("block 3"));
    at::Tensor x;
    {
      const memory::PhaseGuard phase(memory::Phase::Forward);
      x = at::zeros({64}, at::TensorOptions().device(at::kCUDA));
    }
    const memory::PhaseGuard phase(memory::Phase::Backward);
    const c10::cuda::CUDAStreamGuard guard(side_stream());
    x.add_(1);
    finish();
  };
  EXPECT_EXIT(unordered(), ::testing::ExitedWithCode(1),
              "aten::add \\(block 3, backward\\) reads .* on stream 1, "
              "which aten::zero_ \\(block 3, forward\\) on stream 0 wrote with no event");
}

TEST_F(SimulatedGpu, AnEventOrdersStreams) {
  const at::Tensor x = at::zeros({64}, at::TensorOptions().device(at::kCUDA));
  const c10::cuda::CUDAStream side = side_stream();
  c10::Event made(at::kCUDA), added(at::kCUDA);
  made.record(c10::cuda::getCurrentCUDAStream().unwrap());
  made.block(side.unwrap());
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    x.add_(1);
  }
  added.record(side.unwrap());
  added.block(c10::cuda::getCurrentCUDAStream().unwrap());
  EXPECT_EQ(x.sum().item<float>(), 64);
}

TEST_F(SimulatedGpu, ReadersOfTwoStreamsDoNotRaceAndAWriterBesideThemDoes) {
  const auto written_beside = [] {
    const at::Tensor x = at::zeros({64}, at::TensorOptions().device(at::kCUDA));
    cudaDeviceSynchronize();
    {
      const c10::cuda::CUDAStreamGuard guard(side_stream());
      const at::Tensor read = x.add(1);
    }
    const at::Tensor read = x.add(1);  // by another reader
    x.fill_(2);
    finish();
  };
  EXPECT_EXIT(
      written_beside(), ::testing::ExitedWithCode(1),
      "aten::(fill_ writes .*, which aten::add .* read|add reads .*, which aten::fill_ .* wrote) "
      "with no event");
}

TEST_F(SimulatedGpu, MemoryFreedWhileAnotherStreamNeedsIt) {
  const auto freed = [] {
    at::Tensor x = at::zeros({64}, at::TensorOptions().device(at::kCUDA));
    read_behind(x);
    x.reset();  // nobody has told the allocator of the other stream
    finish();
  };
  EXPECT_EXIT(freed(), ::testing::ExitedWithCode(1), "aten::add reads .*, outside every buffer");
}

// Our allocator, which is around libtorch's, tells it.
TEST_F(SimulatedGpu, MemoryThatAnotherStreamHasIsReusedWhenThatIsDone) {
  at::Tensor x = at::zeros({64}, at::TensorOptions().device(at::kCUDA));
  const void* const address = x.const_data_ptr();
  const c10::cuda::CUDAStream side = read_behind(x);
  c10::cuda::CUDACachingAllocator::recordStream(x.storage().data_ptr(), side);
  x.reset();
  EXPECT_NE(make(64).const_data_ptr(), address);
  cudaDeviceSynchronize();
  EXPECT_EQ(make(64).const_data_ptr(), address);
  EXPECT_EQ(fault(), "");
}

TEST_F(SimulatedGpu, WhatNobodyWroteIsNotRead) {
  const auto undefined = [] {
    const at::Tensor sum = make(64).add(1);
    finish();
  };
  EXPECT_EXIT(undefined(), ::testing::ExitedWithCode(1),
              "aten::add reads .* which nobody has written");
}

TEST_F(SimulatedGpu, TheHostDoesNotTouchTheDevicesMemory) {
  const auto touched = [] {
    const at::Tensor x = at::zeros({64}, at::TensorOptions().device(at::kCUDA));
    cudaDeviceSynchronize();
    std::printf("%f", static_cast<double>(*static_cast<volatile const float*>(x.const_data_ptr())));
  };
  EXPECT_DEATH(touched(), "the host touches the device's memory");
}

TEST_F(SimulatedGpu, WhatACopyReadsMayChangeAfterAWait) {
  const auto copied = [](bool waits) {
    const at::Tensor x = at::full({1024}, 3.0F, at::TensorOptions().device(at::kCUDA));
    const at::Tensor home = memory::empty_on_host({1024}, at::kFloat, at::kCUDA,
                                                  memory::Category::Data, memory::HostUse::Landing);
    ops::CopyStream copies(x.device());
    const auto ticket = copies.start({{.to = home, .from = x}});
    if (waits) copies.wait(ticket);
    x.fill_(0);
    copies.wait_on_host(ticket);
    if (home[0].item<float>() != 3) std::_Exit(2);
    finish();
  };
  EXPECT_EXIT(copied(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(copied(false), ::testing::ExitedWithCode(1),
              "aten::fill_ writes .* read with no event");
}

TEST_F(SimulatedGpu, MemoryEndsWhereTheDevicesDoes) {
  EXPECT_THROW(make(int64_t{80} << 20), std::exception);
  const at::Tensor fits = make(int64_t{32} << 20, at::kByte);
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  EXPECT_EQ(total, size_t{256} << 20);
  EXPECT_LE(free, total - (size_t{32} << 20));
}

// Two ranks of one process, a thread each, as two streams of the device.
TEST_F(SimulatedGpu, CollectivesOfSeveralRanks) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  auto options = c10d::ProcessGroupNCCL::Options::create(true);
  options->timeout = std::chrono::seconds(20);
  c10d::ProcessGroupNCCL first(store, 0, 2, options), second(store, 1, 2, options);
  std::vector<at::Tensor> a{at::full({3}, 1.0F, at::TensorOptions().device(at::kCUDA))};
  std::vector<at::Tensor> b{at::full({3}, 2.0F, at::TensorOptions().device(at::kCUDA))};
  const auto sum_a = first.allreduce(a, {}), sum_b = second.allreduce(b, {});
  sum_a->wait();
  sum_b->wait();
  EXPECT_EQ(a[0].sum().item<float>(), 9);
  EXPECT_EQ(b[0].sum().item<float>(), 9);
}

// What two ranks of one process meet by, a thread each.
struct Meeting {
  std::array<std::string, 2> texts;
  std::barrier<> all{2};
};
class Neighbours final : public dist::Group {
 public:
  Neighbours(int rank, Meeting& meeting) : Group("test", rank, 2), meeting_(meeting) {}
  void wait(const Ticket&) override {}
  void wait_on_host(const Ticket&) override {}
  std::vector<double> sum(std::vector<double> values) override { return values; }
  std::string broadcast_text(std::string text, int root) override {
    return gather_texts(text)[static_cast<size_t>(root)];
  }
  std::vector<std::string> gather_texts(const std::string& text) override {
    meeting_.texts[static_cast<size_t>(rank())] = text;
    meeting_.all.arrive_and_wait();
    const std::vector<std::string> all(meeting_.texts.begin(), meeting_.texts.end());
    meeting_.all.arrive_and_wait();
    return all;
  }

 private:
  Ticket start_all_reduce(const at::Tensor&) override { return nullptr; }
  Ticket start_all_gather(const at::Tensor&, const at::Tensor&) override { return nullptr; }
  Ticket start_reduce_scatter(const at::Tensor&, const at::Tensor&) override { return nullptr; }
  Ticket start_broadcast(const at::Tensor&, int) override { return nullptr; }
  Ticket start_send(const at::Tensor&, int) override { return nullptr; }
  Ticket start_receive(const at::Tensor&, int) override { return nullptr; }

  Meeting& meeting_;
};

// The device is not the current one. A tensor that nobody keeps is kept until the wait: its
// memory would be the next one's.
TEST_F(SimulatedGpu, AGroupsCollectivesAreOfItsDeviceAndKeepTheirTensors) {
  const at::Device device(at::kCUDA, 1);
  const auto full = [&](float value) {
    return at::full({1024}, value, at::TensorOptions().device(device));
  };
  Meeting meeting;
  std::array<std::unique_ptr<dist::Group>, 2> groups;
  // To join and to end takes both at once.
  const auto both = [](const auto& each) {
    std::thread other(each, 1);
    each(0);
    other.join();
  };
  both([&](int rank) {
    groups[static_cast<size_t>(rank)] =
        dist::make_nccl_group(std::make_unique<Neighbours>(rank, meeting), device, 20);
  });
  for (const auto wait : {&dist::Group::wait, &dist::Group::wait_on_host}) {
    const at::Tensor sums[] = {full(1), full(2)};
    const dist::Group::Ticket started[] = {groups[0]->all_reduce(sums[0]),
                                           groups[1]->all_reduce(sums[1])};
    const dist::Group::Ticket dropped[] = {groups[0]->all_reduce(full(1)),
                                           groups[1]->all_reduce(full(1))};
    const at::Tensor next[] = {full(4), full(5)};
    for (const size_t rank : {0, 1}) {
      (groups[rank].get()->*wait)(started[rank]);
      EXPECT_EQ(at::add(sums[rank], 0).sum().item<float>(), 3 * 1024);
      (groups[rank].get()->*wait)(dropped[rank]);
    }
    EXPECT_EQ(at::add(next[0], next[1]).sum().item<float>(), 9 * 1024);
  }
  both([&](int rank) { groups[static_cast<size_t>(rank)].reset(); });
}

TEST_F(SimulatedGpu, RanksInDifferentCollectivesAreToldSo) {
  const auto different = [] {
    auto store = c10::make_intrusive<c10d::HashStore>();
    auto options = c10d::ProcessGroupNCCL::Options::create(true);
    options->timeout = std::chrono::seconds(20);
    c10d::ProcessGroupNCCL first(store, 0, 2, options), second(store, 1, 2, options);
    std::vector<at::Tensor> a{at::zeros({3}, at::TensorOptions().device(at::kCUDA))};
    std::vector<at::Tensor> b{at::zeros({4}, at::TensorOptions().device(at::kCUDA))};
    first.allreduce(a, {});
    second.allreduce(b, {});
    finish();
  };
  EXPECT_EXIT(different(), ::testing::ExitedWithCode(1),
              "in \"all-reduce 0 of [34] Float, root 0\", another in \"all-reduce 0 of [34] Float");
}

}  // namespace
}  // namespace snug::simulated
