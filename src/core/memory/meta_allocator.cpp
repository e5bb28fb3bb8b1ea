// The allocator of libtorch's meta device. Allocations have a null address but a live context, so
// the ledger sees their sizes and lifetimes although no memory is taken. The planner is built on
// this.
// SPDX-License-Identifier: Apache-2.0
#include "core/memory/allocators.h"
#include "core/memory/disk_file.h"
#include "core/memory/guards.h"
#include "core/memory/meta_count.h"

namespace snug::memory {
namespace {

thread_local Ledger* counting = nullptr;  // of the MetaCount in scope

class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kMeta);
    if (bytes == 0) return {nullptr, nullptr, &delete_meta_allocation, device};
    const bool on_disk = current_tag.disk != nullptr;
    Ledger& ledger = on_disk               ? meta_disk_ledger()
                     : current_tag.on_host ? meta_host_ledger()
                     : counting != nullptr ? *counting
                                           : meta_ledger();
    const auto counted = static_cast<int64_t>(bytes);
    const int64_t taken = on_disk ? DiskFile::padded(counted) : counted;
    ledger.admit(taken);
    Allocation* record = ledger.add(nullptr, taken);
    return {nullptr, record, &delete_meta_allocation, device};
  }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
};

}  // namespace

void delete_meta_allocation(void* context) {
  auto* record = static_cast<Allocation*>(context);
  if (record != nullptr) record->ledger->remove(record);
}

MetaCount::MetaCount() : saved_(counting) { counting = &ledger_; }
MetaCount::~MetaCount() { counting = saved_; }

void MetaCount::begin() {
  base_ = ledger_.allocated();
  ledger_.reset_peak();
}

int64_t MetaCount::peak() const { return ledger_.at_peak().allocated - base_; }

struct MetaLedgers {
  Ledger device{"meta"}, host{"meta host"}, disk{"meta disk"};
};

namespace {

thread_local MetaLedgers* own_ledgers = nullptr;  // of the OwnMetaLedgers in scope

MetaLedgers& meta_ledgers() {
  static auto* shared = new MetaLedgers;  // never destroyed: tensors may outlive statics
  return own_ledgers != nullptr ? *own_ledgers : *shared;
}

}  // namespace

OwnMetaLedgers::OwnMetaLedgers() : own_(std::make_unique<MetaLedgers>()), saved_(own_ledgers) {
  own_ledgers = own_.get();
}
OwnMetaLedgers::~OwnMetaLedgers() { own_ledgers = saved_; }

Ledger& meta_ledger() { return meta_ledgers().device; }
Ledger& meta_host_ledger() { return meta_ledgers().host; }
Ledger& meta_disk_ledger() { return meta_ledgers().disk; }

void install_meta_allocator() {
  static auto* allocator = new MetaAllocator;
  c10::SetAllocator(c10::kMeta, allocator, 255);
}

}  // namespace snug::memory
