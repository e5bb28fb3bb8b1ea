// Ranks that are threads of one process, for tests of what ranks tell each other. Host values only.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "core/dist/group.h"

namespace snug::test {

struct Meeting {
  explicit Meeting(int size) : texts(static_cast<size_t>(size)), values(texts.size()), all(size) {}

  std::vector<std::string> texts;
  std::vector<std::vector<double>> values;
  std::barrier<> all;
};

class ThreadGroup : public dist::Group {
 public:
  ThreadGroup(int rank, int size, Meeting& meeting)
      : Group("world", rank, size), meeting_(meeting) {}

  // Called before each exchange of texts, with how many there have been.
  std::function<void(int)> before_exchange;

  std::vector<double> sum(std::vector<double> values) override {
    meeting_.values[static_cast<size_t>(rank())] = values;
    meeting_.all.arrive_and_wait();
    std::vector<double> total(values.size());
    for (const auto& own : meeting_.values)
      for (size_t i = 0; i < total.size(); ++i) total[i] += own[i];
    meeting_.all.arrive_and_wait();
    return total;
  }
  std::string broadcast_text(std::string text, int root) override {
    return exchange(text)[static_cast<size_t>(root)];
  }
  std::vector<std::string> gather_texts(const std::string& text) override { return exchange(text); }

  void wait(const Ticket& /*ticket*/) override {}
  void wait_on_host(const Ticket& /*ticket*/) override {}

 protected:
  Ticket start_all_reduce(const at::Tensor& /*tensor*/) override { return none(); }
  Ticket start_all_gather(const at::Tensor& /*whole*/, const at::Tensor& /*part*/) override {
    return none();
  }
  Ticket start_reduce_scatter(const at::Tensor& /*part*/, const at::Tensor& /*whole*/) override {
    return none();
  }
  Ticket start_broadcast(const at::Tensor& /*tensor*/, int /*root*/) override { return none(); }
  Ticket start_send(const at::Tensor& /*tensor*/, int /*to*/) override { return none(); }
  Ticket start_receive(const at::Tensor& /*tensor*/, int /*from*/) override { return none(); }

 private:
  static Ticket none() { throw InternalError("threads move no tensors"); }

  std::vector<std::string> exchange(const std::string& text) {
    if (before_exchange) before_exchange(num_exchanges_);
    ++num_exchanges_;
    meeting_.texts[static_cast<size_t>(rank())] = text;
    meeting_.all.arrive_and_wait();
    std::vector<std::string> texts = meeting_.texts;
    meeting_.all.arrive_and_wait();
    return texts;
  }

  Meeting& meeting_;
  int num_exchanges_ = 0;
};

// Runs `work` as each of `size` ranks; returns what each threw, empty where nothing.
inline std::vector<std::string> as_ranks(int size, const std::function<void(ThreadGroup&)>& work) {
  Meeting meeting(size);
  std::vector<std::string> errors(static_cast<size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        ThreadGroup group(rank, size, meeting);
        try {
          work(group);
        } catch (const UserError& error) {
          errors[static_cast<size_t>(rank)] = error.what();
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(rank)] = std::string("not the user's: ") + error.what();
        }
      });
  }
  return errors;
}

}  // namespace snug::test
