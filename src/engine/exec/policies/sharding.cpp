// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/sharding.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/log.h"

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "core/ops/elementwise.h"

namespace snug::exec {
namespace {

// All-reduces that may run beside the backward. Several, because a unit's backward may be faster or
// slower than its all-reduce and neither should wait for the other. Reduce-scatters free whole
// gradients, so there each unit first completes the previous one.
constexpr size_t kReplicasUnderWay = 4;

}  // namespace

Sharding::Sharding(std::vector<nn::Unit*> units, FlatUnits flats, std::shared_ptr<dist::Mesh> mesh,
                   const ShardingOptions& options)
    : units_(std::move(units)),
      flats_(std::move(flats)),
      mesh_(std::move(mesh)),
      options_(options) {
  for (const auto& own : flats_)
    for (const auto& flat : own)
      for (const nn::Parameter* parameter : flat->parameters()) flat_of_[parameter] = flat.get();
  for (size_t i = units_.size(); i-- > 0;)
    for (const FlatUnit* flat : used_by(i)) first_user_[flat] = i;
}

Sharding::~Sharding() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    finish_publishing();
  } catch (const CommunicationError& error) {
    warn("an all-gather of weights failed at the end of the run: {}", error.what());
  }
}

dist::Group& Sharding::shards() const { return mesh_->shards(); }

dist::Group& Sharding::adders(const FlatUnit& flat) const {
  return flat.is_of_experts() ? mesh_->same_experts() : mesh_->gradients();
}

dist::Group& Sharding::copies(const FlatUnit& flat) const {
  return flat.is_of_experts() ? mesh_->group(dist::Axis::Replicate) : mesh_->copies();
}

std::vector<FlatUnit*> Sharding::used_by(size_t unit) const {
  std::vector<FlatUnit*> used;
  for (const nn::Parameter* parameter : units_[unit]->uses()) {
    const auto flat = flat_of_.find(parameter);
    if (flat != flat_of_.end() && std::ranges::find(used, flat->second) == used.end())
      used.push_back(flat->second);
  }
  return used;
}

std::vector<nn::Parameter*> Sharding::updated(size_t unit) const {
  std::vector<nn::Parameter*> result = kept(unit);
  std::erase_if(result, [](const nn::Parameter* parameter) { return !parameter->trained; });
  return result;
}

std::vector<nn::Parameter*> Sharding::kept(size_t unit) const {
  std::vector<nn::Parameter*> result;
  for (const auto& flat : flats_[unit]) {
    if (pieces_are_whole())
      std::ranges::copy_if(flat->parameters(), std::back_inserter(result),
                           [](const nn::Parameter* p) { return !p->is_elsewhere(); });
    else
      for (const auto& piece : flat->pieces()) result.push_back(&piece->parameter);
  }
  return result;
}

bool Sharding::holds(const nn::Parameter& parameter) const {
  const auto flat = flat_of_.find(&parameter);
  return !gathers() || flat == flat_of_.end() || flat->second->holds(parameter);
}

// --- weights ---

void Sharding::before_forward(UnitRun& run) {
  const auto unit = static_cast<size_t>(run.index);
  const bool ahead = options_.forward_prefetch && run.index + 1 < run.range.end;
  if (gathers())
    arrive(unit, ahead ? run.index + 1 : -1);
  else
    open(unit);
  // Cross-entropy computes gradients in the forward, while it has the logits.
  if (run.training && run.is_last()) provide_gradients(unit);
}

// The last unit's backward follows at once and needs its weights again.
void Sharding::after_forward(UnitRun& run) {
  if (gathers() && !(run.training && run.is_last())) release(static_cast<size_t>(run.index));
}

void Sharding::start_gather(FlatUnit& flat) {
  if (gathers_.contains(&flat)) return;
  const memory::UnitGuard unit(flat.ledger_unit());
  dist::Group::Ticket& ticket = gathers_[&flat];
  const bool apart = flat.part().defined();
  if (apart) memory::refill(flat.values(), memory::Category::Parameters);
  const bool part_is_there = apart && !memory::is_vacant(flat.part()) &&
                             flat.part().scalar_type() == flat.values().scalar_type();
  if (!part_is_there) flat.values_from_pieces();
  ticket = shards().all_gather(flat.values(), part_is_there ? flat.part() : flat.own_values());
}

