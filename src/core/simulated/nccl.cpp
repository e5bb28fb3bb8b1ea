// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/add.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "core/simulated/operators.h"
#include "core/simulated/streams.h"

namespace c10d {

namespace simulated = snug::simulated;
using snug::kernels::simulated::Use;
using Bytes = std::vector<uint8_t>;

// What one rank gives to and takes from others. Tensors are of the cpu, over the device's memory.
struct ProcessGroupNCCL::Exchange {
  std::string label;                // must be the same on all ranks
  std::string name;                 // of its place in the store
  std::string own;                  // key; empty: gives nothing
  std::vector<std::string> others;  // keys that it takes, its own maybe among them
  int readers = 0;                  // of each key; the last one deletes it
  std::vector<at::Tensor> reads, writes;
  std::function<void(const std::vector<at::Tensor>&)> finish;  // gets what is under `others`
  bool given = false;
};

namespace {

cudaStream_t current() { return c10::cuda::getCurrentCUDAStream().stream(); }

Bytes packed(const std::string& label, const at::Tensor& values) {
  Bytes bytes(label.begin(), label.end());
  bytes.push_back(0);
  const at::Tensor whole = values.contiguous();
  const auto* data = static_cast<const uint8_t*>(whole.const_data_ptr());
  bytes.insert(bytes.end(), data, data + whole.nbytes());
  return bytes;
}

at::Tensor unpacked(const Bytes& bytes, const std::string& label, at::ScalarType type) {
  const std::string theirs(reinterpret_cast<const char*>(bytes.data()));
  TORCH_CHECK(theirs == label, "NCCL: this rank is in \"", label, "\", another in \"", theirs,
              "\"");
  const size_t begin = theirs.size() + 1;
  const auto count = static_cast<int64_t>((bytes.size() - begin) / c10::elementSize(type));
  const at::Tensor values = at::empty({count}, at::TensorOptions().dtype(type));
  std::memcpy(values.mutable_data_ptr(), bytes.data() + begin, bytes.size() - begin);
  return values;
}

// Behind all of a collective.
class Behind final : public Work {
 public:
  explicit Behind(simulated::Mark mark) : mark_(std::move(mark)) {}
  bool isCompleted() override {
    throw_fault();
    return simulated::is_done(mark_);
  }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    throw_fault();
    simulated::make_wait(simulated::stream_of(current()), mark_);
    return true;
  }

 private:
  static void throw_fault() {
    if (const std::string fault = simulated::fault(); !fault.empty())
      throw std::runtime_error("simulated GPU: " + fault);
  }
  simulated::Mark mark_;
};

// As libtorch's watchdog does, since what the device waits for will never come.
[[noreturn]] void end_process(const std::string& label, const char* why) {
  std::fprintf(stderr, "simulated GPU: NCCL: %s: %s\n", label.c_str(), why);
  std::abort();
}

}  // namespace

ProcessGroupNCCL::ProcessGroupNCCL(c10::intrusive_ptr<Store> store, int rank, int size,
                                   c10::intrusive_ptr<Options> options)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      options_(std::move(options)),
      stream_(simulated::make_stream(/*priority=*/-1)) {}

c10::intrusive_ptr<Work> ProcessGroupNCCL::start(const char* name, Exchange exchange) {
  simulated::make_wait(stream_, simulated::mark(simulated::stream_of(current())));
  auto state = std::make_shared<Exchange>(std::move(exchange));
  auto deadline = std::make_shared<std::chrono::steady_clock::time_point>();
  const auto work = [store = store_, state, deadline, timeout = options_->timeout] {
    Exchange& e = *state;
    if (!std::exchange(e.given, true)) {
      *deadline = std::chrono::steady_clock::now() + timeout;
      for (const at::Tensor& tensor : e.reads) simulated::touch_tensor(tensor, Use::Passes);
      if (!e.own.empty()) store->set(e.own, packed(e.label, e.reads.front()));
    }
    if (!e.others.empty() && !store->check(e.others)) {
      if (std::chrono::steady_clock::now() >= *deadline)
        end_process(e.label, "it has waited for other ranks for longer than its timeout");
      return false;
    }
    for (const at::Tensor& tensor : e.writes) simulated::touch_tensor(tensor, Use::Writes);
    std::vector<at::Tensor> values;
    const at::ScalarType type = (e.reads.empty() ? e.writes : e.reads).front().scalar_type();
    for (const std::string& key : e.others)
      values.push_back(unpacked(store->get(key), e.label, type));
    if (e.finish) e.finish(values);
    if (!e.others.empty() && store->add(e.name + "/read", 1) == e.readers) {
      for (const std::string& key : e.others) store->deleteKey(key);
      store->deleteKey(e.name + "/read");
    }
    return true;
  };
  simulated::enqueue_collective(stream_, name, [state, work] {
    try {
      return work();
    } catch (const c10::DistError& error) {  // the rank that keeps the store is gone
      end_process(state->label, error.what_without_backtrace());
    }
  });
  return c10::make_intrusive<Behind>(simulated::mark(stream_));
}

