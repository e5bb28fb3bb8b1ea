// The simulation reports each thing that a kernel may not do, and passes kernels that do none.
// SPDX-License-Identifier: Apache-2.0

#include "base/error.h"
#include "unit/core/kernels/simulated/device_array.h"
#include "unit/core/kernels/simulated/faulty_kernels.h"

namespace snug::kernels::simulated {
namespace {

template <class Body>
std::string fault_of(const Body& body) {
  try {
    body();
  } catch (const Fault& fault) {
    return fault.what();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

void expect_fault(const std::string& fault, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(fault.find(part), std::string::npos) << "no '" << part << "' in: " << fault;
}

struct Simulation : testing::Test {
  DeviceArray in{cpu::random_array(Scalar::F32, 64, 1)};
  DeviceArray out{Scalar::F32, 64};
};

TEST_F(Simulation, RunsARightKernelInAnyOrderAndCountsWhatItDoes) {
  reset_counts();
  for (settings().seed = 1; settings().seed <= 5; ++settings().seed) {
    cuda::reverse(in.floats(), out.floats());
    for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(out[i], in[63 - i]);
  }
  const Counts all = counts("reverse");
  EXPECT_EQ(all.launches, 5);
  EXPECT_EQ(all.blocks, 5);
  EXPECT_EQ(all.barriers, 5);
  EXPECT_EQ(all.bytes_read, 5 * 256);
  EXPECT_EQ(all.bytes_written, 5 * 256);
}

TEST_F(Simulation, ReportsAMissingBarrierWithBothThreads) {
  for (settings().seed = 1; settings().seed <= 5; ++settings().seed) {
    const auto fault = fault_of([&] { cuda::reverse_without_barrier(in.floats(), out.floats()); });
    // Who comes first has the other's element read before it is written, or written after it is
    // read.
    expect_fault(fault, {"kernel reverse_without_barrier: thread ", " of block (0, 0, 0) "});
  }
}

TEST_F(Simulation, ReportsOverruns) {
  expect_fault(fault_of([&] { cuda::overrun(out.floats() + 60, 4); }),
               {"kernel overrun: thread 4 of block (0, 0, 0) writes 4 bytes",
                "4 bytes beyond the end of the nearest buffer, 256 bytes"});
  expect_fault(fault_of([&] { cuda::read_behind(in.floats() + 60, out.floats(), 4); }),
               {"kernel read_behind: thread 3", "reads 4 bytes", "4 bytes beyond the end"});
  expect_fault(fault_of([&] { cuda::overrun(out.floats() - 1, 1); }), {"4 bytes before"});
  EXPECT_EQ(fault_of([&] { cuda::overrun(out.floats(), 63); }), "");  // goes on after a fault
}

TEST_F(Simulation, ReportsWhatNobodyWrote) {
  expect_fault(fault_of([&] { cuda::read_behind(out.floats(), in.floats(), 4); }),
               {"which nobody has written"});
  expect_fault(fault_of([&] { cuda::read_undefined_shared(out.floats()); }),
               {"which nobody has written"});
}

TEST_F(Simulation, ReportsBarriersThatNotAllReach) {
  expect_fault(fault_of([] { cuda::barrier_for_some(); }),
               {"kernel barrier_for_some: thread 0 of block (0, 0, 0) waits at a barrier, while "
                "thread 17 has ended"});
  expect_fault(fault_of([] { cuda::two_barriers(); }), {"wait at different barriers"});
  expect_fault(fault_of([] { cuda::half_a_warp(); }),
               {"thread 0 of block (0, 0, 0) waits for other lanes", "thread 16 has ended"});
}

TEST_F(Simulation, ReportsMisalignedAccess) {
  EXPECT_EQ(fault_of([&] { cuda::misaligned(in.floats(), out.floats()); }), "");
  expect_fault(fault_of([&] { cuda::misaligned(in.floats() + 1, out.floats()); }),
               {"kernel misaligned", "reads 16 bytes", "not a multiple"});
  expect_fault(fault_of([&] { cuda::misaligned(in.floats(), out.floats() + 2); }),
               {"writes 16 bytes", "not a multiple"});
}

TEST_F(Simulation, ReportsRacesOfThreadsAndOfBlocks) {
  expect_fault(fault_of([&] { cuda::same_element(out.floats()); }),
               {"kernel same_element: thread ", "of block (0, 0, 0) wrote with no barrier"});
  expect_fault(fault_of([&] { cuda::same_element_of_blocks(in.floats()); }),
               {"of block (0, 0, 0)", "of block (1, 0, 0)"});
}

TEST_F(Simulation, OrdersTheMemoryOfAWarpBySyncwarpOnly) {
  EXPECT_EQ(fault_of([&] { cuda::through_syncwarp(out.floats(), true); }), "");
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i ^ 1);
  EXPECT_NE(fault_of([&] { cuda::through_syncwarp(out.floats(), false); }), "");
}

TEST_F(Simulation, BoundsSharedMemoryByWhatTheLaunchAskedFor) {
  EXPECT_EQ(fault_of([&] { cuda::too_much_shared(out.floats(), 40, 9); }), "");
  expect_fault(fault_of([&] { cuda::too_much_shared(out.floats(), 40, 10); }),
               {"beyond the 40 bytes of shared memory"});
  const int64_t most = 99 << 10;
  EXPECT_EQ(fault_of([&] { cuda::too_much_shared(out.floats(), most, most / 4 - 1); }), "");
}

TEST(Launch, RefusesWhatADeviceWould) {
  expect_fault(fault_of([] { cuda::on_grid(0, 32, 0); }), {"on_grid on a grid of 0 by 1 blocks"});
  expect_fault(fault_of([] { cuda::on_grid(int64_t{1} << 31, 32, 0); }), {"2147483648 by 1"});
  expect_fault(fault_of([] { cuda::on_grid({1, 65536}, 32, 0); }), {"1 by 65536"});
  expect_fault(fault_of([] { cuda::on_grid(1, 1056, 0); }), {"1056 threads"});
  expect_fault(fault_of([] { cuda::on_grid(1, 32, (99 << 10) + 1); }), {"101377 bytes"});
}

}  // namespace
}  // namespace snug::kernels::simulated
