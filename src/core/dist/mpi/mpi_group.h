// Collectives of CPU tensors and host values over MPI.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/dist/group.h"
#include "core/dist/mpi/mpi_thread.h"

namespace snug::dist {

class MpiGroup : public Group {
 public:
  // `members`: ranks of the world, this process included. `channel`: the same number on all
  // members, different from other live groups'.
  MpiGroup(std::string name, Members members, int channel, std::shared_ptr<MpiThread> thread);
  // The largest number of groups at a time.
  static constexpr int kNumChannels = 64;

  void wait(const Ticket& ticket) override;
  void wait_on_host(const Ticket& ticket) override { wait(ticket); }

  std::vector<double> sum(std::vector<double> values) override;
  std::string broadcast_text(std::string text, int root) override;
  std::vector<std::string> gather_texts(const std::string& text) override;

 protected:
  Ticket start_all_reduce(const at::Tensor& tensor) override;
  Ticket start_all_gather(const at::Tensor& whole, const at::Tensor& part) override;
  Ticket start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole) override;
  Ticket start_broadcast(const at::Tensor& tensor, int root) override;
  Ticket start_send(const at::Tensor& tensor, int to) override;
  Ticket start_receive(const at::Tensor& tensor, int from) override;

 private:
  // Reserves `num_tags` message tags for a collective; all members count alike.
  int next_tag(int num_tags = 1);
  int next_tag_between(std::vector<int64_t>& counts, int member);
  int tags_a_half() const;
  Ticket start(std::shared_ptr<Work> work, const char* what, std::vector<at::Tensor> held);
  void run(std::shared_ptr<Work> work, const char* what);

  Members members_;
  int channel_;
  std::shared_ptr<MpiThread> thread_;
  int64_t num_tags_ = 0;
  int64_t num_collectives_ = 0;
  std::vector<int64_t> num_sent_;      // to each member
  std::vector<int64_t> num_received_;  // from each
};

}  // namespace snug::dist