void Sharding::send(size_t unit) {
  if (present_.contains(unit)) return;
  std::vector<FlatUnit*>& flats = present_[unit];
  for (FlatUnit* flat : used_by(unit)) {
    flats.push_back(flat);
    start_gather(*flat);
  }
}

void Sharding::arrive(size_t unit, int64_t next) {
  send(unit);
  for (const FlatUnit* flat : present_.at(unit)) shards().wait(std::exchange(gathers_[flat], {}));
  if (next >= 0) send(static_cast<size_t>(next));
}

// A weight that two units use stays gathered while one of them needs it.
bool Sharding::is_used_elsewhere(const FlatUnit* flat, size_t unit) const {
  return std::ranges::any_of(present_, [&](const auto& other) {
    return other.first != unit && std::ranges::find(other.second, flat) != other.second.end();
  });
}

void Sharding::release(size_t unit) {
  for (FlatUnit* flat : present_.at(unit)) {
    if (is_used_elsewhere(flat, unit)) continue;
    memory::vacate(flat->values());
    gathers_.erase(flat);
  }
  present_.erase(unit);
}

void Sharding::publish() {
  if (gathers() || pieces_are_whole()) return;
  for (const auto& own : flats_)
    for (const auto& flat : own) {
      if (!flat->is_trained()) continue;
      // An earlier gather that was never waited for has old values: complete it first.
      if (const auto sent = gathers_.extract(flat.get())) shards().wait(sent.mapped());
      start_gather(*flat);
    }
}

void Sharding::finish_publishing() {
  for (const auto& [flat, ticket] : std::exchange(gathers_, {})) shards().wait(ticket);
}

void Sharding::open(size_t unit) {
  if (gathers()) {
    show(unit, FlatUnit::Form::Kept);
    return arrive(unit, -1);
  }
  for (const FlatUnit* flat : used_by(unit))
    if (const auto sent = gathers_.extract(flat)) shards().wait(sent.mapped());
}

void Sharding::close(size_t unit) {
  if (!gathers()) return;
  release(unit);
  show(unit, FlatUnit::Form::Computed);
}

// Leaves alone what another unit has open.
void Sharding::show(size_t unit, FlatUnit::Form form) {
  for (FlatUnit* flat : used_by(unit))
    if (!is_used_elsewhere(flat, unit)) flat->show(form);
}

void Sharding::open_trained(size_t unit) {
  for (const auto& flat : flats_[unit]) {
    if (!flat->is_trained()) continue;
    if (gathers()) {
      flat->show(FlatUnit::Form::Kept);
      start_gather(*flat);
    }
    if (const auto sent = gathers_.extract(flat.get())) shards().wait(sent.mapped());
  }
}

void Sharding::close_trained(size_t unit) {
  if (!gathers()) return;
  for (const auto& flat : flats_[unit]) {
    if (!flat->is_trained()) continue;
    memory::vacate(flat->values());
    flat->show(FlatUnit::Form::Computed);
  }
}

void Sharding::open_blank(size_t unit) {
  if (!gathers()) return;
  for (const auto& flat : flats_[unit]) {
    flat->show(FlatUnit::Form::Kept);
    memory::refill(flat->values(), memory::Category::Parameters);
  }
}

void Sharding::close_written(size_t unit) {
  if (pieces_are_whole()) return;
  for (const auto& flat : flats_[unit]) {
    flat->pieces_from_values();
    if (!gathers()) continue;
    memory::vacate(flat->values());
    flat->show(FlatUnit::Form::Computed);
  }
}

// --- gradients ---

void Sharding::provide_gradients(size_t unit) {
  forget_freed_gradients();
  for (FlatUnit* flat : used_by(unit))
    if (flat->is_trained()) flat->provide_gradients();
}

void Sharding::before_backward(UnitRun& run) {
  const auto unit = static_cast<size_t>(run.index);
  const bool ahead = options_.backward_prefetch && run.index > run.first_trained;
  if (gathers()) arrive(unit, ahead ? run.index - 1 : -1);
  provide_gradients(unit);
}

