// Every collective for every type and for lengths around the borders: of a message, of the staging
// memory, of what is summed at once, and of equal parts. Expected values are computed here from
// what every rank is known to hold.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "core/memory/guards.h"
#include "ranks_main.h"

namespace snug::dist {
namespace {

Group& group() { return test::row().group(Axis::Shard); }

// What rank `rank` holds: numbers of both signs whose sums round in 16 bits.
at::Tensor numbers(int rank, int64_t count, at::ScalarType type) {
  const at::Tensor index = at::arange(count, at::TensorOptions().dtype(at::kDouble));
  return ((index * 0.37 + rank * 1.91).sin() * (1.0 + 3.0 * rank)).to(type);
}

// In float32, in the order of ranks, rounded once.
at::Tensor sum_of_all(int64_t count, at::ScalarType type) {
  at::Tensor sum = at::zeros({count}, at::TensorOptions().dtype(at::kFloat));
  for (int rank = 0; rank < group().size(); ++rank)
    sum += numbers(rank, count, type).to(at::kFloat);
  return sum.to(type);
}

void expect_same(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) {
  ASSERT_EQ(found.numel(), wanted.numel()) << what;
  EXPECT_TRUE(at::equal(found, wanted))
      << what << ": rank " << group().rank() << " differs by at most "
      << (found.to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>();
}

std::string describe(const char* what, int64_t count, at::ScalarType type) {
  return fmt::format("{} of {} {}", what, count, at::toString(type));
}

constexpr at::ScalarType kSummed[] = {at::kFloat, at::kBFloat16, at::kHalf};
constexpr at::ScalarType kMoved[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kByte};
// The last ones need several chunks of staging memory and several messages.
constexpr int64_t kCounts[] = {1, 3, 63, 257, 4099, 70'001, 1'300'003, 2'621'440};

TEST(Collectives, AllReduceIsTheRoundedSum) {
  for (const at::ScalarType type : kSummed) {
    for (const int64_t count : kCounts) {
      const at::Tensor tensor = numbers(group().rank(), count, type);
      group().wait(group().all_reduce(tensor));
      expect_same(tensor, sum_of_all(count, type), describe("all-reduce", count, type));
    }
  }
}

TEST(Collectives, AllGatherInTheOrderOfRanks) {
  for (const at::ScalarType type : kMoved) {
    for (const int64_t count : kCounts) {
      const at::Tensor whole = at::empty({group().size(), count}, at::TensorOptions().dtype(type));
      const at::Tensor part = type == at::kByte
                                  ? numbers(group().rank(), count, at::kFloat).mul(20).to(type)
                                  : numbers(group().rank(), count, type);
      group().wait(group().all_gather(whole, part));
      for (int rank = 0; rank < group().size(); ++rank) {
        const at::Tensor wanted = type == at::kByte
                                      ? numbers(rank, count, at::kFloat).mul(20).to(type)
                                      : numbers(rank, count, type);
        expect_same(whole[rank], wanted, describe("all-gather", count, type));
      }
    }
  }
}

TEST(Collectives, AllGatherOfAStretchOfTheWhole) {
  for (const int64_t count : kCounts) {
    const at::Tensor whole = at::zeros({group().size(), count});
    whole[group().rank()].copy_(numbers(group().rank(), count, at::kFloat));
    group().wait(group().all_gather(whole, whole[group().rank()]));
    for (int rank = 0; rank < group().size(); ++rank) {
      expect_same(whole[rank], numbers(rank, count, at::kFloat), "all-gather in place");
    }
  }
}

TEST(Collectives, ReduceScatterIsAPartOfAllReduce) {
  for (const at::ScalarType type : kSummed) {
    for (const int64_t count : kCounts) {
      const int64_t all = count * group().size();
      const at::Tensor wanted = sum_of_all(all, type).view({group().size(), count})[group().rank()];
      const at::Tensor whole = numbers(group().rank(), all, type);
      const at::Tensor before = whole.clone();
      const at::Tensor part = at::empty({count}, whole.options());
      group().wait(group().reduce_scatter(part, whole));
      expect_same(part, wanted, describe("reduce-scatter", count, type));
      expect_same(whole, before, describe("what reduce-scatter read", count, type));
      const at::Tensor stretch = whole.view({group().size(), count})[group().rank()];
      group().wait(group().reduce_scatter(stretch, whole));
      expect_same(stretch, wanted, describe("reduce-scatter in place", count, type));
    }
  }
}

TEST(Collectives, BroadcastFromEveryRank) {
  for (const int64_t count : kCounts) {
    for (int root = 0; root < group().size(); ++root) {
      const at::Tensor tensor = numbers(group().rank(), count, at::kBFloat16);
      group().wait(group().broadcast(tensor, root));
      expect_same(tensor, numbers(root, count, at::kBFloat16), "broadcast");
    }
  }
}

// Two long tensors each way between neighbours, every send before its receive: nobody may wait for
// the other side to have come to it.
TEST(Collectives, SendsPassEachOther) {
  const int next = (group().rank() + 1) % group().size();
  const int previous = (group().rank() + group().size() - 1) % group().size();
  std::vector<Group::Ticket> tickets;
  std::vector<at::Tensor> received;
  for (int i = 0; i < 2; ++i) {
    tickets.push_back(group().send(numbers(group().rank() + i, 1'500'000 + i, at::kFloat), next));
  }
  for (int i = 0; i < 2; ++i) {
    received.push_back(at::empty({1'500'000 + i}));
    tickets.push_back(group().receive(received.back(), previous));
  }
  for (const Group::Ticket& ticket : tickets) group().wait(ticket);
  for (int i = 0; i < 2; ++i) {
    expect_same(received[static_cast<size_t>(i)], numbers(previous + i, 1'500'000 + i, at::kFloat),
                "receive");
  }
}

// Collectives of one group and of others are under way together, and are waited for in another
// order than they were started in.
TEST(Collectives, ManyAtOnce) {
  Group& world = test::row().world();
  const at::Tensor sum = numbers(group().rank(), 900'001, at::kBFloat16);
  const at::Tensor short_sum = numbers(group().rank(), 5, at::kFloat);
  const at::Tensor other_sum = numbers(group().rank(), 800'000, at::kFloat);
  const at::Tensor whole = at::empty({group().size(), 300'000});
  const Group::Ticket first = group().all_reduce(sum);
  const Group::Ticket second =
      group().all_gather(whole, numbers(group().rank(), 300'000, at::kFloat));
  const Group::Ticket third = group().all_reduce(short_sum);
  const Group::Ticket other = world.all_reduce(other_sum);
  world.wait(other);
  group().wait(third);
  group().wait(first);
  group().wait(second);
  group().wait(second);
  expect_same(sum, sum_of_all(900'001, at::kBFloat16), "first");
  expect_same(short_sum, sum_of_all(5, at::kFloat), "short");
  expect_same(other_sum, sum_of_all(800'000, at::kFloat), "other group's");
  for (int rank = 0; rank < group().size(); ++rank) {
    expect_same(whole[rank], numbers(rank, 300'000, at::kFloat), "gathered");
  }
}

// Nobody waits for it, and what it holds goes out of scope here.
TEST(Collectives, ADroppedTicketDoesNoHarm) {
  group().all_reduce(numbers(group().rank(), 500'000, at::kFloat));
  const at::Tensor tensor = numbers(group().rank(), 77, at::kFloat);
  group().wait(group().all_reduce(tensor));
  expect_same(tensor, sum_of_all(77, at::kFloat), "after it");
}

TEST(Collectives, TrafficIsCountedInSizesOfTheWhole) {
  const TrafficByOperation before = group().traffic();
  const at::Tensor whole = at::zeros({group().size(), 10});
  group().wait(group().all_gather(whole, whole[group().rank()]));
  const auto index = static_cast<size_t>(Operation::AllGather);
  EXPECT_EQ(group().traffic()[index].calls, before[index].calls + 1);
  EXPECT_EQ(group().traffic()[index].bytes, before[index].bytes + 40 * group().size());
}

// A plan asks for the same memory at the same moments, to the byte.
TEST(Collectives, APlannedGroupTakesTheSameMemory) {
  const auto plan = planned_mesh(test::row().shape(), group().rank());
  const auto peak = [](Group& of, at::Device device, memory::Ledger& ledger) {
    std::vector<int64_t> peaks;
    for (const at::ScalarType type : kSummed) {
      for (const int64_t count : kCounts) {
        const auto options = at::TensorOptions().dtype(type).device(device);
        const at::Tensor whole = at::empty({of.size() * count}, options);
        if (!device.is_meta()) whole.zero_();
        ledger.reset_peak();
        const int64_t before = ledger.allocated();
        Group::Ticket ticket = of.all_reduce(whole);
        peaks.push_back(ledger.by_category()[static_cast<size_t>(memory::Category::Communication)]);
        of.wait(ticket);
        ticket = of.reduce_scatter(at::empty({count}, options), whole);
        peaks.push_back(ledger.allocated());
        of.wait(ticket);
        peaks.push_back(ledger.allocated());
        peaks.push_back(ledger.at_peak().allocated - before);
        EXPECT_EQ(ledger.allocated(), before);
      }
    }
    return peaks;
  };
  const auto real = peak(group(), at::kCPU, memory::cpu_ledger());
  const auto planned = peak(plan->group(Axis::Shard), at::kMeta, memory::meta_ledger());
  ASSERT_EQ(real.size(), planned.size());
  for (size_t i = 0; i < real.size(); i += 4) {
    EXPECT_EQ(real[i], planned[i]) << "staging of all-reduce, case " << i / 4;
    EXPECT_EQ(real[i + 3], planned[i + 3]) << "peak, case " << i / 4;
  }
}

TEST(Collectives, MistakesAreNamed) {
  EXPECT_THROW(group().all_reduce(at::zeros({4, 4}).t()), InternalError);
  EXPECT_THROW(group().all_reduce(at::zeros({4}, at::kLong)), InternalError);
  EXPECT_THROW(group().all_gather(at::zeros({3}), at::zeros({2})), InternalError);
  EXPECT_THROW(group().broadcast(at::zeros({3}), group().size()), InternalError);
  EXPECT_THROW(group().send(at::zeros({3}), group().rank()), InternalError);
}

}  // namespace
}  // namespace snug::dist
