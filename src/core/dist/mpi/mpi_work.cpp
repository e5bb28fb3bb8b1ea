// Collectives that only move bytes.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/mpi/mpi_work.h"

#include <algorithm>

namespace snug::dist {
namespace {

// MPI only reads from it; Stream's type serves both directions.
void* source(const void* data) { return const_cast<void*>(data); }

class Movement : public Work {
 public:
  void send(int to, const void* data, int64_t bytes, int tag) {
    sends_.emplace_back(Stream::Way::Send, source(data), bytes, to, tag);
  }
  void receive(int from, void* data, int64_t bytes, int tag) {
    receives_.emplace_back(Stream::Way::Receive, data, bytes, from, tag);
  }
};

// A broadcast along a chain from the root: each rank forwards what it receives, once.
class Chain : public Movement {
 protected:
  bool step() override {
    if (!receives_.empty() && !sends_.empty()) {
      sends_.front().allow(receives_.front().finished_bytes());
    }
    return false;
  }
};

}  // namespace

bool Work::progress() {
  bool moved = false;
  for (Stream& stream : receives_) moved |= stream.progress();
  moved |= step();
  for (Stream& stream : sends_) moved |= stream.progress();
  return moved;
}

bool Work::is_done() const {
  const auto done = [](const Stream& stream) { return stream.is_done(); };
  return std::all_of(receives_.begin(), receives_.end(), done) &&
         std::all_of(sends_.begin(), sends_.end(), done) && !has_more_steps();
}

std::vector<int> Work::awaited() const {
  std::vector<int> ranks;
  for (const auto* streams : {&receives_, &sends_}) {
    for (const Stream& stream : *streams) {
      if (!stream.is_done()) ranks.push_back(stream.peer());
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::shared_ptr<Work> all_gather_work(const Members& members, void* whole, const void* part,
                                      int64_t part_bytes, int tag) {
  std::vector<ByteRange> parts;
  for (int member = 0; member < members.size(); ++member) {
    parts.push_back({static_cast<char*>(whole) + member * part_bytes, part_bytes});
  }
  parts[static_cast<size_t>(members.own)].data = source(part);
  return gather_stretches_work(members, parts, tag);
}

std::shared_ptr<Work> gather_stretches_work(const Members& members,
                                            const std::vector<ByteRange>& parts, int tag) {
  auto work = std::make_shared<Movement>();
  const ByteRange& own = parts[static_cast<size_t>(members.own)];
  for (int k = 0; k + 1 < members.size(); ++k) {
    const int peer = members.other(k);
    const ByteRange& part = parts[static_cast<size_t>(peer)];
    work->send(members.rank_of(peer), own.data, own.bytes, tag);
    work->receive(members.rank_of(peer), part.data, part.bytes, tag);
  }
  return work;
}

std::shared_ptr<Work> broadcast_work(const Members& members, void* data, int64_t bytes, int root,
                                     int tag) {
  auto work = std::make_shared<Chain>();
  const int place = (members.own - root + members.size()) % members.size();
  const auto at = [&](int p) { return members.rank_of((root + p) % members.size()); };
  if (place > 0) work->receive(at(place - 1), data, bytes, tag);
  if (place + 1 < members.size()) work->send(at(place + 1), data, bytes, tag);
  return work;
}

std::shared_ptr<Work> send_work(int to, const void* data, int64_t bytes, int tag) {
  auto work = std::make_shared<Movement>();
  work->send(to, data, bytes, tag);
  return work;
}

std::shared_ptr<Work> receive_work(int from, void* data, int64_t bytes, int tag) {
  auto work = std::make_shared<Movement>();
  work->receive(from, data, bytes, tag);
  return work;
}

}  // namespace snug::dist
