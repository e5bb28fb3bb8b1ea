// Collectives that sum, in float32 and in rank order, rounded once: the result does not depend on
// how the tensor is split, so replicas, shards and short tensors agree bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/dist/mpi/mpi_work.h"
#include "core/dist/staging.h"
#include "core/kernels/cpu/elementwise.h"

namespace snug::dist {
namespace {

using kernels::Scalar;
using kernels::scalar_bytes;

// Runs on one thread, since the others compute. `out` may be one of the addends.
void sum_in_order(const std::vector<const char*>& addends, Scalar type, char* out, int64_t count) {
  constexpr int64_t kBlock = 4096;
  float sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    const int64_t offset = begin * scalar_bytes(type);
    kernels::cpu::cast(addends[0] + offset, type, sum, Scalar::F32, length, 1);
    for (size_t i = 1; i < addends.size(); ++i) {
      kernels::cpu::accumulate(sum, Scalar::F32, addends[i] + offset, type, length, 1.0f, 1);
    }
    kernels::cpu::cast(sum, Scalar::F32, out + offset, type, length, 1);
  }
}

// The split of `count` elements: part_count for each member; the last ones may get fewer.
struct Parts {
  int64_t count = 0;
  int64_t part_count = 0;
  int64_t element_bytes = 0;

  int64_t begin(int member) const { return std::min(count, member * part_count) * element_bytes; }
  int64_t bytes(int member) const { return begin(member + 1) - begin(member); }
};

// Receives this member's part from all others into the staging buffer, a chunk at a time;
// receives_[k] and sends_[k] belong to members_.other(k).
class Reduction : public Work {
 public:
  Reduction(const Members& members, char* whole, const Parts& parts, char* out,
            const SumArguments& arguments)
      : members_(members),
        whole_(whole),
        parts_(parts),
        out_(out),
        type_(arguments.type),
        staging_(reduce_scatter_staging(parts.part_count, parts.element_bytes, members.size())),
        places_(static_cast<char*>(arguments.staging)),
        chunk_bytes_(staging_.chunk * parts.element_bytes),
        addends_(static_cast<size_t>(members.size())) {
    for (int k = 0; k + 1 < members_.size(); ++k) {
      const int peer = members_.other(k);
      const int rank = members_.rank_of(peer);
      sends_.emplace_back(Stream::Way::Send, whole_ + parts_.begin(peer), parts_.bytes(peer), rank,
                          arguments.tag, chunk_bytes_);
      receives_.emplace_back(Stream::Way::Receive, places_of(k), own_bytes(), rank, arguments.tag,
                             chunk_bytes_);
      receives_.back().wrap(staging_.num_places);
      receives_.back().allow(staging_.num_places * chunk_bytes_);
    }
  }

 protected:
  bool step() override {
    bool any = false;
    while (summed_ < own_bytes() && has_arrived(std::min(own_bytes(), summed_ + chunk_bytes_))) {
      sum_chunk();
      any = true;
    }
    return any;
  }
  bool has_more_steps() const override { return summed_ < own_bytes(); }

  int num_others() const { return members_.size() - 1; }
  int64_t own_bytes() const { return parts_.bytes(members_.own); }

  Members members_;
  char* whole_;
  Parts parts_;
  char* out_;  // of this member's part; may lie in whole
  int64_t summed_ = 0;

 private:
  char* places_of(int k) const { return places_ + k * staging_.num_places * chunk_bytes_; }

  bool has_arrived(int64_t bytes) const {
    return std::all_of(receives_.begin(), receives_.begin() + num_others(),
                       [&](const Stream& stream) { return stream.finished_bytes() >= bytes; });
  }

  void sum_chunk() {
    const int64_t place = summed_ / chunk_bytes_ % staging_.num_places;
    const int64_t bytes = std::min(chunk_bytes_, own_bytes() - summed_);
    addends_[static_cast<size_t>(members_.own)] = whole_ + parts_.begin(members_.own) + summed_;
    for (int k = 0; k < num_others(); ++k) {
      addends_[static_cast<size_t>(members_.other(k))] = places_of(k) + place * chunk_bytes_;
    }
    sum_in_order(addends_, type_, out_ + summed_, bytes / parts_.element_bytes);
    summed_ += bytes;
    for (int k = 0; k < num_others(); ++k) {
      receives_[static_cast<size_t>(k)].allow(summed_ / chunk_bytes_ * chunk_bytes_ +
                                              staging_.num_places * chunk_bytes_);
    }
  }

