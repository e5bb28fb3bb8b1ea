// SPDX-License-Identifier: Apache-2.0
#include "core/memory/ledger.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/error.h"
#include "core/memory/allocators.h"
#include "core/memory/guards.h"

namespace snug::memory {
namespace {

size_t index(Category category) { return static_cast<size_t>(category); }

std::string list_categories(const ByCategory& bytes) {
  std::string text;
  for (size_t c = 0; c < kNumCategories; ++c)
    if (bytes[c] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name(static_cast<Category>(c)),
                          format_bytes(bytes[c]));
  return text.empty() ? "nothing" : text;
}

// The three units with the most bytes: "blocks.3 12 MiB, …".
std::string list_units(const std::vector<ByCategory>& by_unit) {
  std::vector<std::pair<int64_t, size_t>> totals;
  for (size_t u = 0; u < by_unit.size(); ++u)
    totals.emplace_back(std::accumulate(by_unit[u].begin(), by_unit[u].end(), int64_t{0}), u);
  std::sort(totals.rbegin(), totals.rend());
  std::string text;
  for (size_t i = 0; i < totals.size() && i < 3 && totals[i].first > 0; ++i)
    text += fmt::format("{}{} {}", i ? ", " : "", unit_name(static_cast<int32_t>(totals[i].second)),
                        format_bytes(totals[i].first));
  return text.empty() ? "nothing" : text;
}

// Unit ids are shared by all ledgers, since a unit's pass may allocate on several devices.
struct UnitNames {
  std::mutex mutex;
  std::vector<std::string> names{"outside any unit"};
};

UnitNames& unit_names() {
  static auto* names = new UnitNames;
  return *names;
}

}  // namespace

int32_t unit_id(const std::string& name) {
  UnitNames& known = unit_names();
  const std::lock_guard lock(known.mutex);
  const auto found = std::find(known.names.begin(), known.names.end(), name);
  const auto id = static_cast<int32_t>(found - known.names.begin());
  if (found == known.names.end()) known.names.push_back(name);
  return id;
}

std::string unit_name(int32_t id) {
  UnitNames& known = unit_names();
  const std::lock_guard lock(known.mutex);
  return known.names.at(static_cast<size_t>(id));
}

const char* name(Category category) {
  static constexpr const char* kNames[] = {
      "parameters", "gradients", "optimizer", "activations", "workspace", "communication", "data"};
  return kNames[index(category)];
}

const char* name(Phase phase) {
  static constexpr const char* kNames[] = {"setup", "forward", "backward", "step", "evaluate"};
  return kNames[static_cast<size_t>(phase)];
}

void Ledger::admit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (refuse_in_ > 0 && --refuse_in_ == 0) refuse(bytes);
  if (budget_ > 0 && allocated_ + bytes > budget_) refuse(bytes);
}

void Ledger::refuse(int64_t bytes) const {
  const int64_t limit = budget_ > 0 ? budget_ : allocated_;
  const int64_t missing = std::max<int64_t>(0, allocated_ + bytes - limit);
  throw_refusal(bytes, missing,
                fmt::format("do not fit into the budget of {}; {} missing", format_bytes(limit),
                            format_bytes(missing)));
}

void Ledger::refused_by_device(int64_t bytes, const std::string& why) const {
  const std::lock_guard lock(mutex_);
  throw_refusal(bytes, bytes, why);
}

void Ledger::throw_refusal(int64_t bytes, int64_t missing, const std::string& why) const {
  throw RefusedAllocation(
      fmt::format("out of memory on {}: {} more for {} ({}, {}) {}. Live: {} ({}). Largest: {}.",
                  device_, format_bytes(bytes), name(current_tag.category),
                  unit_name(current_tag.unit), name(current_tag.phase), why,
                  format_bytes(allocated_), list_categories(live_), list_units(by_unit_)),
      {bytes, missing, current_tag.category, snapshot_locked()});
}

Allocation* Ledger::add(void* data, int64_t bytes) {
  auto* allocation = new Allocation{.ledger = this,
                                    .data = data,
                                    .bytes = bytes,
                                    .category = current_tag.category,
                                    .phase = current_tag.phase,
                                    .unit = current_tag.unit,
                                    .recorded = current_tag.recorded,
                                    .host_use = current_tag.host_use};
  const std::lock_guard lock(mutex_);
  const auto unit = static_cast<size_t>(allocation->unit);
  if (unit >= by_unit_.size()) by_unit_.resize(unit + 1);
  allocation->serial = next_serial_++;
  allocation->previous = newest_;
  if (newest_ != nullptr) newest_->next = allocation;
  newest_ = allocation;
  allocated_ += bytes;
  live_[index(allocation->category)] += bytes;
  by_unit_[static_cast<size_t>(allocation->unit)][index(allocation->category)] += bytes;
  if (allocation->recorded) {
    recorded_live_ += bytes;
    recorded_peak_ = std::max(recorded_peak_, recorded_live_);
  }
  note_peaks();
  tell(allocation->serial, bytes, allocation->recorded);
  return allocation;
}

void Ledger::tell(uint64_t serial, int64_t bytes, bool recorded) const {
  if (observer_)
    observer_({serial, bytes, current_tag.phase, current_tag.unit, allocated_, &live_, recorded});
}

void Ledger::observe(std::function<void(const Change&)> observer) {
  const std::lock_guard lock(mutex_);
  observer_ = std::move(observer);
}

