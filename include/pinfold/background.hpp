// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Registration in the background: a ticket for memory that threads of the library register (R65).
#pragma once

#include <pinfold/detail/background.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/large_lease.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace pinfold {

/// Options of one background registration.
struct background_options {
  /// Largest piece, in bytes. The registrar's largest registration limits it further. A cancelled thread stops at the
  /// end of its piece.
  std::size_t piece_bytes = default_piece_bytes;
  /// Threads that register: at least one, at most 256, and not more than there are pieces.
  unsigned workers = 4;
  /// The order of several ranges.
  background_order order = background_order::as_given;
  /// Largest number of bytes that all workers together begin to register in a second; 0: no limit. The limit applies
  /// to whole pieces: a piece starts once the time of all earlier pieces has passed. Pieces that are already registered
  /// take no time.
  std::uint64_t bytes_per_second = 0;
  /// Which thread makes the pages of a piece present. If a worker does, no byte changes, and a page that cannot be made
  /// present is a failure of the piece, with the errno: memory that is not mapped, or behind the end of its file.
  prefault_choice prefault = prefault_choice::none;
  /// Largest size of the piece that is registered first, in bytes, so that transfers can start early; rounded down to
  /// 2 MiB. The other threads begin when it is registered. 0: as large as the others.
  std::size_t first_piece_bytes = std::size_t{16} << 20U;
  /// Called with the registered bytes and the bytes in all, after each piece or after several, on one of the
  /// registering threads at a time. Never called after the ticket's destructor returns, except if the destructor timed
  /// out. It may call the ticket, but waits there end at once with `invalid_argument`. If it throws, the registration
  /// ends with `invalid_argument`.
  std::function<void(std::size_t done, std::size_t total)> progress{};
};

/// A ticket for memory that is registered in the background, piece by piece. Transfers can start on the part that is
/// ready. The ticket holds a lease on each piece that is registered, so the rules of `lease` apply to it: a cache that
/// is destroyed waits for it up to `drain_timeout`.
///
/// Memory that is not ready must stay mapped until `cancel` returns without `timed_out`, or the destructor returns;
/// otherwise a thread may register a piece with the old pages.
///
/// The threads stop at the first failure, when the ticket is cancelled, and when the cache is destroyed: then waits
/// return `closed`. Every member may be called on any thread at any time, except that the destructor and a move must
/// not run at the same time as another member. Move-only. A moved-from ticket, a ticket that was taken from, and in a
/// child of fork(2) the parent's ticket return `closed`.
template <registrar R>
class [[nodiscard]] background_registration {
 public:
  background_registration(background_registration&&) noexcept = default;
  /// Ends the earlier registration as the destructor does.
  background_registration& operator=(background_registration&&) noexcept = default;
  /// Cancels with `cancel_policy::give_back`, unless `take` has taken the leases. Waits as `cancel` does. If
  /// the wait times out, or in the callback, a thread may still use the memory and be in `progress`: call `cancel`
  /// first to find out.
  ~background_registration() = default;

  /// Returns how far the registration has come. Never waits for a driver.
  [[nodiscard]] background_progress progress() const noexcept { return work_.progress(); }

  /// Returns the end of the registered part that begins at the lowest address; that address itself while its piece is
  /// not registered; 0 if the ticket is closed. A gap between ranges ends the part. A piece that became stale still
  /// counts: `ready`, `acquire` and `list` refuse it.
  [[nodiscard]] std::uintptr_t ready_up_to() const noexcept { return work_.ready_up_to(); }

  /// Returns whether all of the `bytes` bytes at `address` are registered and not stale.
  [[nodiscard]] bool ready(const void* address, std::size_t bytes) noexcept {
    const auto where = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    return where && work_.ready(*where).has_value();
  }