  Scalar type_;
  Staging staging_;
  char* places_;
  int64_t chunk_bytes_;
  std::vector<const char*> addends_;
};

// A reduction in place that sends sums while the rest is still being added. A peer's sum overwrites
// what was sent to it, so it may be received only as far as that has been sent.
class AllReduction : public Reduction {
 public:
  AllReduction(const Members& members, char* data, const Parts& parts,
               const SumArguments& arguments)
      : Reduction(members, data, parts, data + parts.begin(members.own), arguments) {
    for (int k = 0; k < num_others(); ++k) {
      const int peer = members_.other(k);
      const int rank = members_.rank_of(peer);
      sends_.emplace_back(Stream::Way::Send, out_, own_bytes(), rank, arguments.tag + 1);
      sends_.back().allow(0);
      receives_.emplace_back(Stream::Way::Receive, whole_ + parts_.begin(peer), parts_.bytes(peer),
                             rank, arguments.tag + 1);
      receives_.back().allow(0);
    }
  }

 protected:
  bool step() override {
    const bool any = Reduction::step();
    for (int k = 0; k < num_others(); ++k) {
      const auto first = static_cast<size_t>(k);
      const auto second = static_cast<size_t>(k + num_others());
      sends_[second].allow(summed_);
      receives_[second].allow(sends_[first].finished_bytes());
    }
    return any;
  }
};

// For a short tensor: every rank sends all of it to every other. The sum overwrites it once it has
// been sent.
class SumAtOnce : public Work {
 public:
  SumAtOnce(const Members& members, char* data, int64_t count, const SumArguments& arguments)
      : data_(data), count_(count), type_(arguments.type) {
    const int64_t bytes = count * scalar_bytes(type_);
    auto* places = static_cast<char*>(arguments.staging);
    addends_.resize(static_cast<size_t>(members.size()));
    addends_[static_cast<size_t>(members.own)] = data;
    for (int k = 0; k + 1 < members.size(); ++k) {
      const int peer = members.other(k);
      const int rank = members.rank_of(peer);
      addends_[static_cast<size_t>(peer)] = places + k * bytes;
      sends_.emplace_back(Stream::Way::Send, data, bytes, rank, arguments.tag);
      receives_.emplace_back(Stream::Way::Receive, places + k * bytes, bytes, rank, arguments.tag);
    }
  }

 protected:
  bool step() override {
    const auto done = [](const Stream& stream) { return stream.is_done(); };
    if (summed_ || !std::all_of(sends_.begin(), sends_.end(), done) ||
        !std::all_of(receives_.begin(), receives_.end(), done)) {
      return false;
    }
    sum_in_order(addends_, type_, data_, count_);
    summed_ = true;
    return true;
  }
  bool has_more_steps() const override { return !summed_; }

 private:
  char* data_;
  int64_t count_;
  Scalar type_;
  bool summed_ = false;
  std::vector<const char*> addends_;
};

}  // namespace

std::shared_ptr<Work> reduce_scatter_work(const Members& members, void* part, void* whole,
                                          int64_t part_count, const SumArguments& arguments) {
  const Parts parts{part_count * members.size(), part_count, scalar_bytes(arguments.type)};
  return std::make_shared<Reduction>(members, static_cast<char*>(whole), parts,
                                     static_cast<char*>(part), arguments);
}

std::shared_ptr<Work> all_reduce_work(const Members& members, void* data, int64_t count,
                                      const SumArguments& arguments) {
  auto* bytes = static_cast<char*>(data);
  const int64_t element_bytes = scalar_bytes(arguments.type);
  if (is_summed_at_once(count, element_bytes, members.size())) {
    return std::make_shared<SumAtOnce>(members, bytes, count, arguments);
  }
  const Parts parts{count, all_reduce_part(count, members.size()), element_bytes};
  return std::make_shared<AllReduction>(members, bytes, parts, arguments);
}

}  // namespace snug::dist
