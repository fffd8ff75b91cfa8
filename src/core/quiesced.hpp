// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The registrations that `quiesce` closed, and the threads that register them again.
#pragma once

#include "core/change_signal.hpp"
#include "core/remembered.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace pinfold::core {

/// The registrations that `quiesce` closed, the calls that withdraw memory, and the threads that quiesce and restore.
/// docs/understand/protocol.md has the argument. Thread-safe; the mutex comes after the shards' mutexes, and no other
/// is taken under it; that of `change_signal` is taken after its release.
class quiesced {
 public:
  /// As `remembered_list`. `changes` is notified when a quiesce or a restored registration ends.
  quiesced(std::size_t token_bytes, invalidation::registered_filter* registered, change_signal& changes) noexcept
      : changes_(changes), list_(token_bytes, registered) {}
  quiesced(const quiesced&) = delete;
  quiesced& operator=(const quiesced&) = delete;

  // Called by the thread that quiesces.
  /// Makes the caller the thread that quiesces, unless another thread is; `mine`: whether the caller is, for the next
  /// call. From then on no restoration begins an open. Returns false while another thread quiesces or a restoration
  /// opens.
  [[nodiscard]] bool begin(bool& mine) noexcept;
  void end() noexcept;
  /// From now on, withdrawals concern the list of `mine`, too.
  void begin_listing(being_closed& mine) noexcept;
  /// Forgets `mine`.
  void cancel_listing(being_closed& mine) noexcept;
  /// Takes over the list of `mine`, and adds what an earlier quiesce closed and no thread restored since.
  void finish_listing(being_closed& mine) noexcept;

  // For threads that register again what `quiesce` closed: each begins with one registration, restores it, and ends.
  struct restorable {
    std::size_t count = 0;
    std::uint64_t quiesces = 0;  ///< how often `quiesce` has begun
  };
  [[nodiscard]] restorable left() noexcept;
  /// Returns false if nothing is left, or if `quiesce` has begun again: `since` differs from `restorable::quiesces`.
  [[nodiscard]] bool begin_restoring(restored_now& one, std::uint64_t since) noexcept;
  void end_restoring(const restored_now& one) noexcept;

  /// Encloses a withdrawal's visits to the shards: the memory is gone, or need not be kept.
  class withdrawing {
   public:
    withdrawing(quiesced& from, withdrawal::of what, peer_id peer, const range& where) noexcept
        : from_(from), call_{what, peer, where} {}
    withdrawing(const withdrawing&) = delete;
    withdrawing& operator=(const withdrawing&) = delete;
    ~withdrawing();
    /// Called under the shard's mutex.
    void before_visit() noexcept {
      if (linked_ || !from_.any_.load(std::memory_order_relaxed)) return;
      link();
    }

   private:
    void link() noexcept;
    void mark(restored_now& one) const noexcept;
    quiesced& from_;
    withdrawal call_;
    bool linked_ = false;
  };

 private:
  [[nodiscard]] bool is_still_there(restored_now& one) const noexcept;
  void note_whether_any() noexcept;

  change_signal& changes_;
  std::mutex mutex_;
  remembered_list list_;
  being_closed* closing_ = nullptr;
  restored_now* restoring_ = nullptr;
  withdrawal* withdrawals_ = nullptr;
  bool quiescing_ = false;
  std::uint64_t quiesces_ = 0;
  std::atomic<bool> any_{false};  // changed under the mutex
};

}  // namespace pinfold::core
