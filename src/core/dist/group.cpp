// Common to all groups: checks arguments, counts traffic, and completes a collective of a single
// rank at once.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/group.h"

#include <fmt/format.h>

#include "base/error.h"

namespace snug::dist {
namespace {

void check_tensor(const char* what, const at::Tensor& tensor) {
  SNUG_CHECK(tensor.defined(), "{}: no tensor", what);
  SNUG_CHECK(tensor.is_contiguous(), "{}: tensor is not contiguous", what);
}

// Types that can be summed in float32.
void check_summed(const char* what, const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  SNUG_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
             "{}: cannot sum {}; float32, bfloat16 and float16 can be", what, at::toString(type));
}

void check_parts(const char* what, const at::Tensor& whole, const at::Tensor& part, int size) {
  check_tensor(what, whole);
  check_tensor(what, part);
  SNUG_CHECK(whole.scalar_type() == part.scalar_type(), "{}: whole is {}, part {}", what,
             at::toString(whole.scalar_type()), at::toString(part.scalar_type()));
  SNUG_CHECK(whole.device() == part.device(), "{}: whole is on {}, part on {}", what,
             whole.device().str(), part.device().str());
  SNUG_CHECK(whole.numel() == part.numel() * size, "{}: whole has {} elements, {} parts of {} each",
             what, whole.numel(), size, part.numel());
}

void check_peer(const char* what, int peer, int size) {
  SNUG_CHECK(peer >= 0 && peer < size, "{}: rank {} of a group of {}", what, peer, size);
}

// With a single rank the part is the whole.
void copy_alone(const at::Tensor& to, const at::Tensor& from) {
  if (to.is_meta() || to.numel() == 0 || to.const_data_ptr() == from.const_data_ptr()) return;
  to.copy_(from.view(to.sizes()), /*non_blocking=*/true);
}

}  // namespace

const char* name(Operation operation) {
  switch (operation) {
    case Operation::AllReduce:
      return "all-reduce";
    case Operation::AllGather:
      return "all-gather";
    case Operation::ReduceScatter:
      return "reduce-scatter";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::Send:
      return "send";
    case Operation::Receive:
      return "receive";
  }
  return "?";
}

Group::Ticket Group::all_reduce(const at::Tensor& tensor) {
  check_tensor("all-reduce", tensor);
  check_summed("all-reduce", tensor);
  if (size_ == 1 || tensor.numel() == 0) return nullptr;
  count(Operation::AllReduce, tensor);
  return start_all_reduce(tensor);
}

Group::Ticket Group::all_gather(const at::Tensor& whole, const at::Tensor& part) {
  check_parts("all-gather", whole, part, size_);
  if (size_ == 1) copy_alone(whole, part);
  if (size_ == 1 || part.numel() == 0) return nullptr;
  count(Operation::AllGather, whole);
  return start_all_gather(whole, part);
}

Group::Ticket Group::reduce_scatter(const at::Tensor& part, const at::Tensor& whole) {
  check_parts("reduce-scatter", whole, part, size_);
  check_summed("reduce-scatter", whole);
  if (size_ == 1) copy_alone(part, whole);
  if (size_ == 1 || part.numel() == 0) return nullptr;
  count(Operation::ReduceScatter, whole);
  return start_reduce_scatter(part, whole);
}

Group::Ticket Group::broadcast(const at::Tensor& tensor, int root) {
  check_tensor("broadcast", tensor);
  check_peer("broadcast", root, size_);
  if (size_ == 1 || tensor.numel() == 0) return nullptr;
  count(Operation::Broadcast, tensor);
  return start_broadcast(tensor, root);
}

Group::Ticket Group::send(const at::Tensor& tensor, int to) {
  check_tensor("send", tensor);
  check_peer("send", to, size_);
  SNUG_CHECK(to != rank_, "rank {} of group {} sends to itself", rank_, name_);
  if (tensor.numel() == 0) return nullptr;
  count(Operation::Send, tensor);
  return start_send(tensor, to);
}

Group::Ticket Group::receive(const at::Tensor& tensor, int from) {
  check_tensor("receive", tensor);
  check_peer("receive", from, size_);
  SNUG_CHECK(from != rank_, "rank {} of group {} receives from itself", rank_, name_);
  if (tensor.numel() == 0) return nullptr;
  count(Operation::Receive, tensor);
  return start_receive(tensor, from);
}

void Group::count(Operation operation, const at::Tensor& tensor) {
  Traffic& traffic = traffic_[static_cast<size_t>(operation)];
  ++traffic.calls;
  traffic.bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

}  // namespace snug::dist
