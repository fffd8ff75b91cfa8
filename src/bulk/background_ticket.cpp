// SPDX-License-Identifier: BSD-3-Clause
// Calls of a ticket for background registration (R65).
#include "bulk/background_state.hpp"
#include "os/check.hpp"
#include "os/deadline.hpp"

#include <algorithm>
#include <utility>

namespace pinfold::detail {

namespace {

tl::unexpected<error> waits_for_itself() noexcept {
  return fail(errc::invalid_argument, "a progress callback cannot wait for its own registration");
}

tl::unexpected<error> taken_from() noexcept { return fail(errc::closed, "the ticket was taken from"); }

}  // namespace

background_progress background_state::progress() const noexcept {
  const lock guard(mutex_);
  return {bytes_done_, bytes_total_, pieces_done_, pieces_.size(), running_ > 0};
}

std::uintptr_t background_state::prefix_end() const noexcept {
  PINFOLD_ASSERT(prefix_ <= pieces_.size() && before_gap_ <= pieces_.size(), "the pieces from the front are counted");
  const auto ready = std::min(prefix_, before_gap_);
  return ready == 0 ? pieces_.front().where.begin : pieces_[ready - 1].where.end;
}

std::uintptr_t background_state::ready_up_to() const noexcept {
  const lock guard(mutex_);
  return prefix_end();
}

std::optional<background_failure> background_state::failure() const noexcept {
  const lock guard(mutex_);
  return failure_;
}

// --- waiting

result<void> background_state::outcome() const noexcept {
  if (taken_) return taken_from();
  if (failure_) return tl::unexpected(failure_->why);
  if (pieces_done_ == pieces_.size()) return {};
  if (ended_) return fail(errc::closed, "the cache was destroyed");
  if (cancelled_) return fail(errc::closed, "the registration was cancelled");
  return fail(errc::timed_out, "the registration is not finished");
}

result<void> background_state::wait(std::optional<deadline> until) noexcept {
  const auto finished = [this] { return running_ == 0; };
  if (on_worker()) return waits_for_itself();
  lock guard(mutex_);
  if (!until) {
    changed_.wait(guard, finished);
  } else if (!changed_.wait_until(guard, *until, finished)) {
    return fail(errc::timed_out, "the registration is not finished");
  }
  return outcome();
}

result<void> background_state::wait_until_ready(std::uintptr_t end, deadline until) noexcept {
  lock guard(mutex_);
  if (end > pieces_[before_gap_ - 1].where.end)
    return fail(errc::invalid_range, "the memory of the ticket ends before, or has a gap");
  const auto settled = [&] { return prefix_end() >= end || running_ == 0 || stops(); };
  if (!settled()) {
    if (on_worker()) return waits_for_itself();
    if (!changed_.wait_until(guard, until, settled)) return fail(errc::timed_out, "this part is not registered yet");
  }
  return prefix_end() >= end ? result<void>{} : outcome();
}

// --- the part that is ready

// Wakes waiting threads too: there may be no worker to find the cache closed.
tl::unexpected<error> background_state::say_ended() noexcept {
  const lock guard(mutex_);
  ended_ = true;
  changed_.notify_all();
  return fail(errc::closed, "the cache was destroyed");
}

// Marks the pieces that events from before this call made stale.
result<void> background_state::mark_stale_there(const range& where) noexcept {
  const background_use::call entered(use_);
  if (entered.on() == nullptr) return say_ended();
  mark_stale(entered.on(), where);
  return {};
}

std::size_t background_state::first_behind(std::uintptr_t address) const noexcept {
  const auto found = std::upper_bound(pieces_.begin(), pieces_.end(), address,
                                      [](std::uintptr_t wanted, const auto& one) { return wanted < one.where.end; });
  return static_cast<std::size_t>(found - pieces_.begin());
}

result<void> background_state::usable(const background_piece& one) const noexcept {
  if (one.state == piece_state::done) {
    const record* registered = record_of(one.held.held);
    PINFOLD_ASSERT(registered != nullptr, "a piece that is done has a pin");
    if (registered->is(record::revoked)) return fail(errc::closed, "the cache was destroyed");
    if (registered->is(record::stale))
      return fail(errc::stale_handle, "the memory was replaced or invalidated after it was registered");
    return {};
  }
  if (taken_) return taken_from();
  if (failure_ && failure_->where == one.where) return tl::unexpected(failure_->why);
  if (ended_) return fail(errc::closed, "the cache was destroyed");
  if (cancelled_) return fail(errc::closed, "the registration was cancelled");
  return fail(errc::timed_out, "this part is not registered yet");
}

// Returns the number of the first piece of a range, if the whole range is ready.
result<std::size_t> background_state::ready_pieces(const range& where) const noexcept {
  const auto first = first_behind(where.begin);
  auto from = where.begin;
  for (auto number = first; from < where.end; from = pieces_[number++].where.end) {
    if (number == pieces_.size() || from < pieces_[number].where.begin)
      return fail(errc::invalid_range, "the range is not memory of this ticket");
    if (auto good = usable(pieces_[number]); !good) return tl::unexpected(good.error());
  }
  return first;
}

result<void> background_state::ready(const range& where) noexcept {
  if (auto known = mark_stale_there(where); !known) return known;
  const lock guard(mutex_);
  return ready_pieces(where).map([](std::size_t) {});
}

result<std::vector<held_part>> background_state::acquire(const range& where) {
  if (auto known = mark_stale_there(where); !known) return tl::unexpected(known.error());
  const lock guard(mutex_);
  const auto first = ready_pieces(where);
  if (!first) return tl::unexpected(first.error());
  const auto end = first_behind(where.end - 1) + 1;
  std::vector<held_part> parts;
  parts.reserve(end - *first);  // before any pin
  for (auto number = *first; number < end; ++number) {
    const auto& [piece, state, held] = pieces_[number];
    const range part{std::max(piece.begin, where.begin), std::min(piece.end, where.end)};
    PINFOLD_ASSERT(part.begin < part.end, "each piece has a part of the range");
    parts.push_back({part, lease_base({pin_again(held.held), reinterpret_cast<void*>(part.begin)})});
  }
  return parts;
}

// --- stale pieces

result<std::vector<range>> background_state::stale() {
  if (auto known = mark_stale_there(whole()); !known) return tl::unexpected(known.error());
  std::vector<range> found;
  const lock guard(mutex_);
  for (const auto& one : pieces_)
    if (one.state == piece_state::done && record_of(one.held.held)->is(record::stale)) found.push_back(one.where);
  return found;
}

result<void> background_state::renew() {
  if (auto known = mark_stale_there(whole()); !known) return known;
  join_ended();
  auto old = take_stale();
  if (!old) return tl::unexpected(old.error());
  give_back_as_worker(*old);  // before the memory is registered again: some drivers refuse overlaps
  std::size_t announced = 0;
  {
    const lock guard(mutex_);
    for (const auto& [number, held] : *old) {
      PINFOLD_ASSERT(pieces_[number].state == piece_state::taken,
                     "no worker takes a stale piece before its lease ends");
      pieces_[number].state = piece_state::missing;
    }
    PINFOLD_ASSERT(running_ > 0, "this thread counts as a worker");
    --running_;
    next_ = 0;
    if (running_ == 0) rate_.forget();  // turns that no piece used
    announced = announce_workers(running_);
  }
  return start(announced);
}

// Takes the stale pieces as a worker does, so that no worker registers them before their leases are released.
result<std::vector<background_state::old_piece>> background_state::take_stale() {
  std::vector<old_piece> old;
  const lock guard(mutex_);
  if (taken_) return taken_from();
  old.reserve(pieces_done_);  // before any change
  for (std::size_t number = 0; number < pieces_.size(); ++number) {
    auto& one = pieces_[number];
    if (one.state != piece_state::done || !record_of(one.held.held)->is(record::stale)) continue;
    old.push_back({number, give_back(one)});
    one.state = piece_state::taken;
  }
  ++running_;  // this thread
  failure_.reset();
  cancelled_ = given_back_ = false;
  return old;
}

// --- the end

// Moves the lease out of a piece.
lease_base background_state::give_back(background_piece& one) noexcept {
  if (one.state != piece_state::done) return {};
  one.state = piece_state::missing;
  PINFOLD_ASSERT(pieces_done_ > 0 && bytes_done_ >= one.where.size(), "a piece that is done was counted");
  --pieces_done_;
  bytes_done_ -= one.where.size();
  prefix_ = std::min(prefix_, static_cast<std::size_t>(&one - pieces_.data()));
  return lease_base(std::exchange(one.held, {}));
}

result<void> background_state::give_back_all() noexcept {
  result<void> first;
  for (std::size_t number = 0; number < pieces_.size(); ++number) {
    lease_base one;
    {
      const lock guard(mutex_);
      one = give_back(pieces_[number]);
    }
    if (auto closed = one.release(); !closed && first) first = closed;
  }
  return first;
}

result<void> background_state::cancel(cancel_policy what) noexcept {
  const auto until = os::deadline_in(patience_, longest_wait);
  bool stopped = on_worker();
  {
    lock guard(mutex_);
    cancelled_ = true;
    given_back_ = what == cancel_policy::give_back;
    changed_.notify_all();
    stopped = stopped || changed_.wait_until(guard, until, [this] { return running_ == 0; });
  }
  join_ended();
  const auto closed = what == cancel_policy::give_back ? give_back_all() : result<void>{};
  if (!stopped) return fail(errc::timed_out, "a thread is still in the driver; it ends by itself");
  return closed;
}

result<std::vector<held_part>> background_state::take() {
  if (auto known = mark_stale_there(whole()); !known) return tl::unexpected(known.error());
  const lock guard(mutex_);
  if (running_ > 0) return fail(errc::timed_out, "the registration is not finished");
  if (auto done = outcome(); !done) return tl::unexpected(done.error());
  for (const auto& one : pieces_)
    if (auto good = usable(one); !good) return tl::unexpected(good.error());
  std::vector<held_part> parts;
  parts.reserve(pieces_.size());
  for (auto& one : pieces_) parts.push_back({one.where, give_back(one)});
  taken_ = true;
  return parts;
}

bool background_state::taken() const noexcept {
  const lock guard(mutex_);
  return taken_;
}

}  // namespace pinfold::detail
