// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/expert_streaming.h"

#include <algorithm>
#include <utility>

#include "core/memory/guards.h"
#include "core/memory/placement.h"

namespace snug::exec {
namespace {

// One unit's experts, all of one size. The device always holds as many as there are slots, if not
// for their content then so that memory does not follow the router.
class StreamedExperts final : public ops::ExpertWeights {
 public:
  StreamedExperts(nn::Unit& unit, ops::CopyStream& copies, HomeCopies& from_home, bool prefetch)
      : unit_(memory::unit_id(unit.name())),
        experts_(streamed_experts(unit)),
        copies_(copies),
        from_home_(from_home),
        slots_(std::min<size_t>(prefetch ? 2 : 1, experts_.size())) {}

  void begin(std::vector<size_t> order) override {
    order_ = std::move(order);
    at_ = sent_ = 0;
    for (const size_t expert : order_) read_ahead(experts_[expert]);
    while (sent_ < std::min(slots_, order_.size())) send();
    for (size_t e = 0; here_.size() < slots_; ++e)
      if (std::ranges::find(here_, e, &Visitor::expert) == here_.end()) give_room(e);
  }

  void next() override {
    // The one before makes room for the one after, which is copied meanwhile.
    if (at_ > 0 && sent_ < order_.size()) {
      leave(order_[at_ - 1]);
      send();
    }
    copies_.wait(visitor(order_[at_]).arrival);
    ++at_;
  }

  void end() override {
    while (!here_.empty()) leave(here_.back().expert);
  }

 private:
  struct Visitor {
    size_t expert;
    ops::CopyStream::Ticket arrival;
  };

  Visitor& visitor(size_t expert) { return *std::ranges::find(here_, expert, &Visitor::expert); }

  void give_room(size_t expert) {
    const memory::UnitGuard tag(unit_);
    here_.push_back({expert, {}});  // first, since there may be no memory for all of it
    for (const nn::Parameter* parameter : experts_[expert])
      memory::refill(parameter->value, memory::Category::Parameters);
  }

  void send() {
    const size_t expert = order_[sent_++];
    give_room(expert);
    const memory::UnitGuard tag(unit_);
    visitor(expert).arrival = from_home_.start({experts_[expert].begin(), experts_[expert].end()});
  }

  // After a failed pass copies may be on their way.
  void leave(size_t expert) {
    copies_.wait(visitor(expert).arrival);
    for (const nn::Parameter* parameter : experts_[expert]) memory::vacate(parameter->value);
    std::erase_if(here_, [&](const Visitor& each) { return each.expert == expert; });
  }

  int32_t unit_;
  std::vector<std::vector<nn::Parameter*>> experts_;
  ops::CopyStream& copies_;
  HomeCopies& from_home_;
  size_t slots_;
  std::vector<size_t> order_;
  size_t at_ = 0, sent_ = 0;  // in the order: the next to compute, and to be copied
  std::vector<Visitor> here_;
};

std::vector<std::vector<nn::Parameter*>> experts_of(const std::vector<nn::Unit*>& units) {
  std::vector<std::vector<nn::Parameter*>> all;
  for (nn::Unit* unit : units)
    for (std::vector<nn::Parameter*>& expert : streamed_experts(*unit))
      all.push_back(std::move(expert));
  return all;
}

}  // namespace

std::vector<std::vector<nn::Parameter*>> streamed_experts(nn::Unit& unit) {
  std::vector<std::vector<nn::Parameter*>> experts = unit.experts();
  for (std::vector<nn::Parameter*>& own : experts)
    std::erase_if(own, [](const nn::Parameter* p) { return p->is_added() || p->is_elsewhere(); });
  std::erase_if(experts, [](const auto& own) { return own.empty(); });
  return experts;
}

ExpertStreaming::ExpertStreaming(const std::vector<nn::Unit*>& units, ops::CopyStream& copies,
                                 bool prefetch)
    : from_home_(copies, experts_of(units)) {
  for (nn::Unit* unit : units)
    sources_.push_back(streamed_experts(*unit).empty() ? nullptr
                                                       : std::make_unique<StreamedExperts>(
                                                             *unit, copies, from_home_, prefetch));
}

void ExpertStreaming::lend(const UnitRun& run) {
  lent_.reset();
  if (ops::ExpertWeights* source = sources_[static_cast<size_t>(run.index)].get())
    lent_.emplace(source);
}

}  // namespace snug::exec
