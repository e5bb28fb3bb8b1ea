// SPDX-License-Identifier: Apache-2.0
#include "core/dist/mpi/mpi_group.h"

#include <fmt/format.h>

#include "base/error.h"
#include "core/dist/staging.h"
#include "core/dist/staging_memory.h"

namespace snug::dist {
namespace {

struct MpiPending : Group::Pending {
  explicit MpiPending(std::shared_ptr<Work> what) : work(std::move(what)) {}
  std::shared_ptr<Work> work;
};

kernels::Scalar scalar_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return kernels::Scalar::F32;
    case at::kBFloat16:
      return kernels::Scalar::BF16;
    default:
      return kernels::Scalar::F16;
  }
}

int64_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * tensor.element_size(); }

void check_on_cpu(const at::Tensor& tensor) {
  SNUG_CHECK(tensor.is_cpu(), "MPI moves tensors on cpu, not on {}", tensor.device().str());
}

}  // namespace

MpiGroup::MpiGroup(std::string name, Members members, int channel,
                   std::shared_ptr<MpiThread> thread)
    : Group(std::move(name), members.own, members.size()),
      members_(std::move(members)),
      channel_(channel),
      thread_(std::move(thread)),
      num_sent_(static_cast<size_t>(size())),
      num_received_(static_cast<size_t>(size())) {}

void MpiGroup::wait(const Ticket& ticket) {
  if (ticket) thread_->wait(*static_cast<MpiPending&>(*ticket).work);
}

// A channel's tags: half for collectives, half for messages between two members.
int MpiGroup::tags_a_half() const { return thread_->last_tag() / (2 * kNumChannels) / 2 * 2; }

int MpiGroup::next_tag(int num_tags) {
  // An all-reduce needs two consecutive tags, so align them: the range must not wrap between the
  // two.
  if (num_tags == 2) num_tags_ += num_tags_ % 2;
  const int tag = 2 * channel_ * tags_a_half() + static_cast<int>(num_tags_ % tags_a_half());
  num_tags_ += num_tags;
  return tag;
}

int MpiGroup::next_tag_between(std::vector<int64_t>& counts, int member) {
  const int64_t number = counts[static_cast<size_t>(member)]++;
  return (2 * channel_ + 1) * tags_a_half() + static_cast<int>(number % tags_a_half());
}

Group::Ticket MpiGroup::start(std::shared_ptr<Work> work, const char* what,
                              std::vector<at::Tensor> held) {
  const int32_t unit = memory::current_tag.unit;
  work->collective = fmt::format("{} of group {} (#{})", what, name(), ++num_collectives_);
  work->unit = unit == 0 ? "" : memory::unit_name(unit);
  work->held = std::move(held);
  thread_->submit(work);
  return std::make_shared<MpiPending>(std::move(work));
}

Group::Ticket MpiGroup::start_all_reduce(const at::Tensor& tensor) {
  check_on_cpu(tensor);
  const at::Tensor staging = staging_memory(
      all_reduce_staging_bytes(tensor.numel(), tensor.element_size(), size()), tensor.device());
  auto work = all_reduce_work(members_, tensor.mutable_data_ptr(), tensor.numel(),
                              {scalar_of(tensor), staging.mutable_data_ptr(), next_tag(2)});
  work->queue = channel_;
  return start(std::move(work), dist::name(Operation::AllReduce), {tensor, staging});
}

Group::Ticket MpiGroup::start_all_gather(const at::Tensor& whole, const at::Tensor& part) {
  check_on_cpu(whole);
  // This rank's slot in the whole is not sent.
  auto* own = static_cast<char*>(whole.mutable_data_ptr()) + rank() * bytes_of(part);
  if (own != part.const_data_ptr()) std::memcpy(own, part.const_data_ptr(), bytes_of(part));
  auto work = all_gather_work(members_, whole.mutable_data_ptr(), own, bytes_of(part), next_tag());
  work->queue = channel_;
  return start(std::move(work), dist::name(Operation::AllGather), {whole, part});
}

