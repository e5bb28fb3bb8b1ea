// SPDX-License-Identifier: Apache-2.0
#include "core/dist/measure.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace snug::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPeriod = 1009;
constexpr int kHighest = 5;  // sums over many ranks are exact in any type

// Fills the tensor with numbers that differ by rank and position, without a temporary.
void fill(const at::Tensor& tensor, int rank) {
  const at::Tensor flat = tensor.view({-1});
  const at::Tensor pattern = at::arange(rank, rank + kPeriod, tensor.options().dtype(at::kLong))
                                 .remainder(kHighest)
                                 .to(tensor.scalar_type());
  const int64_t whole = flat.numel() / kPeriod * kPeriod;
  if (whole > 0) flat.narrow(0, 0, whole).view({-1, kPeriod}).copy_(pattern.expand({1, kPeriod}));
  if (flat.numel() > whole) {
    flat.narrow(0, whole, flat.numel() - whole).copy_(pattern.narrow(0, 0, flat.numel() - whole));
  }
}

// An operation under test: its tensors, its start, and the expected result.
class Subject {
 public:
  Subject(Group& group, Operation operation, int64_t bytes, const MeasureOptions& options)
      : group_(group), operation_(operation) {
    const auto tensor_options = at::TensorOptions().dtype(options.type).device(options.device);
    const int64_t ranks = group.size();
    const auto element_bytes = static_cast<int64_t>(c10::elementSize(options.type));
    part_count_ = std::max<int64_t>(1, bytes / element_bytes / ranks);
    whole_ = at::empty({ranks, part_count_}, tensor_options);
    if (operation == Operation::Send) other_ = at::empty({ranks, part_count_}, tensor_options);
    if (operation == Operation::ReduceScatter) other_ = at::empty({part_count_}, tensor_options);
  }

  int64_t count() const { return whole_.numel(); }
  int64_t bytes() const { return count() * static_cast<int64_t>(whole_.element_size()); }

  void run(bool until_over) {
    const int ranks = group_.size();
    Group::Ticket first;
    Group::Ticket second;
    switch (operation_) {
      case Operation::AllReduce:
        first = group_.all_reduce(whole_);
        break;
      case Operation::AllGather:
        first = group_.all_gather(whole_, whole_[group_.rank()]);
        break;
      case Operation::ReduceScatter:
        first = group_.reduce_scatter(other_, whole_);
        break;
      case Operation::Broadcast:
        first = group_.broadcast(whole_, 0);
        break;
      case Operation::Send:
      case Operation::Receive:
        // Even ranks send first and odd ranks receive first, since a device may run the two one
        // after the other.
        if (group_.rank() % 2 == 0) first = group_.send(whole_, (group_.rank() + 1) % ranks);
        second = group_.receive(other_, (group_.rank() + ranks - 1) % ranks);
        if (group_.rank() % 2 != 0) first = group_.send(whole_, (group_.rank() + 1) % ranks);
        break;
    }
    for (const Group::Ticket& ticket : {first, second}) {
      until_over ? group_.wait_on_host(ticket) : group_.wait(ticket);
    }
  }

  void check() {
    fill(whole_, group_.rank());
    run(/*until_over=*/true);
    if (is_right()) return;
    throw CommunicationError(fmt::format("rank {} of {}: {} of {} elements have wrong values",
                                         group_.rank(), group_.size(), dist::name(operation_),
                                         count()));
  }

  void clear() {
    whole_.zero_();
    if (other_.defined()) other_.zero_();
  }

 private:
  at::Tensor expected(const at::Tensor& like, int rank) const {
    const at::Tensor tensor = at::empty_like(like);
    fill(tensor, rank);
    return tensor;
  }

  at::Tensor expected_sum() const {
    at::Tensor sum = expected(whole_, 0);
    for (int rank = 1; rank < group_.size(); ++rank) sum += expected(whole_, rank);
    return sum;
  }

  bool is_right() const {
    const int ranks = group_.size();
    switch (operation_) {
      case Operation::AllReduce:
        return at::equal(whole_, expected_sum());
      case Operation::AllGather: {
        bool right = true;
        for (int rank = 0; rank < ranks; ++rank) {
          right = right && at::equal(whole_[rank], expected(whole_, rank)[rank]);
        }
        return right;
      }
      case Operation::ReduceScatter:
        return at::equal(other_, expected_sum()[group_.rank()]);
      case Operation::Broadcast:
        return at::equal(whole_, expected(whole_, 0));
      case Operation::Send:
      case Operation::Receive:
        return at::equal(other_, expected(other_, (group_.rank() + ranks - 1) % ranks));
    }
    return false;
  }

  Group& group_;
  Operation operation_;
  int64_t part_count_ = 0;
  at::Tensor whole_;
  at::Tensor other_;
};

double highest_of_all(Group& group, double value) {
  std::vector<double> values(static_cast<size_t>(group.size()));
  values[static_cast<size_t>(group.rank())] = value;
  const std::vector<double> all = group.sum(std::move(values));
  return *std::max_element(all.begin(), all.end());
}

double seconds_for(Group& group, Subject& subject, int64_t iterations) {
  group.barrier();
  const auto begin = Clock::now();
  for (int64_t i = 0; i < iterations; ++i) subject.run(/*until_over=*/i + 1 == iterations);
  const std::chrono::duration<double> passed = Clock::now() - begin;
  return highest_of_all(group, passed.count() / static_cast<double>(iterations));
}

}  // namespace

double bus_factor(Operation operation, int size) {
  const double n = size;
  switch (operation) {
    case Operation::AllReduce:
      return 2 * (n - 1) / n;
    case Operation::AllGather:
    case Operation::ReduceScatter:
      return (n - 1) / n;
    case Operation::Broadcast:
    case Operation::Send:
    case Operation::Receive:
      return 1;
  }
  return 1;
}

Measurement measure(Group& group, Operation operation, int64_t bytes,
                    const MeasureOptions& options) {
  constexpr int64_t kMostIterations = 10'000;
  Subject subject(group, operation, bytes, options);
  subject.check();
  subject.clear();
  const double once = seconds_for(group, subject, 2);
  const auto iterations =
      std::clamp(static_cast<int64_t>(options.seconds / once), int64_t{2}, kMostIterations);
  return {.operation = operation,
          .bytes = subject.bytes(),
          .count = subject.count(),
          .iterations = iterations,
          .seconds = seconds_for(group, subject, iterations)};
}

}  // namespace snug::dist
