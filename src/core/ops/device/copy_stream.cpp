// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/copy_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/trace.h"
#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

// Checks the destination: HostUse::Written memory might be freed and reused while the copy still
// writes to it.
void check_landing(const Copy& copy) {
  const memory::Allocation* to = memory::find_allocation(copy.to);
  SNUG_CHECK(!memory::is_on_host(copy.to) || to->host_use == memory::HostUse::Landing,
             "a copy of {} elements has a destination in host memory that the program writes",
             copy.to.numel());
}

void run(const std::vector<Copy>& copies) {
  const trace::Timed timed(
      trace::Track::Copies, "copy",
      trace::is_on() ? memory::unit_name(memory::current_tag.unit) : std::string());
  for (const Copy& copy : copies) {
    if (copy.whole_storage)
      copy_storage(copy.to, copy.from, Wait::No);
    else
      ops::copy(copy.to, copy.from, Wait::No);
  }
}

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

struct CopyStream::Batch {
  std::optional<c10::Event> done;  // cuda
  std::vector<Copy> copies;        // cpu, until they have happened
  // Batches are complete in their order: to have waited for one is to have waited for all before.
  int64_t number = 1;
  std::shared_ptr<int64_t> waited_for = std::make_shared<int64_t>(0);  // the stream's latest
};

CopyStream::CopyStream(at::Device device) : device_(device) {
  if (device.is_cuda())
    side_ = c10::impl::VirtualGuardImpl(device.type())
                .getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

CopyStream::~CopyStream() {
  try {
    if (side_) wait_for_all_on_host();
  } catch (const std::exception&) {
    // The device has failed: nothing is left to wait for, and somebody else says so.
  }
}

CopyStream::Ticket CopyStream::start(std::vector<Copy> copies) {
  if (copies.empty()) return nullptr;
  for (const Copy& copy : copies) check_landing(copy);
  auto batch = std::make_shared<Batch>();
  if (newest_ != nullptr) {
    batch->number = newest_->number + 1;
    batch->waited_for = newest_->waited_for;
  }
  if (side_) {
    c10::Event so_far(device_.type());
    so_far.record(current_stream(device_));
    so_far.block(*side_);
    {
      const c10::StreamGuard guard(*side_);
      run(copies);
    }
    batch->done.emplace(device_.type());
    batch->done->record(*side_);
  } else if (late_) {
    batch->copies = std::move(copies);
    waiting_.push_back(batch);
  } else {
    run(copies);
  }
  newest_ = batch;
  return batch;
}

void CopyStream::wait(const Ticket& ticket) {
  if (ticket == nullptr) return;
  if (side_)
    ticket->done->block(current_stream(device_));
  else
    run_until(ticket.get());
}

void CopyStream::wait_on_host(const Ticket& ticket) {
  if (ticket == nullptr || ticket->number <= *ticket->waited_for) return;
  *ticket->waited_for = ticket->number;
  note_host_wait(kernel_device(device_));
  if (side_)
    ticket->done->synchronize();
  else
    run_until(ticket.get());
}

void CopyStream::wait_for_all() { wait(newest_); }
void CopyStream::wait_for_all_on_host() { wait_on_host(newest_); }

// Does nothing if the batch is already complete.
void CopyStream::run_until(const Batch* last) {
  const auto waits = [&](const std::shared_ptr<Batch>& batch) { return batch.get() == last; };
  if (std::none_of(waiting_.begin(), waiting_.end(), waits)) return;
  for (bool found = false; !found;) {
    const std::shared_ptr<Batch> batch = std::move(waiting_.front());
    waiting_.pop_front();
    run(batch->copies);
    batch->copies.clear();
    found = batch.get() == last;
  }
}

}  // namespace snug::ops
