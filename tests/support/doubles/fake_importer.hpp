// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A driver's stand-in in memory, which tests can steer. Its exporters allocate, free and reallocate. The driver keeps
/// CUDA's rule of one mapping per allocation, has a capacity, can be told to fail or to be slow, and detects every
/// misuse by a cache.
#pragma once

#include <pinfold/importer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing {

struct fake_handle {
  std::uint64_t exporter = 0;
  std::uint64_t serial = 0;
  std::uint64_t base = 0;
  std::uint64_t size = 0;

  [[nodiscard]] range allocation() const { return {base, base + size}; }
  friend bool operator==(const fake_handle&, const fake_handle&) = default;
};

enum class driver_call : std::uint8_t { open, close };

/// The exporters and the driver. Thread-safe.
class fake_world {
 public:
  using fault = std::function<std::optional<error>(driver_call, const fake_handle&)>;

  std::size_t capacity = SIZE_MAX;  ///< open mappings that the driver can hold
  std::size_t extra_bytes = 0;      ///< what an open registers beyond the allocation
  std::chrono::microseconds open_takes{0};
  std::chrono::microseconds close_takes{0};

  /// Allocates memory at `base` in an exporter; frees whatever it had in that range before.
  fake_handle allocate(std::uint64_t exporter, std::uint64_t base, std::uint64_t size) {
    std::lock_guard guard(mutex_);
    const fake_handle made{exporter, ++serial_, base, size};
    auto& owned = exported_[exporter];
    std::erase_if(owned, [&](const auto& old) { return old.allocation().overlaps(made.allocation()); });
    owned.push_back(made);
    return made;
  }

  void kill(std::uint64_t exporter) {
    std::lock_guard guard(mutex_);
    exported_.erase(exporter);
  }

  /// Sets a function that is called before every driver call, without a lock. Its result is the failure of that call.
  void inject(fault with) {
    std::lock_guard guard(mutex_);
    fault_ = std::move(with);
  }
  void heal() { inject(nullptr); }

  [[nodiscard]] std::size_t open_count() const {
    std::lock_guard guard(mutex_);
    return open_.size();
  }
  [[nodiscard]] std::vector<fake_handle> opened() const {
    std::lock_guard guard(mutex_);
    std::vector<fake_handle> all;
    for (const auto& [id, one] : open_) all.push_back(one.handle);
    return all;
  }

  std::atomic<std::size_t> opens{0};    ///< calls of open, failed ones included
  std::atomic<std::size_t> closes{0};   ///< calls of close, failed ones included
  std::atomic<std::size_t> misuses{0};  ///< closes of what was not open
  std::atomic<std::size_t> busy{0};     ///< calls in progress
  std::atomic<std::size_t> busy_most{0};

  /// Opens a handle in the driver behind the cache's back, as an application may.
  std::uint64_t open_outside(const fake_handle& handle) {
    std::lock_guard guard(mutex_);
    return enter(handle);
  }

 private:
  template <bool>
  friend class basic_fake_importer;

  struct mapping {
    fake_handle handle;
    std::unique_ptr<std::uint64_t[]> words;  // freed by close, so that a sanitizer sees a thread that still reads them
  };

  std::uint64_t enter(const fake_handle& handle) {
    mapping made{handle, std::make_unique<std::uint64_t[]>(handle.size / 8)};
    for (std::uint64_t i = 0; i < handle.size / 8; ++i) made.words[i] = handle.serial;
    open_.emplace(++last_, std::move(made));
    return last_;
  }

  std::optional<error> asked(driver_call call, const fake_handle& handle, std::chrono::microseconds takes) {
    fault plan;
    {
      std::lock_guard guard(mutex_);
      plan = fault_;
    }
    const auto now = ++busy;
    for (auto most = busy_most.load(); most < now && !busy_most.compare_exchange_weak(most, now);) {
    }
    if (takes.count() > 0) std::this_thread::sleep_for(takes);
    auto failure = plan ? plan(call, handle) : std::nullopt;
    --busy;
    return failure;
  }

  mutable std::mutex mutex_;
  fault fault_;
  std::uint64_t serial_ = 0;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, std::list<fake_handle>> exported_;
  std::map<std::uint64_t, mapping> open_;
};

/// An importer over a `fake_world`. With `Duplicates`, the driver opens a handle again that it already has open.
template <bool Duplicates>
class basic_fake_importer {
 public:
  static constexpr const char* name = "pretend";
  static constexpr bool allows_duplicates = Duplicates;
  using handle_type = fake_handle;
  struct registration_type {
    std::uint64_t id;
  };

  explicit basic_fake_importer(std::shared_ptr<fake_world> world) : world_(std::move(world)) {}

  [[nodiscard]] result<range> check(const fake_handle& handle) const noexcept {
    if (handle.serial == 0) return fail(errc::invalid_handle, "a pretend handle has a serial");
    return handle.allocation();
  }

  [[nodiscard]] result<imported<registration_type>> open(peer_id, const fake_handle& handle) noexcept {
    ++world_->opens;
    if (auto failure = world_->asked(driver_call::open, handle, world_->open_takes)) return tl::unexpected(*failure);
    std::lock_guard guard(world_->mutex_);
    const auto owned = world_->exported_.find(handle.exporter);
    if (owned == world_->exported_.end()) return fail_errno(errc::peer_gone, 3, "the exporter is gone");
    const auto& all = owned->second;
    if (std::find(all.begin(), all.end(), handle) == all.end())
      return fail_errno(errc::stale_handle, 116, "the exporter has freed this");
    for (const auto& [id, one] : world_->open_)
      if (!Duplicates && one.handle.exporter == handle.exporter &&
          one.handle.allocation().overlaps(handle.allocation()))
        return fail_errno(errc::already_mapped, 208, "the driver has this mapped");
    if (world_->open_.size() >= world_->capacity) return fail_errno(errc::out_of_resources, 12, "the driver is full");
    const auto id = world_->enter(handle);
    return imported<registration_type>{
        handle.allocation(), world_->open_.at(id).words.get(), handle.size + world_->extra_bytes, {id}};
  }

  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept {
    ++world_->closes;
    fake_handle handle;
    {
      std::lock_guard guard(world_->mutex_);
      const auto found = world_->open_.find(mapping.id);
      if (found == world_->open_.end()) {
        ++world_->misuses;
        return fail(errc::invalid_argument, "closed something that is not open");
      }
      handle = found->second.handle;
    }
    if (auto failure = world_->asked(driver_call::close, handle, world_->close_takes)) return tl::unexpected(*failure);
    std::lock_guard guard(world_->mutex_);
    if (world_->open_.erase(mapping.id) == 0) ++world_->misuses;
    return {};
  }

 private:
  std::shared_ptr<fake_world> world_;
};

using fake_importer = basic_fake_importer<false>;
using fake_duplicating_importer = basic_fake_importer<true>;

/// Returns the serial in the mapped memory, which must be that of the handle it was acquired with.
inline std::uint64_t serial_at(const void* data) {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

}  // namespace pinfold::testing
