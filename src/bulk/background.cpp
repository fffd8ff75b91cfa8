// SPDX-License-Identifier: BSD-3-Clause
// Runs the workers of a background registration, and ends them with the work, the ticket or the cache (R65).
#include "bulk/background_state.hpp"
#include "os/check.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <utility>

namespace pinfold::detail {

namespace {

// The work that this thread is a worker of: a callback on it may call the ticket, and must not wait for itself.
thread_local const background_state* working_for = nullptr;

}  // namespace

background_state::background_state(background_use use, background_plan plan)
    : process_(this_process()),
      use_(std::move(use)),
      like_(plan.like),
      order_(std::move(plan.order)),
      progress_(std::move(plan.progress)),
      workers_(std::clamp(plan.workers, 1U, most_workers)),
      pace_(plan.pace),
      first_is_short_(plan.first_is_short),
      rate_(plan.pace.bytes_per_second) {
  if (const background_use::call now(use_); now.on() != nullptr) patience_ = limits_of(now.on()).wait_timeout;
  pieces_.reserve(plan.pieces.size());
  for (const range& one : plan.pieces) {
    PINFOLD_ASSERT(!one.empty() && (pieces_.empty() || pieces_.back().where.end <= one.begin),
                   "pieces have bytes, do not overlap, and come by address");
    if (before_gap_ == pieces_.size() && (pieces_.empty() || pieces_.back().where.end == one.begin)) ++before_gap_;
    pieces_.push_back({one, piece_state::missing, {}});
    bytes_total_ += one.size();
  }
}

background_state::~background_state() { static_cast<void>(give_back_all()); }

background_state* background_state::make(background_use use, background_plan plan) {
  auto made = std::make_shared<background_state>(std::move(use), std::move(plan));
  made->own_ = made;
  return made.get();
}

// --- one worker

void background_state::work(os::near_memory* near) noexcept {
  const auto* const before = std::exchange(working_for, this);
  while (auto mine = take_in_turn()) {
    const auto made = register_piece(*mine, near);
    keep(*mine, made);
    tell();
  }
  working_for = before;
}

bool background_state::on_worker() const noexcept { return working_for == this; }

// Runs as a worker: calls of the ticket by the driver or the sink meanwhile must not wait for this thread.
void background_state::give_back_as_worker(std::vector<old_piece>& old) const noexcept {
  const auto* const before = std::exchange(working_for, this);
  for (auto& one : old) one.held = {};
  working_for = before;
}

// Takes the next piece and returns its number. Without one, the worker ends.
std::optional<std::size_t> background_state::next_piece() noexcept {
  lock guard(mutex_);
  changed_.wait(guard, [this] { return stops() || !first_is_alone(); });
  for (; !stops() && next_ < order_.size(); ++next_) {
    auto& one = pieces_[order_[next_]];
    if (one.state != piece_state::missing) continue;
    one.state = piece_state::taken;
    return order_[next_++];
  }
  PINFOLD_ASSERT(running_ > 0, "a worker that ends was counted");
  --running_;
  changed_.notify_all();
  return std::nullopt;
}

request background_state::request_for(std::size_t number) const noexcept {
  request what = like_;
  PINFOLD_ASSERT(number < pieces_.size(), "the work has a piece of this number");
  what.wanted = pieces_[number].where;
  return what;
}

grant background_state::hit_piece(std::size_t number) noexcept {
  const background_use::call entered(use_);
  return look_up(entered.on(), request_for(number));
}

result<grant> background_state::register_piece(taken_piece& one, os::near_memory* near) noexcept {
  if (one.hit.held != 0) return one.hit;
  if (auto may = before_registering(one, near); !may) return tl::unexpected(may.error());
  const background_use::call entered(use_);
  if (entered.on() == nullptr) return fail(errc::closed, "the cache was destroyed");
  return acquire_in_background(entered.on(), request_for(one.number));
}

void background_state::keep(const taken_piece& mine, const result<grant>& made) noexcept {
  lease_base unwanted;  // released without the mutex
  // The driver may return `closed` too: only `use_` knows whether the cache has ended.
  const bool ended = !made && made.error().code == errc::closed && background_use::call(use_).on() == nullptr;
  const lock guard(mutex_);
  auto& one = pieces_[mine.number];
  PINFOLD_ASSERT(one.state != piece_state::done, "no piece is registered by two workers");
  one.state = piece_state::missing;
  if (!made) {
    next_ = 0;  // `renew` may have passed the piece while it was taken
    ended_ = ended_ || ended;
    if (!ended && !mine.stopped) fail_with(made.error(), one.where);
  } else if (given_back_) {
    unwanted = lease_base(*made);
  } else {
    say_done(one, *made);
  }
  changed_.notify_all();
}

void background_state::say_done(background_piece& one, const grant& made) noexcept {
  one.state = piece_state::done;
  one.held = made;
  ++pieces_done_;
  bytes_done_ += one.where.size();
  PINFOLD_ASSERT(pieces_done_ <= pieces_.size() && bytes_done_ <= bytes_total_, "a piece counts once as done");
  while (prefix_ < pieces_.size() && pieces_[prefix_].state == piece_state::done) ++prefix_;
}

void background_state::fail_with(const error& why, const range& where) noexcept {
  if (!failure_) failure_ = background_failure{why, where};
}

// Calls the callback, on one thread at a time, until it knows the latest sum.
void background_state::tell() noexcept {
  if (!progress_) return;
  lock guard(mutex_);
  if (std::exchange(telling_, true)) return;
  while (told_ != bytes_done_ && !closed_) {
    const auto done = told_ = bytes_done_;
    guard.unlock();
    const bool returned = told(done);
    guard.lock();
    if (!returned)
      fail_with({errc::invalid_argument, native_kind::none, 0, "the progress callback threw an exception"}, {});
    if (!returned) break;
  }
  telling_ = false;
}

bool background_state::told(std::size_t done) noexcept try {
  progress_(done, bytes_total_);
  return true;
} catch (...) {
  return false;
}

// --- all workers

// Returns, and counts as running, the workers to start: one for each remaining piece, at most `workers_`, less `here`.
std::size_t background_state::announce_workers(std::size_t here) noexcept {
  PINFOLD_ASSERT(pieces_done_ <= pieces_.size(), "no more pieces are done than there are");
  const auto useful = std::min(workers_, pieces_.size() - pieces_done_);
  const auto count = useful > here ? useful - here : 0;
  running_ += count;
  return count;
}

// Fewer threads are only slower; none is an error, unless other workers run.
result<void> background_state::start(std::size_t announced) noexcept {
  std::size_t started = 0;
  while (started < announced && start_one()) ++started;
  const lock guard(mutex_);
  PINFOLD_ASSERT(running_ >= announced - started, "the workers that did not start were announced");
  running_ -= announced - started;
  changed_.notify_all();
  if (announced == 0 || started > 0 || running_ > 0) return {};
  const error why{errc::out_of_resources, native_kind::none, 0, "cannot start a thread for the background"};
  fail_with(why, {});
  return tl::unexpected(why);
}

// A worker that ends at once waits for the mutex, which this thread holds, so that `threads_` has every worker.
bool background_state::start_one() noexcept try {
  const lock guard(mutex_);
  if (!nodes_) nodes_.emplace();
  const auto work = [self = shared_from_this()](std::size_t) {
    os::near_memory near(*self->nodes_);
    self->work(&near);
  };
  return threads_.start(1, work).has_value();
} catch (...) {  // std::bad_alloc
  return false;
}

result<void> background_state::start_workers() noexcept {
  std::size_t count = 0;
  {
    const lock guard(mutex_);
    count = announce_workers(running_);
  }
  return start(count);
}

void background_state::hit_all() noexcept {
  for (std::size_t number = 0; number < pieces_.size(); ++number)
    if (const auto hit = hit_piece(number); hit.held != 0) keep({number, hit}, hit);
  const lock guard(mutex_);
  told_ = bytes_done_;  // nothing was registered yet
}

result<std::vector<held_part>> background_state::acquire_all() {
  std::vector<held_part> parts;
  parts.reserve(pieces_.size());
  hit_all();
  std::size_t others = 0;
  {
    const lock guard(mutex_);
    others = announce_workers(1);
    ++running_;  // this thread
  }
  static_cast<void>(start(others));  // this thread is a worker too
  work(nullptr);
  auto done = wait({});
  join_ended();
  if (!done) {
    static_cast<void>(give_back_all());  // a failed close stays with the cache, which tells the sink
    return tl::unexpected(done.error());
  }
  const lock guard(mutex_);
  for (auto& one : pieces_) {
    PINFOLD_ASSERT(one.state == piece_state::done, "all pieces are registered, or none is handed out");
    parts.push_back({one.where, give_back(one)});
  }
  return parts;
}

// --- the end

// Joins the threads if all workers have ended, so that the threads only have to return.
void background_state::join_ended() noexcept {
  os::worker_group ended;  // joined without the mutex
  const lock guard(mutex_);
  if (running_ == 0) ended = std::exchange(threads_, {});
}

void background_state::close() noexcept {
  static_cast<void>(cancel(cancel_policy::give_back));  // a failed close stays with the cache, which tells the sink
  const auto own = std::move(own_);
  PINFOLD_ASSERT(own != nullptr, "a work that owns itself is closed once");
  const lock guard(mutex_);
  threads_.detach();  // a worker may still be in the driver, or in the callback that ends the ticket
  closed_ = true;
}

// Does nothing in a child of fork(2), where threads of the parent may hold the mutex, or wait for the condition.
void background_closer::operator()(background_state* ending) const noexcept {
  const no_cancellation whole;
  if (ending->here()) ending->close();
}

result<std::vector<held_part>> acquire_pieces(engine* on, background_plan plan) {
  const no_cancellation whole;
  auto use = background_use::begin(on);
  if (!use) return tl::unexpected(use.error());
  return std::make_shared<background_state>(*std::move(use), std::move(plan))->acquire_all();
}

}  // namespace pinfold::detail
