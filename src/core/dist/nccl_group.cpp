// Uses libtorch's ProcessGroupNCCL, which has the streams and a watchdog that ends the process if a
// collective hangs on the device.
//
// NCCL sums in the tensors' type, in an order that is fixed for the same machines: unlike with MPI,
// sums of 16-bit numbers are rounded at each hop.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/program.h"
#include "core/memory/guards.h"

namespace snug::dist {
namespace {

using Milliseconds = std::chrono::milliseconds;

struct NcclPending : Group::Pending {
  c10::intrusive_ptr<c10d::Work> work;
  const char* what = "";
  int32_t unit = 0;
  std::vector<at::Tensor> held;
};

// The rendezvous of NCCL's ranks: a small server at the group's first rank, whose address is
// broadcast over MPI.
c10::intrusive_ptr<c10d::Store> open_store(Group& host, Milliseconds timeout) {
  const std::vector<std::string> hosts = host.gather_texts(host_name());
  const bool one_machine =
      std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h == hosts.front(); });
  const std::string address = one_machine ? "127.0.0.1" : hosts.front();
  c10d::TCPStoreOptions options;
  options.port = 0;  // any that is free
  options.isServer = host.rank() == 0;
  options.waitWorkers = false;
  options.timeout = timeout;
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (options.isServer) store = c10::make_intrusive<c10d::TCPStore>(address, options);
  const std::string port =
      host.broadcast_text(store ? std::to_string(store->getPort()) : std::string(), 0);
  options.port = static_cast<uint16_t>(std::stoi(port));
  if (!store) store = c10::make_intrusive<c10d::TCPStore>(address, options);
  return store;
}

class NcclGroup : public Group {
 public:
  NcclGroup(std::unique_ptr<Group> host, at::Device device, double timeout_seconds)
      : Group(host->name(), host->rank(), host->size()),
        host_(std::move(host)),
        device_(device),
        timeout_(static_cast<int64_t>(timeout_seconds * 1e3)) {
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = timeout_;
    options->group_name = name();
    guarded("joining", 0, [&] {
      nccl_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(open_store(*host_, timeout_), rank(),
                                                          size(), options);
    });
  }

  // An orderly shutdown needs all ranks; after a failure the process just ends.
  ~NcclGroup() override {
    if (std::uncaught_exceptions() > 0) {
      static_cast<void>(nccl_.release());
      return;
    }
    try {
      nccl_->shutdown();
    } catch (const std::exception&) {
      // It had no collective under way that anybody still waits for.
    }
  }

  void wait(const Ticket& ticket) override {
    if (!ticket) return;
    auto& pending = static_cast<NcclPending&>(*ticket);
    if (!pending.work) return;
    guarded(pending.what, pending.unit, [&] { pending.work->wait(); });
    release(pending);
  }

  void wait_on_host(const Ticket& ticket) override {
    if (!ticket) return;
    auto& pending = static_cast<NcclPending&>(*ticket);
    if (!pending.work) return;
    const auto begin = std::chrono::steady_clock::now();
    guarded(pending.what, pending.unit, [&] {
      pending.work->wait();
      while (!pending.work->isCompleted()) {
        if (std::chrono::steady_clock::now() - begin > timeout_) {
          throw std::runtime_error(fmt::format("it has not ended in {} s", timeout_.count() / 1e3));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
    release(pending);
  }

  std::vector<double> sum(std::vector<double> values) override {
    return host_->sum(std::move(values));
  }
  std::string broadcast_text(std::string text, int root) override {
    return host_->broadcast_text(std::move(text), root);
  }
  std::vector<std::string> gather_texts(const std::string& text) override {
    return host_->gather_texts(text);
  }

 protected:
  Ticket start_all_reduce(const at::Tensor& tensor) override {
    return start(Operation::AllReduce, {tensor}, [&] {
      std::vector<at::Tensor> tensors{tensor};
      return nccl_->allreduce(tensors, {});
    });
  }
  Ticket start_all_gather(const at::Tensor& whole, const at::Tensor& part) override {
    return start(Operation::AllGather, {whole, part}, [&] {
      at::Tensor out = whole.view({-1});
      at::Tensor in = part.view({-1});
      return nccl_->_allgather_base(out, in, {});
    });
  }
  Ticket start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole) override {
    return start(Operation::ReduceScatter, {part, whole}, [&] {
      at::Tensor out = part.view({-1});
      at::Tensor in = whole.view({-1});
      return nccl_->_reduce_scatter_base(out, in, {});
    });
  }
  Ticket start_broadcast(const at::Tensor& tensor, int root) override {
    return start(Operation::Broadcast, {tensor}, [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return nccl_->broadcast(tensors, options);
    });
  }
  Ticket start_send(const at::Tensor& tensor, int to) override {
    return start(Operation::Send, {tensor}, [&] {
      std::vector<at::Tensor> tensors{tensor};
      return nccl_->send(tensors, to, 0);
    });
  }
  Ticket start_receive(const at::Tensor& tensor, int from) override {
    return start(Operation::Receive, {tensor}, [&] {
      std::vector<at::Tensor> tensors{tensor};
      return nccl_->recv(tensors, from, 0);
    });
  }

 private:
  // Adds rank, collective and unit to errors of NCCL and CUDA.
  template <class Call>
  void guarded(const char* what, int32_t unit, const Call& call) {
    try {
      call();
    } catch (const CommunicationError&) {
      throw;
    } catch (const std::exception& error) {
      throw CommunicationError(fmt::format("rank {} of group {} of {}: {}{}{}: {}", rank(), name(),
                                           size(), what, unit == 0 ? "" : ", unit ",
                                           unit == 0 ? "" : memory::unit_name(unit), error.what()));
    }
  }

  template <class Call>
  Ticket start(Operation operation, std::vector<at::Tensor> held, const Call& call) {
    SNUG_CHECK(held.front().is_cuda(), "NCCL moves tensors on cuda, not on {}",
               held.front().device().str());
    auto pending = std::make_shared<NcclPending>();
    pending->what = dist::name(operation);
    pending->unit = memory::current_tag.unit;
    guarded(pending->what, pending->unit, [&] { pending->work = call(); });
    pending->held = std::move(held);
    return pending;
  }

  static void release(NcclPending& pending) {
    pending.work.reset();
    pending.held.clear();
  }

  std::unique_ptr<Group> host_;
  at::Device device_;
  Milliseconds timeout_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
};

}  // namespace

std::unique_ptr<Group> make_nccl_group(std::unique_ptr<Group> host, at::Device device,
                                       double timeout_seconds) {
  return std::make_unique<NcclGroup>(std::move(host), device, timeout_seconds);
}

}  // namespace snug::dist
