// SPDX-License-Identifier: Apache-2.0
#include "core/dist/planned_group.h"

#include <algorithm>

#include "base/error.h"
#include "core/dist/staging.h"
#include "core/dist/staging_memory.h"

namespace snug::dist {
namespace {

struct PlannedPending : Group::Pending {
  std::vector<at::Tensor> held;
};

}  // namespace

Group::Ticket PlannedGroup::hold(std::vector<at::Tensor> tensors, int64_t staging_bytes) const {
  SNUG_CHECK(tensors.front().is_meta(),
             "group {} of {} ranks is only for planning; it cannot move data on {}", name(), size(),
             tensors.front().device().str());
  auto pending = std::make_shared<PlannedPending>();
  if (transport_ == Transport::Mpi && staging_bytes > 0) {
    tensors.push_back(staging_memory(staging_bytes, tensors.front().device()));
  }
  pending->held = std::move(tensors);
  return pending;
}

void PlannedGroup::wait(const Ticket& ticket) {
  // Released in the real group's order, the staging buffer last.
  if (ticket) static_cast<PlannedPending&>(*ticket).held.clear();
}

std::vector<double> PlannedGroup::sum(std::vector<double> values) {
  for (double& value : values) value *= size();
  return values;
}

std::string PlannedGroup::broadcast_text(std::string text, int /*root*/) { return text; }

std::vector<std::string> PlannedGroup::gather_texts(const std::string& text) {
  return std::vector<std::string>(static_cast<size_t>(size()), text);
}

Group::Ticket PlannedGroup::start_all_reduce(const at::Tensor& tensor) {
  return hold({tensor}, all_reduce_staging_bytes(tensor.numel(), tensor.element_size(), size()));
}

Group::Ticket PlannedGroup::start_all_gather(const at::Tensor& whole, const at::Tensor& part) {
  return hold({whole, part}, 0);
}

Group::Ticket PlannedGroup::start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole) {
  return hold({part, whole},
              reduce_scatter_staging(part.numel(), part.element_size(), size()).bytes);
}

Group::Ticket PlannedGroup::start_broadcast(const at::Tensor& tensor, int /*root*/) {
  return hold({tensor}, 0);
}

Group::Ticket PlannedGroup::start_send(const at::Tensor& tensor, int /*to*/) {
  return hold({tensor}, 0);
}

Group::Ticket PlannedGroup::start_receive(const at::Tensor& tensor, int /*from*/) {
  return hold({tensor}, 0);
}

std::shared_ptr<Mesh> planned_mesh(const MeshShape& shape, int rank, Transport transport) {
  return make_mesh(shape, rank, [&](const std::string& name, const std::vector<int>& members) {
    const auto own = std::find(members.begin(), members.end(), rank) - members.begin();
    return std::make_unique<PlannedGroup>(name, static_cast<int>(own),
                                          static_cast<int>(members.size()), transport);
  });
}

std::shared_ptr<Mesh> single_mesh() { return planned_mesh(MeshShape{}); }

}  // namespace snug::dist