Group::Ticket MpiGroup::start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole) {
  check_on_cpu(whole);
  const Staging sizes = reduce_scatter_staging(part.numel(), part.element_size(), size());
  const at::Tensor staging = staging_memory(sizes.bytes, part.device());
  auto work =
      reduce_scatter_work(members_, part.mutable_data_ptr(), whole.mutable_data_ptr(), part.numel(),
                          {scalar_of(part), staging.mutable_data_ptr(), next_tag()});
  work->queue = channel_;
  return start(std::move(work), dist::name(Operation::ReduceScatter), {part, whole, staging});
}

Group::Ticket MpiGroup::start_broadcast(const at::Tensor& tensor, int root) {
  check_on_cpu(tensor);
  auto work =
      broadcast_work(members_, tensor.mutable_data_ptr(), bytes_of(tensor), root, next_tag());
  work->queue = channel_;
  return start(std::move(work), dist::name(Operation::Broadcast), {tensor});
}

Group::Ticket MpiGroup::start_send(const at::Tensor& tensor, int to) {
  check_on_cpu(tensor);
  auto work = send_work(members_.rank_of(to), tensor.const_data_ptr(), bytes_of(tensor),
                        next_tag_between(num_sent_, to));
  return start(std::move(work), dist::name(Operation::Send), {tensor});
}

Group::Ticket MpiGroup::start_receive(const at::Tensor& tensor, int from) {
  check_on_cpu(tensor);
  auto work = receive_work(members_.rank_of(from), tensor.mutable_data_ptr(), bytes_of(tensor),
                           next_tag_between(num_received_, from));
  return start(std::move(work), dist::name(Operation::Receive), {tensor});
}

void MpiGroup::run(std::shared_ptr<Work> work, const char* what) {
  work->queue = channel_;
  wait(start(std::move(work), what, {}));
}

std::vector<double> MpiGroup::sum(std::vector<double> values) {
  if (size() == 1) return values;
  // Preceded by the count, so that ranks synchronize even without values.
  const size_t range = values.size() + 1;
  std::vector<double> all(range * static_cast<size_t>(size()));
  double* own = &all[range * static_cast<size_t>(rank())];
  own[0] = static_cast<double>(values.size());
  std::copy(values.begin(), values.end(), own + 1);
  run(all_gather_work(members_, all.data(), own, static_cast<int64_t>(range * sizeof(double)),
                      next_tag()),
      values.empty() ? "barrier" : "sum of numbers");
  std::fill(values.begin(), values.end(), 0.0);
  for (size_t member = 0; member < static_cast<size_t>(size()); ++member) {
    const double* theirs = &all[range * member];
    SNUG_CHECK(theirs[0] == own[0], "rank {} of group {} sums {} numbers, rank {} {}", rank(),
               name(), own[0], member, theirs[0]);
    for (size_t i = 0; i < values.size(); ++i) values[i] += theirs[i + 1];
  }
  return values;
}

std::string MpiGroup::broadcast_text(std::string text, int root) {
  if (size() == 1) return text;
  auto length = static_cast<int64_t>(text.size());
  run(broadcast_work(members_, &length, sizeof length, root, next_tag()), "broadcast of a text");
  text.resize(static_cast<size_t>(length));
  run(broadcast_work(members_, text.data(), length, root, next_tag()), "broadcast of a text");
  return text;
}

std::vector<std::string> MpiGroup::gather_texts(const std::string& text) {
  if (size() == 1) return {text};
  std::vector<int64_t> lengths(static_cast<size_t>(size()));
  int64_t& own_length = lengths[static_cast<size_t>(rank())];
  own_length = static_cast<int64_t>(text.size());
  run(all_gather_work(members_, lengths.data(), &own_length, sizeof own_length, next_tag()),
      "gathering of texts");
  std::vector<std::string> texts;
  std::vector<ByteRange> parts;
  for (const int64_t length : lengths) texts.emplace_back(static_cast<size_t>(length), '\0');
  texts[static_cast<size_t>(rank())] = text;
  for (std::string& one : texts) parts.push_back({one.data(), static_cast<int64_t>(one.size())});
  run(gather_stretches_work(members_, parts, next_tag()), "gathering of texts");
  return texts;
}

}  // namespace snug::dist
