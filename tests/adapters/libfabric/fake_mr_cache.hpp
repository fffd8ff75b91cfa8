// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// libfabric's own registration cache as a memory monitor sees it: one lock for all domains, entries that subscribe
/// when they are made and unsubscribe when they leave, `valid` before each hit. Registrations are numbered.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <list>
#include <mutex>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

namespace pinfold::testing {

/// The monitor that was imported, and what all domains share.
struct fake_libfabric {
  fid_mem_monitor* monitor = nullptr;
  std::mutex lock;
  std::list<class fake_mr_cache*> domains;
  std::atomic<std::uint64_t> registrations{0};
  std::atomic<std::uint64_t> notified{0};
};
inline fake_libfabric libfabric_now;

/// The cache of one domain.
class fake_mr_cache {
 public:
  fake_mr_cache() {
    if (libfabric_now.domains.empty()) started_ = monitor().export_ops->start(&monitor()) == 0;
    const std::lock_guard guard(libfabric_now.lock);
    libfabric_now.domains.push_back(this);
  }
  ~fake_mr_cache() {
    drop(0, UINTPTR_MAX);
    {
      const std::lock_guard guard(libfabric_now.lock);
      libfabric_now.domains.remove(this);
    }
    if (libfabric_now.domains.empty()) monitor().export_ops->stop(&monitor());
  }
  fake_mr_cache(const fake_mr_cache&) = delete;
  fake_mr_cache& operator=(const fake_mr_cache&) = delete;

  [[nodiscard]] bool started() const { return started_; }

  /// Returns the number of a registration of the memory: an earlier one where that is in the cache and valid.
  std::uint64_t search(const void* at, std::size_t bytes) {
    const auto base = reinterpret_cast<std::uintptr_t>(at);
    const std::lock_guard guard(libfabric_now.lock);
    for (const auto& one : entries_)
      if (one.base <= base && base + bytes <= one.base + one.bytes &&
          monitor().export_ops->valid(&monitor(), at, bytes))
        return one.number;
    uncache(base, bytes);
    return create(base, bytes);
  }

  /// Evicts, or drops what a monitor reports.
  void drop(std::uintptr_t base, std::size_t bytes) {
    const std::lock_guard guard(libfabric_now.lock);
    uncache(base, bytes);
  }

  std::size_t size() {
    const std::lock_guard guard(libfabric_now.lock);
    return entries_.size();
  }

  static void notify(fid_mem_monitor*, const void* at, std::size_t bytes) {
    const std::lock_guard guard(libfabric_now.lock);
    for (auto* domain : libfabric_now.domains) domain->uncache(reinterpret_cast<std::uintptr_t>(at), bytes);
    ++libfabric_now.notified;
  }

 private:
  struct entry {
    std::uintptr_t base;
    std::size_t bytes;
    std::uint64_t number;
  };

  static fid_mem_monitor& monitor() { return *libfabric_now.monitor; }
  static void unsubscribe(const entry& from) {
    monitor().export_ops->unsubscribe(&monitor(), reinterpret_cast<void*>(from.base), from.bytes);
  }

  void uncache(std::uintptr_t base, std::size_t bytes) {
    for (auto one = entries_.begin(); one != entries_.end();) {
      const bool overlaps = one->base < base + bytes && base < one->base + one->bytes;
      if (overlaps) unsubscribe(*one);
      one = overlaps ? entries_.erase(one) : std::next(one);
    }
  }

  std::uint64_t create(std::uintptr_t base, std::size_t bytes) {
    const entry made{base, bytes, ++libfabric_now.registrations};
    if (monitor().export_ops->subscribe(&monitor(), reinterpret_cast<void*>(base), bytes) == 0)
      entries_.push_back(made);
    else
      unsubscribe(made);  // as libfabric does
    return made.number;
  }

  std::list<entry> entries_;
  bool started_ = true;
};

namespace fake {

inline int import_monitor(fid*, fid* monitor, std::uint64_t) {
  static fi_ops_mem_notify operations{sizeof operations, fake_mr_cache::notify};
  static fi_ops fid_operations{
      sizeof fid_operations, [](fid*) { return 0; }, nullptr, nullptr, nullptr, nullptr, nullptr};
  libfabric_now.monitor = reinterpret_cast<fid_mem_monitor*>(monitor);
  libfabric_now.monitor->import_ops = &operations;
  monitor->ops = &fid_operations;
  return 0;
}

}  // namespace fake

}  // namespace pinfold::testing