void Sharding::after_backward(UnitRun& run) {
  const auto unit = static_cast<size_t>(run.index);
  const bool is_due = run.pass->last_micro_batch || options_.reduce_each;
  const size_t earlier = leaving_.size();
  for (FlatUnit* flat : used_by(unit)) {
    if (!flat->gradients().defined()) continue;
    const bool is_final = is_due && first_user_.at(flat) == unit;
    // Each unit reduces its contribution to a tied weight's gradient: keeping the whole gradient
    // until the last of them would take memory.
    if (cuts_gradients() || is_final) leaving_.push_back(reduce(*flat, is_final));
  }
  if (gathers()) release(unit);
  const size_t stay = pieces_are_whole() ? kReplicasUnderWay : leaving_.size() - earlier;
  const auto first = leaving_.begin();
  const auto last =
      first + static_cast<std::ptrdiff_t>(leaving_.size() - std::min(stay, leaving_.size()));
  std::vector<Leaving> due(std::make_move_iterator(first), std::make_move_iterator(last));
  leaving_.erase(first, last);
  settle(std::move(due));
  if (options_.overlap_reduction) return;
  settle(std::exchange(leaving_, {}));
  settle_replicas();
}

Sharding::Leaving Sharding::reduce(FlatUnit& flat, bool is_final) {
  const memory::UnitGuard unit(flat.ledger_unit());
  flat.complete_gradients();
  Leaving entry{.flat = &flat, .whole = {}, .landing = {}, .ticket = {}, .is_final = is_final};
  if (pieces_are_whole()) {
    entry.whole = flat.gradients();
    dist::Group& group = adders(flat);
    if (group.size() > 1) entry.ticket = group.all_reduce(entry.whole);
    return entry;
  }
  entry.whole = flat.take_gradients();
  entry.landing =
      cuts_gradients() ? flat.new_part(memory::Category::Gradients) : flat.own_part_of(entry.whole);
  entry.ticket = shards().reduce_scatter(entry.landing, entry.whole);
  return entry;
}

void Sharding::settle(std::vector<Leaving> reductions) {
  for (Leaving& entry : reductions) {
    dist::Group& group = pieces_are_whole() ? adders(*entry.flat) : shards();
    group.wait(std::exchange(entry.ticket, {}));
    entry.whole.reset();
    if (pieces_are_whole()) continue;
    at::Tensor& sum = reduced_[entry.flat];
    if (!entry.flat->pieces_have_gradients()) sum.reset();  // they were taken or freed meanwhile
    if (sum.defined())
      ops::accumulate(sum, entry.landing);
    else
      sum = std::move(entry.landing);
    entry.flat->give_to_pieces(sum);
    dist::Group& replicas = copies(*entry.flat);
    if (!entry.is_final || replicas.size() == 1) continue;
    const memory::UnitGuard unit(entry.flat->ledger_unit());
    between_replicas_.emplace_back(&replicas, replicas.all_reduce(sum));
  }
}

void Sharding::settle_replicas() {
  for (const auto& [group, ticket] : std::exchange(between_replicas_, {})) group->wait(ticket);
}

void Sharding::after_micro_batch() {
  settle(std::exchange(leaving_, {}));
  settle_replicas();
}

void Sharding::forget_freed_gradients() {
  for (const auto& own : flats_)
    for (const auto& flat : own) {
      if (!flat->gradients().defined() && !reduced_.contains(flat.get())) continue;
      if (flat->has_gradients()) continue;
      flat->drop_gradients();
      reduced_.erase(flat.get());
    }
}

void Sharding::drop_gradients() {
  for (const auto& own : flats_)
    for (const auto& flat : own) flat->drop_gradients();
  reduced_.clear();
}

// Other ranks' sends cannot be cancelled, so with several processes the run ends here.
void Sharding::abandon() {
  if (mesh_->is_single() || units_.front()->parameters().front()->value.is_meta()) {
    leaving_.clear();
    between_replicas_.clear();
    while (!present_.empty()) close(present_.begin()->first);
  }
}

}  // namespace snug::exec
