// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The caches that a listener invalidates.
#pragma once

#include "os/condition.hpp"

#include <pinfold/error.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace pinfold::release {

/// A mapping that a cache has open, or is opening.
struct mapped_range {
  std::uint64_t number;
  peer_id peer;
  range where;
};

/// Thread-safe. Calls caches without its lock; `remove` waits until no other thread uses the removed cache.
class attached_caches {
 public:
  using invalidate_call = void (*)(void* cache, peer_id peer, range gone);
  using progress_call = result<void> (*)(void* cache);

  /// Returns the attachment's number. Throws `std::bad_alloc`.
  [[nodiscard]] std::uint64_t add(void* cache, invalidate_call on_invalidate, progress_call on_progress);
  void remove(std::uint64_t number) noexcept;

  void invalidate(const std::vector<mapped_range>& gone) noexcept;
  /// Makes the due closes in all caches. Returns how many caches failed.
  std::size_t progress() noexcept;

 private:
  struct attached {
    void* cache;
    invalidate_call invalidate;
    progress_call progress;
    std::size_t users = 0;
    bool removed = false;
  };

  template <class Use>
  void for_each(Use use) noexcept;

  std::mutex mutex_;
  os::condition changed_;
  std::map<std::uint64_t, attached> all_;
  std::uint64_t last_ = 0;
};

}  // namespace pinfold::release
