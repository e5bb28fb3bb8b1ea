// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/home_copies.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/memory/disk_file.h"
#include "core/memory/placement.h"
#include "core/ops/device/device.h"

namespace snug::exec {
namespace {

// Whether the weight goes through a buffer.
bool is_staged(const nn::Parameter& parameter) {
  return memory::is_in_file(parameter.home) && ops::kernel_device(parameter.value) == at::kCUDA;
}

int64_t room_of(const at::Tensor& home) {
  return memory::DiskFile::padded(static_cast<int64_t>(home.nbytes()));
}

// `home` in the bytes from `begin` on. On meta nothing is copied, as by other copies there.
at::Tensor staged(const at::Tensor& home, const at::Tensor& bytes, int64_t begin) {
  at::Tensor own = bytes.narrow(0, begin, static_cast<int64_t>(home.nbytes()))
                       .view(home.scalar_type())
                       .view(home.sizes());
  if (!own.is_meta()) own.copy_(home);
  return own;
}

}  // namespace

HomeCopies::HomeCopies(ops::CopyStream& copies,
                       const std::vector<std::vector<nn::Parameter*>>& batches)
    : copies_(copies) {
  int64_t most = 0;
  const nn::Parameter* any = nullptr;
  for (const std::vector<nn::Parameter*>& batch : batches) {
    int64_t bytes = 0;
    for (const nn::Parameter* parameter : batch) {
      if (!is_staged(*parameter)) continue;
      bytes += room_of(parameter->home);
      any = parameter;
    }
    most = std::max(most, bytes);
  }
  if (any == nullptr) return;
  for (Buffer& buffer : buffers_)
    buffer.bytes = memory::empty_on_host({most}, at::kByte, any->value.device(),
                                         memory::Category::Parameters, memory::HostUse::Written);
}

ops::CopyStream::Ticket HomeCopies::start(const std::vector<const nn::Parameter*>& parameters) {
  std::vector<ops::Copy> copies;
  const bool stages = std::ranges::any_of(
      parameters, [](const nn::Parameter* parameter) { return is_staged(*parameter); });
  Buffer* buffer = stages ? &buffers_[next_++ % buffers_.size()] : nullptr;
  if (buffer != nullptr) copies_.wait_on_host(buffer->read);
  int64_t begin = 0;
  for (const nn::Parameter* parameter : parameters) {
    at::Tensor from = parameter->home;
    if (is_staged(*parameter)) {
      from = staged(parameter->home, buffer->bytes, begin);
      begin += room_of(parameter->home);
    }
    copies.push_back({parameter->value.detach(), std::move(from)});
  }
  ops::CopyStream::Ticket ticket = copies_.start(std::move(copies));
  if (buffer != nullptr) buffer->read = ticket;
  return ticket;
}

void read_ahead(const std::vector<nn::Parameter*>& parameters) {
  for (const nn::Parameter* parameter : parameters) memory::read_ahead(parameter->home);
}

void send_weights_from_home(const std::vector<nn::Parameter*>& parameters,
                            ops::CopyStream& copies) {
  std::vector<ops::Copy> all;
  for (const nn::Parameter* parameter : parameters)
    if (parameter->home.defined() && !memory::is_vacant(parameter->value))
      all.push_back({.to = parameter->value.detach(), .from = parameter->home});
  copies.start(std::move(all));
}

}  // namespace snug::exec
