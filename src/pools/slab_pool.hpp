// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The core of every pool: slabs from the system, registered by a driver, divided into allocations.
#pragma once

#include "os/this_process.hpp"
#include "pools/slab.hpp"
#include "pools/slab_list.hpp"

#include <pinfold/detail/slabs.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace pinfold::pools {

/// A mutex, or nothing.
class optional_mutex {
 public:
  explicit optional_mutex(bool real) noexcept : real_(real) {}
  void lock() noexcept {
    if (real_) inner_.lock();
  }
  void unlock() noexcept {
    if (real_) inner_.unlock();
  }

 private:
  const bool real_;
  std::mutex inner_;
};

}  // namespace pinfold::pools

namespace pinfold::detail {

/// Thread-safe if `synchronized`. In a child of fork(2), where the registrations mean nothing and a thread that does
/// not exist may hold the mutex, only `is_of_this_process` may be called. Functions marked "unlocks" release the lock
/// during calls of the system or the driver.
class slab_pool {
 public:
  slab_pool(slab_driver driver, pool_options options, bool synchronized);
  ~slab_pool();
  slab_pool(const slab_pool&) = delete;
  slab_pool& operator=(const slab_pool&) = delete;

  [[nodiscard]] bool is_of_this_process() const noexcept { return os::this_process() == process_; }
  [[nodiscard]] result<slab_grant> allocate(std::size_t bytes, std::size_t alignment) noexcept;
  result<void> deallocate(void* data, std::size_t bytes) noexcept;
  [[nodiscard]] bool resize(void* data, std::size_t bytes, std::size_t wanted) noexcept;

  [[nodiscard]] std::optional<registration> registration_of(const void* data) const noexcept;
  [[nodiscard]] slab* lease(const void* data) noexcept;
  /// Ends a lease. Returns whether the pool object is gone and something can never be freed.
  [[nodiscard]] bool release(slab& leased) noexcept;

  std::size_t trim() noexcept;

  /// Called when the pool object is gone. Returns whether something can never be freed.
  [[nodiscard]] bool end() noexcept;

  /// Keeps the core alive for the life of the process, like its slabs.
  static void keep_for_good(const std::shared_ptr<slab_pool>& core) noexcept;

  [[nodiscard]] pool_usage usage() const noexcept;
  [[nodiscard]] std::vector<slab_info> slabs() const;

 private:
  using lock = std::unique_lock<pools::optional_mutex>;

  struct wish {
    std::size_t bytes;
    std::size_t alignment;
    bool large;
    std::uint32_t granules = 1;  // rounded up to a size class
    std::uint32_t alignment_granules = 1;
  };
  struct place {
    std::uintptr_t begin;
    std::unique_ptr<slab> is;
  };

  // --- allocating (slab_pool.cpp)
  [[nodiscard]] result<wish> understood(std::size_t bytes, std::size_t alignment) const noexcept;
  [[nodiscard]] slab* take(const wish& what, std::uint32_t& at) noexcept;
  [[nodiscard]] slab* take_large(const wish& what) noexcept;
  [[nodiscard]] slab_grant grant(slab& from, std::uint32_t at, lock& guard) noexcept;  // unlocks
  [[nodiscard]] slab* owner_of(const void* data, std::size_t bytes, std::uint32_t& at) const noexcept;
  void hand_out(slab& in, std::size_t begin, std::size_t end, lock& guard) const noexcept;  // unlocks

  // --- slabs (slab_pool_slabs.cpp)
  [[nodiscard]] slab* around(const void* data) const noexcept;
  [[nodiscard]] result<slab*> grow(const wish& what, lock& guard) noexcept;  // unlocks
  [[nodiscard]] result<std::unique_ptr<slab>> make_slab(std::size_t bytes, bool large) noexcept;
  [[nodiscard]] result<std::unique_ptr<slab>> describe_slab(const pools::mapping& mapped, bool large) const noexcept;
  [[nodiscard]] result<void> reserve(std::size_t bytes, lock& guard) noexcept;  // unlocks
  slab* adopt(std::unique_ptr<slab> made) noexcept;
  std::size_t give_back(lock& guard) noexcept;  // unlocks
  [[nodiscard]] slab* take_unused() noexcept;
  [[nodiscard]] slab* free_unleased(slab* chain, std::size_t& freed) const noexcept;
  void tell_abandoned() const noexcept;

  const std::uint64_t process_ = os::this_process();
  const slab_driver driver_;
  const pool_options options_;
  std::size_t granule_;  // of ordinary slabs, in bytes

  mutable pools::optional_mutex mutex_;  // guards all members below
  std::vector<place> table_;             // by address
  pools::slab_list free_;
  slab* lingering_ = nullptr;  // chain: unregistered, but leased through the cache
  std::size_t arriving_ = 0;   // slots in `table_` reserved for slabs that are being made
  std::size_t bytes_ = 0;      // of all slabs, including those that are being made
  std::size_t misuses_ = 0;
  bool ended_ = false;
  bool stays_ = false;                // something stays for good
  std::shared_ptr<slab_pool> self_;   // when kept for good
  slab_pool* kept_before_ = nullptr;  // the core kept before this one, so that all of them stay reachable
};

}  // namespace pinfold::detail