namespace {

std::string label_of(const char* what, const at::Tensor& in, int64_t number, int root = 0) {
  return fmt::format("{} {} of {} {}, root {}", what, number, in.numel(),
                     c10::toString(in.scalar_type()), root);
}

std::vector<std::string> keys_of(const std::string& name, int size) {
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(fmt::format("{}/{}", name, r));
  return keys;
}

// In the tensors' type, rounded at each addition.
at::Tensor sum(const std::vector<at::Tensor>& values) {
  at::Tensor total = values.front();
  for (size_t i = 1; i < values.size(); ++i) total = at::add(total, values[i]);
  return total;
}

}  // namespace

c10::intrusive_ptr<Work> ProcessGroupNCCL::allreduce(std::vector<at::Tensor>& tensors,
                                                     const AllreduceOptions&) {
  const at::Tensor tensor = simulated::on_cpu(tensors.front());
  Exchange e{.label = label_of("all-reduce", tensor, num_collectives_),
             .name = std::to_string(num_collectives_++)};
  e.others = keys_of(e.name, size_);
  e.own = e.others[rank_];
  e.readers = size_;
  e.reads = e.writes = {tensor};
  e.finish = [tensor](const auto& values) { tensor.copy_(sum(values).view(tensor.sizes())); };
  return start("all-reduce", std::move(e));
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::_allgather_base(at::Tensor& out, at::Tensor& in,
                                                           const AllgatherOptions&) {
  const at::Tensor to = simulated::on_cpu(out), from = simulated::on_cpu(in);
  Exchange e{.label = label_of("all-gather", from, num_collectives_),
             .name = std::to_string(num_collectives_++)};
  e.others = keys_of(e.name, size_);
  e.own = e.others[rank_];
  e.readers = size_;
  e.reads = {from};
  e.writes = {to};
  e.finish = [to, n = from.numel()](const auto& values) {
    for (size_t r = 0; r < values.size(); ++r)
      to.slice(0, static_cast<int64_t>(r) * n, (static_cast<int64_t>(r) + 1) * n).copy_(values[r]);
  };
  return start("all-gather", std::move(e));
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::_reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                                                const ReduceScatterOptions&) {
  const at::Tensor to = simulated::on_cpu(out), from = simulated::on_cpu(in);
  Exchange e{.label = label_of("reduce-scatter", from, num_collectives_),
             .name = std::to_string(num_collectives_++)};
  e.others = keys_of(e.name, size_);
  e.own = e.others[rank_];
  e.readers = size_;
  e.reads = {from};
  e.writes = {to};
  e.finish = [to, rank = rank_](const auto& values) {
    to.copy_(sum(values).slice(0, rank * to.numel(), (rank + 1) * to.numel()));
  };
  return start("reduce-scatter", std::move(e));
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::broadcast(std::vector<at::Tensor>& tensors,
                                                     const BroadcastOptions& options) {
  const at::Tensor tensor = simulated::on_cpu(tensors.front());
  const int root = static_cast<int>(options.rootRank);
  Exchange e{.label = label_of("broadcast", tensor, num_collectives_, root),
             .name = std::to_string(num_collectives_++)};
  const std::string key = keys_of(e.name, size_)[root];
  if (rank_ == root) e.own = key;
  e.others = {key};
  e.readers = size_;
  (rank_ == root ? e.reads : e.writes) = {tensor};
  if (rank_ != root)
    e.finish = [tensor](const auto& values) { tensor.copy_(values[0].view(tensor.sizes())); };
  return start("broadcast", std::move(e));
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::send(std::vector<at::Tensor>& tensors, int to,
                                                int /*tag*/) {
  const int64_t number = num_sent_[{rank_, to}]++;
  Exchange e{.name = fmt::format("{}-{}/{}", rank_, to, number)};
  e.reads = {simulated::on_cpu(tensors.front())};
  e.label = label_of("send", e.reads[0], number);
  e.own = e.name + "/0";
  return start("send", std::move(e));
}

c10::intrusive_ptr<Work> ProcessGroupNCCL::recv(std::vector<at::Tensor>& tensors, int from,
                                                int /*tag*/) {
  const int64_t number = num_sent_[{from, rank_}]++;
  Exchange e{.name = fmt::format("{}-{}/{}", from, rank_, number)};
  const at::Tensor tensor = simulated::on_cpu(tensors.front());
  e.writes = {tensor};
  e.label = label_of("send", tensor, number);
  e.others = {e.name + "/0"};
  e.readers = 1;
  e.finish = [tensor](const auto& values) { tensor.copy_(values[0].view(tensor.sizes())); };
  return start("receive", std::move(e));
}

// Whoever keeps the store may end before others have read what is theirs.
void ProcessGroupNCCL::shutdown() {
  const simulated::Mark end = simulated::mark(stream_);
  while (simulated::fault().empty() && !simulated::is_done(end))
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (!simulated::fault().empty()) return;
  const auto deadline = std::chrono::steady_clock::now() + options_->timeout;
  store_->add("done", 1);
  while (store_->add("done", 0) < size_ && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (rank_ != 0) store_->add("left", 1);
  while (rank_ == 0 && store_->add("left", 0) < size_ - 1 &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
}

}  // namespace c10d

// The version that libtorch brings, whose interface this stands in for.
extern "C" int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
