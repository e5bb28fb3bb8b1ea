// A group that moves nothing, for plans. From a collective's start until the wait it holds the same
// memory as the real group: the tensors and the staging buffer. For host values it behaves as if
// all ranks had the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dist/group.h"
#include "core/dist/mesh.h"

namespace snug::dist {

class PlannedGroup : public Group {
 public:
  PlannedGroup(std::string name, int rank, int size, Transport transport)
      : Group(std::move(name), rank, size), transport_(transport) {}

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
  Ticket hold(std::vector<at::Tensor> tensors, int64_t staging_bytes) const;

  Transport transport_;
};

}  // namespace snug::dist