void Ledger::remove(Allocation* allocation) {
  {
    const std::lock_guard lock(mutex_);
    (allocation->next != nullptr ? allocation->next->previous : newest_) = allocation->previous;
    if (allocation->previous != nullptr) allocation->previous->next = allocation->next;
    allocated_ -= allocation->bytes;
    live_[index(allocation->category)] -= allocation->bytes;
    by_unit_[static_cast<size_t>(allocation->unit)][index(allocation->category)] -=
        allocation->bytes;
    if (allocation->recorded) {
      recorded_live_ -= allocation->bytes;
      if (!current_tag.recorded && recorded_peak_ > 0) hold_recorded(allocation->bytes);
    }
    tell(allocation->serial, -allocation->bytes, allocation->recorded);
  }
  delete allocation;
}

void Ledger::hold_recorded(int64_t bytes) {
  recorded_held_ += bytes;
  allocated_ += bytes;
  live_[index(Category::Activations)] += bytes;
  by_unit_[0][index(Category::Activations)] += bytes;
}

void Ledger::begin_recording() {
  const std::lock_guard lock(mutex_);
  hold_recorded(-recorded_held_);
  tell(0, 0);
}

void Ledger::end_recording() {
  const std::lock_guard lock(mutex_);
  hold_recorded(recorded_peak_ - recorded_live_);
  note_peaks();
  tell(0, 0);
}

void Ledger::free_recorded() {
  const std::lock_guard lock(mutex_);
  hold_recorded(-recorded_held_);
  recorded_peak_ = 0;
  tell(0, 0);
}

void Ledger::note_cache_emptied() {
  const std::lock_guard lock(mutex_);
  if (observer_)
    observer_({.phase = current_tag.phase,
               .unit = current_tag.unit,
               .allocated = allocated_,
               .live = &live_,
               .empties = true});
}

void Ledger::note_peaks() {
  for (size_t c = 0; c < kNumCategories; ++c)
    category_peaks_[c] = std::max(category_peaks_[c], live_[c]);
  if (allocated_ > peak_.allocated) peak_ = snapshot_locked();
}

Snapshot Ledger::snapshot_locked() const {
  return {allocated_, live_, by_unit_, current_tag.unit, current_tag.phase};
}

void Ledger::move_between(Allocation* allocation, Category category) {
  ByCategory& unit = by_unit_[static_cast<size_t>(allocation->unit)];
  live_[index(allocation->category)] -= allocation->bytes;
  unit[index(allocation->category)] -= allocation->bytes;
  allocation->category = category;
  live_[index(category)] += allocation->bytes;
  unit[index(category)] += allocation->bytes;
}

void Ledger::retag(Allocation* allocation, Category category) {
  const std::lock_guard lock(mutex_);
  move_between(allocation, category);
  note_peaks();
  tell(allocation->serial, 0);
}

void Ledger::retag_since(uint64_t serial, Category category) {
  const std::lock_guard lock(mutex_);
  for (Allocation* a = newest_; a != nullptr && a->serial >= serial; a = a->previous)
    if (a->category == Category::Workspace) move_between(a, category);
  note_peaks();
  tell(0, 0);
}

uint64_t Ledger::serial() const {
  const std::lock_guard lock(mutex_);
  return next_serial_;
}

int64_t Ledger::allocated() const {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

ByCategory Ledger::by_category() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

Snapshot Ledger::now() const {
  const std::lock_guard lock(mutex_);
  return snapshot_locked();
}

Snapshot Ledger::at_peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

ByCategory Ledger::category_peaks() const {
  const std::lock_guard lock(mutex_);
  return category_peaks_;
}

void Ledger::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = snapshot_locked();
  category_peaks_ = live_;
}

void Ledger::set_budget(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  budget_ = bytes;
}

int64_t Ledger::budget() const {
  const std::lock_guard lock(mutex_);
  return budget_;
}

void Ledger::refuse_allocation(int64_t n) {
  const std::lock_guard lock(mutex_);
  refuse_in_ = n;
}

Ledger& cuda_ledger() {
  static Ledger* ledger = new Ledger("cuda");  // never destroyed: tensors may outlive statics
  return *ledger;
}

Ledger& ledger_of(c10::DeviceType device) {
  if (device == c10::kCUDA) return cuda_ledger();
  return device == c10::kMeta ? meta_ledger() : cpu_ledger();
}

Ledger& host_ledger_of(c10::DeviceType device) {
  return device == c10::kMeta ? meta_host_ledger() : cpu_host_ledger();
}

int64_t reserved_on(c10::DeviceType device) {
  if (device == c10::kCUDA) return cuda_reserved();
  return device == c10::kMeta ? meta_ledger().allocated() : cpu_reserved();
}

void empty_cache(c10::DeviceType device) {
  if (device == c10::kCUDA) empty_cuda_cache();
  if (device == c10::kCPU) empty_cpu_cache();
  ledger_of(device).note_cache_emptied();
}

int64_t peak_reserved_on(c10::DeviceType device) {
  if (device == c10::kCUDA) return cuda_peak_reserved();
  return std::max(ledger_of(device).at_peak().allocated, reserved_on(device));
}

Allocation* find_allocation(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return allocation_behind(tensor.storage().data_ptr());
}

int32_t unit_of(const at::Tensor& tensor) {
  const Allocation* allocation = find_allocation(tensor);
  return allocation != nullptr ? allocation->unit : 0;
}

void retag(const at::Tensor& tensor, Category category) {
  Allocation* allocation = find_allocation(tensor);
  if (allocation != nullptr) allocation->ledger->retag(allocation, category);
}

}  // namespace snug::memory
