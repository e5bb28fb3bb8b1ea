// A parallel loop over indices: each thread takes the next index when it is free.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <limits>
#include <thread>
#include <vector>

namespace snug::data {

// Calls work(0 … count-1) on `num_threads` threads, the caller included (at least 1). After an
// exception no new index is started, and the exception of the lowest index is rethrown.
template <class Work>
void for_each_index(size_t count, int num_threads, const Work& work) {
  std::atomic<size_t> next{0};
  struct Failure {
    size_t index = std::numeric_limits<size_t>::max();
    std::exception_ptr error;
  };
  const auto wanted = static_cast<size_t>(std::max(num_threads, 1));
  std::vector<Failure> failures(std::min(wanted, std::max<size_t>(count, 1)));
  const auto run = [&](Failure& failure) {
    size_t i = 0;
    try {
      while ((i = next.fetch_add(1)) < count) work(i);
    } catch (...) {
      failure = {i, std::current_exception()};
      next = count;
    }
  };
  std::vector<std::jthread> threads;
  for (size_t t = 1; t < failures.size(); ++t)
    threads.emplace_back([&run, &failure = failures[t]] { run(failure); });
  run(failures[0]);
  threads.clear();
  const auto first = std::min_element(failures.begin(), failures.end(),
                                      [](auto& a, auto& b) { return a.index < b.index; });
  if (first->error) std::rethrow_exception(first->error);
}

}  // namespace snug::data
