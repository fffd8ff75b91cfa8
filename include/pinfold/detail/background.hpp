// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The compiled part of large leases and of background registration. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/batch.hpp>
#include <pinfold/detail/engine.hpp>
#include <pinfold/lease_base.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace pinfold {

/// The policy for the registered part when background registration is cancelled.
enum class cancel_policy : std::uint8_t {
  keep,       ///< the ticket keeps its leases on the part that is registered
  give_back,  ///< the ticket releases its leases; the cache keeps or closes the registrations, as after any release
};

/// The order in which background registration takes several ranges.
enum class background_order : std::uint8_t {
  as_given,       ///< the order of the request
  largest_first,  ///< the largest range first
};

/// The thread that makes pages present, and their size.
enum class prefault_choice : std::uint8_t {
  none,        ///< the driver makes them present as it pins them; many drivers do so on one thread at a time
  pages,       ///< the worker does so before it registers the piece: several workers in parallel
  huge_pages,  ///< likewise, after it has advised the kernel to use transparent huge pages
};

/// The progress of background registration. The totals count everything that the ticket has to register. A piece that
/// became stale counts as done until it is renewed.
struct background_progress {
  std::size_t bytes_done = 0;    ///< registered, in bytes
  std::size_t bytes_total = 0;   ///< to be registered, in bytes
  std::size_t pieces_done = 0;   ///< pieces that are registered
  std::size_t pieces_total = 0;  ///< pieces in all
  bool running = false;          ///< whether a thread still registers
};

/// The first failure of background registration.
struct background_failure {
  error why;    ///< with the driver's own code
  range where;  ///< the piece that could not be registered; empty if the failure concerns none
};

namespace detail {

/// Called with the bytes that are registered and the bytes in all.
using bytes_progress = std::function<void(std::size_t done, std::size_t total)>;

/// The rate of registration, the thread that prefaults, and the size of the first piece.
struct pace_options {
  std::uint64_t bytes_per_second = 0;
  prefault_choice prefault = prefault_choice::none;
  std::size_t first_piece_bytes = 0;
};

/// The pieces to register, and how.
struct background_plan {
  request like;                      ///< the request for each piece, except its range
  std::vector<range> pieces;         ///< by address; they do not overlap
  std::vector<std::uint32_t> order;  ///< the pieces' numbers, in the order in which the workers take them
  unsigned workers = 1;
  bytes_progress progress;
  pace_options pace{};
  bool first_is_short = false;  ///< `shorten_first_piece` cut it: until it is registered, one worker works
};

/// Cuts the piece that is registered first, so that its first part has at most `plan.pace.first_piece_bytes`, rounded
/// down to 2 MiB. Changes nothing if that part would be empty or the whole piece, or if there would be more than
/// `most_pieces` pieces. Throws `std::bad_alloc`.
void shorten_first_piece(background_plan& plan, std::size_t most_pieces);

/// A registered piece, or a part of it.
struct held_part {
  range where;
  lease_base held;
};

/// Cuts ranges into pieces for `background_plan`. Ranges that overlap become one. Pieces end at multiples of 1 GiB, or
/// of 2 MiB where the pieces are smaller than 1 GiB, or of the granularity where they are smaller than 2 MiB. Requires
/// that no range is empty. Errors: `invalid_argument` (`each` is 0), `larger_than_budget`, `too_large` (more than
/// 2^22 pieces). Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT result<background_plan> plan_pieces(engine* on, std::span<const range> ranges,
                                                                 std::size_t each, const piece_limits& limits,
                                                                 background_order order);

/// Registers all pieces or none, on the caller's thread and `workers - 1` others. Returns them by address. Throws
/// `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT result<std::vector<held_part>> acquire_pieces(engine* on, background_plan plan);

class background_state;

/// Ends the work, as documented at `background_registration`'s destructor.
struct PINFOLD_EXPORT background_closer {
  void operator()(background_state* ending) const noexcept;
};

/// The untyped part of `background_registration`, with the same members. Thread-safe, except moves and the destructor.
/// A moved-from object returns `closed`.
class PINFOLD_EXPORT background_work {
 public:
  /// Starts the workers; `out_of_resources` if no thread can be started. Throws `std::bad_alloc`.
  [[nodiscard]] static result<background_work> start(engine* on, background_plan plan);

  [[nodiscard]] background_progress progress() const noexcept;
  [[nodiscard]] std::uintptr_t ready_up_to() const noexcept;
  [[nodiscard]] result<void> ready(const range& where) noexcept;
  /// Throws `std::bad_alloc`.
  [[nodiscard]] result<std::vector<held_part>> acquire(const range& where);
  [[nodiscard]] result<void> wait(std::optional<std::chrono::milliseconds> timeout) noexcept;
  [[nodiscard]] result<void> wait_until_ready(std::uintptr_t end, std::chrono::milliseconds timeout) noexcept;
  [[nodiscard]] result<void> cancel(cancel_policy what) noexcept;
  [[nodiscard]] std::optional<background_failure> failure() const noexcept;
  /// Throws `std::bad_alloc`.
  [[nodiscard]] result<std::vector<range>> stale();
  /// Throws `std::bad_alloc`.
  [[nodiscard]] result<void> renew();
  /// Throws `std::bad_alloc`.
  [[nodiscard]] result<std::vector<held_part>> take();

 private:
  explicit background_work(background_state* state) noexcept : state_(state) {}
  [[nodiscard]] result<void> usable() const noexcept;

  std::unique_ptr<background_state, background_closer> state_;
};

}  // namespace detail
}  // namespace pinfold
