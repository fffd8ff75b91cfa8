// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// State shared by a ticket and its workers (R65). It outlives the ticket while a worker runs, and keeps the engine's
/// memory allocated.
#pragma once

#include "bulk/rate_limit.hpp"
#include "os/numa.hpp"
#include "os/worker_group.hpp"

#include <pinfold/detail/background.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace pinfold::detail {

inline constexpr std::chrono::years longest_wait{1};

enum class piece_state : std::uint8_t {
  missing,  ///< to be registered
  taken,    ///< a worker registers it
  done,     ///< registered: the state has a pin
};

struct background_piece {
  range where;
  piece_state state = piece_state::missing;
  grant held;
};

struct taken_piece {
  std::size_t number = 0;
  grant hit;                             ///< empty if it is to be registered
  rate_limit::clock::time_point turn{};  ///< when the rate allows it
  bool stopped = false;                  ///< the work was stopped before the piece began
};

/// Thread-safe. Calls the engine, the driver and the callback without the mutex, except for `pin_again`, which only
/// counts. docs/understand/protocol.md, *Large leases and background registration*, has the invariants.
class background_state : public std::enable_shared_from_this<background_state> {
 public:
  using deadline = std::chrono::steady_clock::time_point;

  background_state(background_use use, background_plan plan);
  background_state(const background_state&) = delete;
  background_state& operator=(const background_state&) = delete;
  /// Releases the remaining leases.
  ~background_state();

  // --- the life of the work (background.cpp)

  /// Makes a work that owns itself until `close`. Throws `std::bad_alloc`.
  [[nodiscard]] static background_state* make(background_use use, background_plan plan);
  /// Starts workers for the missing pieces.
  [[nodiscard]] result<void> start_workers() noexcept;
  /// Registers all pieces or none, on the caller's thread too. Throws `std::bad_alloc`.
  [[nodiscard]] result<std::vector<held_part>> acquire_all();
  /// Ends the ticket, and frees the work once no worker needs it.
  void close() noexcept;

  [[nodiscard]] bool here() const noexcept { return process_ == this_process(); }

  // --- calls of the ticket (background_ticket.cpp; background_work.cpp calls it)

  [[nodiscard]] background_progress progress() const noexcept;
  [[nodiscard]] std::uintptr_t ready_up_to() const noexcept;
  [[nodiscard]] result<void> ready(const range& where) noexcept;
  [[nodiscard]] result<std::vector<held_part>> acquire(const range& where);
  [[nodiscard]] result<void> wait(std::optional<deadline> until) noexcept;
  [[nodiscard]] result<void> wait_until_ready(std::uintptr_t end, deadline until) noexcept;
  [[nodiscard]] result<void> cancel(cancel_policy what) noexcept;
  [[nodiscard]] std::optional<background_failure> failure() const noexcept;
  [[nodiscard]] result<std::vector<range>> stale();
  [[nodiscard]] result<void> renew();
  [[nodiscard]] result<std::vector<held_part>> take();
  [[nodiscard]] bool taken() const noexcept;

 private:
  using lock = std::unique_lock<std::mutex>;

  // `near` is null on a thread that the library did not start.
  void work(os::near_memory* near) noexcept;
  [[nodiscard]] std::size_t announce_workers(std::size_t here) noexcept;
  [[nodiscard]] result<void> start(std::size_t announced) noexcept;
  [[nodiscard]] bool start_one() noexcept;
  void hit_all() noexcept;
  [[nodiscard]] std::optional<std::size_t> next_piece() noexcept;
  // background_pacing.cpp
  [[nodiscard]] std::optional<taken_piece> take_in_turn() noexcept;
  [[nodiscard]] bool first_is_alone() const noexcept;
  [[nodiscard]] result<void> before_registering(taken_piece& one, os::near_memory* near) noexcept;
  [[nodiscard]] result<void> wait_for_turn(taken_piece& one) noexcept;
  [[nodiscard]] result<grant> register_piece(taken_piece& one, os::near_memory* near) noexcept;
  [[nodiscard]] grant hit_piece(std::size_t number) noexcept;
  [[nodiscard]] request request_for(std::size_t number) const noexcept;
  void keep(const taken_piece& one, const result<grant>& made) noexcept;
  void say_done(background_piece& one, const grant& made) noexcept;
  void fail_with(const error& why, const range& where) noexcept;
  void tell() noexcept;
  [[nodiscard]] bool told(std::size_t done) noexcept;
  [[nodiscard]] tl::unexpected<error> say_ended() noexcept;
  void join_ended() noexcept;
  [[nodiscard]] result<void> give_back_all() noexcept;
  [[nodiscard]] lease_base give_back(background_piece& one) noexcept;
  struct old_piece {
    std::size_t number;
    lease_base held;
  };
  [[nodiscard]] result<std::vector<old_piece>> take_stale();
  void give_back_as_worker(std::vector<old_piece>& old) const noexcept;
  [[nodiscard]] bool stops() const noexcept { return cancelled_ || ended_ || failure_.has_value(); }
  [[nodiscard]] bool on_worker() const noexcept;

  [[nodiscard]] result<void> mark_stale_there(const range& where) noexcept;
  [[nodiscard]] range whole() const noexcept { return {pieces_.front().where.begin, pieces_.back().where.end}; }
  [[nodiscard]] std::size_t first_behind(std::uintptr_t address) const noexcept;
  [[nodiscard]] result<void> usable(const background_piece& one) const noexcept;
  [[nodiscard]] result<std::size_t> ready_pieces(const range& where) const noexcept;
  [[nodiscard]] result<void> outcome() const noexcept;
  [[nodiscard]] std::uintptr_t prefix_end() const noexcept;

  const std::uint64_t process_;
  const background_use use_;
  const request like_;
  const std::vector<std::uint32_t> order_;
  const bytes_progress progress_;
  const std::size_t workers_;
  const pace_options pace_;
  const bool first_is_short_;
  rate_limit rate_;
  std::mutex taking_;                     // orders the turns of pieces; `mutex_` may be taken with it held
  std::size_t bytes_total_ = 0;           // constant from the start, as are the next two
  std::size_t before_gap_ = 0;            // pieces before the first gap
  std::chrono::milliseconds patience_{};  // longest wait for a driver when the ticket is cancelled

  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::vector<background_piece> pieces_;  // by address; their ranges are constant
  std::size_t next_ = 0;                  // no piece before it in `order_` is missing
  std::size_t bytes_done_ = 0;
  std::size_t pieces_done_ = 0;
  std::size_t prefix_ = 0;  // all pieces below it are done
  std::optional<background_failure> failure_;
  std::size_t running_ = 0;  // workers that have not ended
  bool cancelled_ = false;
  bool given_back_ = false;  // a worker gives back what it registers
  bool ended_ = false;       // a thread found the cache closed
  bool taken_ = false;       // the ticket is empty; calls of other threads may still be here
  bool closed_ = false;      // `close` was called
  bool telling_ = false;     // a worker is in the callback
  std::size_t told_ = 0;
  std::optional<os::numa_nodes> nodes_;  // constant once a worker was started
  os::worker_group threads_;
  std::shared_ptr<background_state> own_;  // until `close`; not guarded
};

}  // namespace pinfold::detail
