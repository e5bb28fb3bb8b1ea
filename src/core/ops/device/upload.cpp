// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/upload.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <exception>

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"
#include "core/ops/elementwise.h"

namespace snug::ops {

at::Tensor Upload::tensor(const void* values, at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor result = at::empty(sizes, at::TensorOptions().device(device_).dtype(type));
  if (result.numel() == 0) return result;
  const bool travels = kernel_device(result) == at::kCUDA;
  const at::Tensor filled =
      travels ? memory::empty_on_host(sizes, type, device_, memory::current_tag.category,
                                      memory::HostUse::Written)
              : result;
  if (!filled.is_meta()) std::memcpy(filled.mutable_data_ptr(), values, filled.nbytes());
  if (!travels) return result;
  copy(result, filled, Wait::No);
  staged_.push_back(filled);
  if (!device_.is_cuda()) return result;
  if (!sent_) sent_.emplace(device_.type());
  sent_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return result;
}

Upload::~Upload() {
  try {
    if (!sent_ || sent_->query()) return;
    note_host_wait(device_.type());
    sent_->synchronize();
  } catch (const std::exception&) {
    // The device has failed: nothing is left to wait for, and somebody else says so.
  }
}

}  // namespace snug::ops