  /// Returns a lease of its own on memory that is ready, in pieces. It outlives the ticket. Errors: `invalid_range`
  /// (not memory of this ticket), `timed_out` (not registered yet), `stale_handle` (stale: see `renew`), `closed`,
  /// `out_of_resources`, and what `failure` returns if the registration of that memory failed.
  [[nodiscard]] result<large_lease<R>> acquire(const void* address, std::size_t bytes) noexcept {
    const auto where = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (!where) return tl::unexpected(where.error());
    return detail::or_error(no_memory, no_memory, [&]() -> result<large_lease<R>> {
      auto parts = work_.acquire(*where);
      if (!parts) return tl::unexpected(parts.error());
      return large_lease<R>(*std::move(parts));
    });
  }

  /// Returns the parts of registrations that make up memory that is ready, by address. They are valid while the ticket
  /// holds its leases. Errors: those of `acquire`.
  [[nodiscard]] result<std::vector<registered_part<R>>> list(const void* address, std::size_t bytes) noexcept {
    auto held = acquire(address, bytes);
    if (!held) return tl::unexpected(held.error());
    return held->list(address, bytes);
  }

  /// Waits until no thread registers any more. Succeeds if everything is registered. Errors: that of `failure`,
  /// `closed` (cancelled, or the cache was destroyed), `invalid_argument` (in a `progress` callback).
  result<void> wait() noexcept { return work_.wait({}); }

  /// Waits likewise, but returns `timed_out` after `timeout`. The registration goes on.
  result<void> wait_for(std::chrono::milliseconds timeout) noexcept { return work_.wait(timeout); }

  /// Waits until `ready_up_to` is at least `end`. Errors: those of `wait_for`, `invalid_range` if the memory of this
  /// ticket ends before, or has a gap.
  result<void> wait_until_ready(std::uintptr_t end, std::chrono::milliseconds timeout) noexcept {
    return work_.wait_until_ready(end, timeout);
  }

  /// Stops the threads, each at the end of its piece, and waits for them, up to `cache_options::wait_timeout`. Then
  /// keeps the leases on what is registered, or gives them back. Returns `timed_out` if a driver takes longer: its
  /// thread then ends by itself, and does as `what` says. With `give_back`, returns the error of the first close that
  /// the driver refuses. In a `progress` callback it does not wait.
  result<void> cancel(cancel_policy what) noexcept { return work_.cancel(what); }

  /// Returns the first failure since the start or the last `renew`; none if there is none.
  [[nodiscard]] std::optional<background_failure> failure() const noexcept { return work_.failure(); }

  /// Returns the pieces that are stale: registered before their memory was unmapped, replaced or invalidated. Errors:
  /// `closed`, `out_of_resources`.
  [[nodiscard]] result<std::vector<range>> stale() noexcept {
    return detail::or_error(no_memory, no_memory, [&] { return work_.stale(); });
  }

  /// Registers in the background the pieces that are stale, and those that a failure or `cancel` left out. Gives back
  /// the leases on stale registrations first, so no transfer may use them any more. Leases from `acquire` are not
  /// affected. Pieces that are registered and current stay as they are. Forgets the failure. Errors: `closed`,
  /// `out_of_resources`, after which it can be called again.
  result<void> renew() noexcept {
    return detail::or_error(no_memory, no_memory, [&] { return work_.renew(); });
  }

  /// Returns all leases as one, when everything is registered. The ticket is then empty. Errors, which change nothing:
  /// `timed_out` (a thread still registers), `stale_handle` (a piece is stale), `closed`, that of `failure`,
  /// `out_of_resources`.
  [[nodiscard]] result<large_lease<R>> take() noexcept {
    return detail::or_error(no_memory, no_memory, [&]() -> result<large_lease<R>> {
      std::vector<typename large_lease<R>::own_piece> room;
      room.reserve(work_.progress().pieces_total);  // nothing may fail once the ticket is empty
      auto parts = work_.take();
      if (!parts) return tl::unexpected(parts.error());
      return large_lease<R>(*std::move(parts), std::move(room));
    });
  }

 private:
  static constexpr const char* no_memory = "no memory for the pieces";
  friend class cache<R>;
  explicit background_registration(detail::background_work work) noexcept : work_(std::move(work)) {}

  detail::background_work work_;
};

}  // namespace pinfold
