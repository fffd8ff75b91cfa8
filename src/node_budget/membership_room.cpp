// SPDX-License-Identifier: BSD-3-Clause
// Takes room from the account, and gives it back.
#include "node_budget/clock.hpp"
#include "node_budget/membership.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <utility>

namespace pinfold::node {

namespace {

// The part of its even share that a member takes in advance, and the maximum.
constexpr std::size_t portions = 16;
constexpr std::size_t largest_portion = std::size_t{8} << 20U;

// How long a request without room makes other members give back theirs.
constexpr std::int64_t wanted_for_ns = 100'000'000;

// The length of a turn, the most turns of a request, and how long no request of its member has a turn after a request
// got no room in its turns. A request that seems to have waited for more than an hour counts another clock.
constexpr std::int64_t turn_ns = 100'000'000;
constexpr int most_turns = 10;
constexpr std::int64_t pause_after_turns_ns = 100 * turn_ns;
constexpr std::int64_t longest_wait_ns = 36'000 * turn_ns;

constexpr std::uint64_t units_for(std::size_t bytes) noexcept { return bytes / unit + (bytes % unit != 0 ? 1 : 0); }

}  // namespace

std::size_t membership::portion() const noexcept {
  const auto even = max_bytes() / portions / std::max<std::size_t>(known_members_.load(std::memory_order_relaxed), 1);
  return std::min(even, largest_portion) / unit * unit;
}

// Changes the total, then this slot. `pending` is not 0 while the two differ.
bool membership::add(std::int64_t units) noexcept {
  PINFOLD_ASSERT(mine_ != nullptr, "only a member with a slot changes the total");
  slot& mine = *mine_;
  mine.pending.store(units, std::memory_order_seq_cst);
  for (auto word = file_->taken.load(std::memory_order_seq_cst);;) {
    const auto now = total::of(word);
    if (units > 0 && now.units + static_cast<std::uint64_t>(units) > file_->max_units.load(std::memory_order_seq_cst)) {
      mine.pending.store(0, std::memory_order_seq_cst);
      return false;
    }
    if (file_->taken.compare_exchange_strong(word, now.next(now.units + static_cast<std::uint64_t>(units)),
                                             std::memory_order_seq_cst))
      break;
  }
  mine.units.store(mine.units.load(std::memory_order_seq_cst) + static_cast<std::uint64_t>(units),
                   std::memory_order_seq_cst);
  mine.pending.store(0, std::memory_order_seq_cst);
  return true;
}

bool membership::draw(std::size_t missing) noexcept {
  PINFOLD_ASSERT(missing > 0, "room is drawn where the spare bytes do not suffice");
  if (missing > max_bytes() || !still_mine()) return false;
  const auto least = units_for(missing);
  const auto beside = wanted() ? 0 : portion() / unit;
  for (const auto units : {least + beside, least}) {
    if (!add(static_cast<std::int64_t>(units))) continue;
    spare_ += units * unit;
    return true;
  }
  return false;
}

bool membership::take(std::size_t bytes) noexcept {
  if (left()) return false;
  os::scoped_lock guard(mutex_);
  const auto used = in_use_.load(std::memory_order_relaxed);
  const auto limit = process_max();
  if (bytes > limit || used > limit - bytes) return false;
  if (bytes > spare_ && !draw(bytes - spare_)) return false;
  PINFOLD_ASSERT(bytes <= spare_, "what was drawn suffices");
  spare_ -= bytes;
  in_use_.store(used + bytes, std::memory_order_relaxed);
  return true;
}

// While other members want room, keeps nothing in advance. A member that wants room itself keeps what it needs to come
// to its even share: it may have evicted for that.
void membership::give(std::size_t bytes) noexcept {
  if (left()) return;
  os::scoped_lock guard(mutex_);
  const auto used = in_use_.load(std::memory_order_relaxed);
  bytes = std::min(bytes, used);
  in_use_.store(used - bytes, std::memory_order_relaxed);
  spare_ += bytes;
  const bool asks =
      requests_.load(std::memory_order_relaxed) > 0 && mine_->wants_until.load(std::memory_order_seq_cst) > now_ns();
  const auto others = wanted() ? others_that_want() : crowd{};
  if (others.wanting == 0) {
    if (!asks) keep_portions();
    return;
  }
  const auto even = max_bytes() / std::max<std::size_t>(others.members, 1);
  const auto rest = used - bytes;
  give_spare(asks && rest < even ? even - rest : 0);
}

void membership::end_request() noexcept {
  PINFOLD_ASSERT(requests_.load(std::memory_order_relaxed) > 0, "a request that ends was begun");
  if (requests_.fetch_sub(1, std::memory_order_relaxed) > 1 || left()) return;
  os::scoped_lock guard(mutex_);
  keep_portions();
}

void membership::keep_portions() noexcept {
  const auto kept = portion();
  if (spare_ > 2 * kept) give_spare(kept);
}

void membership::yield_spare() noexcept {
  if (left() || !wanted() || others_that_want().wanting == 0) return;
  os::scoped_lock guard(mutex_);
  give_spare(0);
}

void membership::trim() noexcept {
  if (left()) return;
  os::scoped_lock guard(mutex_);
  give_spare(0);
}

// Gives back whole units, and keeps at least `keep` bytes.
void membership::give_spare(std::size_t keep) noexcept {
  if (spare_ <= keep || !still_mine()) return;
  const auto units = (spare_ - keep) / unit;
  if (units == 0) return;
  static_cast<void>(add(-static_cast<std::int64_t>(units)));
  spare_ -= units * unit;
}

bool membership::may_fit(std::size_t bytes) noexcept {
  const auto fits = [&] {
    os::scoped_lock guard(mutex_);
    const auto limit = process_max();
    const auto used = in_use_.load(std::memory_order_relaxed);
    if (bytes > limit || used > limit - bytes) return false;
    const auto missing = units_for(bytes - std::min(bytes, spare_));
    return total::of(file_->taken.load(std::memory_order_seq_cst)).units + missing <=
           file_->max_units.load(std::memory_order_seq_cst);
  };
  return !left() && (fits() || (reclaim_sometimes() && fits()));
}

// The hint saves members a check of all slots while no member wants room. Clears a hint that is over.
bool membership::wanted() const noexcept {
  auto until = file_->wanted_until.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (until > now_ns()) return true;
  static_cast<void>(file_->wanted_until.compare_exchange_strong(until, 0, std::memory_order_seq_cst));
  return false;
}

membership::crowd membership::others_that_want() const noexcept {
  crowd found;
  const auto now = now_ns();
  for (const slot& one : file_->members) {
    if (one.owner.load(std::memory_order_relaxed) == 0) continue;
    ++found.members;
    if (&one != mine_ && one.wants_until.load(std::memory_order_relaxed) > now) ++found.wanting;
  }
  return found;
}

bool membership::crowds_others() const noexcept {
  if (left() || !wanted()) return false;
  const auto others = others_that_want();
  return others.wanting > 0 &&
         mine_->units.load(std::memory_order_seq_cst) * unit > max_bytes() / std::max<std::size_t>(others.members, 1);
}

void membership::want(std::size_t bytes) noexcept {
  if (left() || !still_mine()) return;
  mine_->asked.store(bytes, std::memory_order_seq_cst);
  const auto limit = process_max();
  if (bytes > limit || bytes_here() > limit - bytes) return;  // its own limit refuses it: other members cannot help
  const auto until = now_ns() + wanted_for_ns;
  mine_->wants_until.store(until, std::memory_order_seq_cst);
  file_->wanted_until.store(until, std::memory_order_seq_cst);
}

void membership::want_share(std::size_t bytes) noexcept {
  if (left()) return;
  const auto members = std::max<std::size_t>(others_that_want().members, 1);
  if (bytes_here() + bytes <= max_bytes() / members) want(bytes);
}

void membership::begin_waiting(waiting_request& request) noexcept {
  PINFOLD_ASSERT(request.next == nullptr && request.turns == 0, "a request waits once");
  const std::scoped_lock guard(waiting_mutex_);
  request.since = now_ns();
  auto** last = &oldest_;
  while (*last != nullptr) last = &(*last)->next;
  *last = &request;
  list_waiting();
}

void membership::end_waiting(waiting_request& request) noexcept {
  const std::scoped_lock guard(waiting_mutex_);
  auto** at = &oldest_;
  while (*at != &request) {
    PINFOLD_ASSERT(*at != nullptr, "a request that ends is listed");
    at = &(*at)->next;
  }
  *at = request.next;
  list_waiting();
}

// A request that gets no room in its turns must not block the turns of others: it may want more than ever becomes free.
waiting_request* membership::next_in_turn() const noexcept {
  if (now_ns() < no_turn_before_) return nullptr;
  auto* one = oldest_;
  while (one != nullptr && one->turns > most_turns) one = one->next;
  return one;
}

void membership::list_waiting() noexcept {
  if (left() || !still_mine()) return;
  const auto* next = next_in_turn();
  const auto* shown = next != nullptr ? next : oldest_;
  mine_->waits_for.store(next != nullptr ? next->bytes : 0, std::memory_order_seq_cst);
  mine_->waiting_since.store(shown != nullptr ? shown->since : 0, std::memory_order_seq_cst);
  if (shown == nullptr) mine_->wants_until.store(0, std::memory_order_seq_cst);
}

// Returns the slot whose request has waited longest, for at least a tenth of a second; null if there is none. Turns are
// the odd tenths of a second: in between, requests that hold the room that the request with the turn needs can proceed.
const slot* membership::first_in_turn(std::int64_t now) const noexcept {
  if (left() || !wanted() || now / turn_ns % 2 == 0) return nullptr;
  const slot* first = nullptr;
  auto first_since = now - turn_ns;
  for (const slot& one : file_->members) {
    const auto since = one.waiting_since.load(std::memory_order_relaxed);
    if (since >= first_since || since < now - longest_wait_ns || one.waits_for.load(std::memory_order_relaxed) == 0 ||
        one.wants_until.load(std::memory_order_relaxed) <= now || one.owner.load(std::memory_order_relaxed) == 0)
      continue;
    first = &one;
    first_since = since;
  }
  return first;
}

turn membership::whose_turn(std::size_t bytes, const waiting_request* request) noexcept {
  const auto* first = first_in_turn(now_ns());
  if (first == nullptr) return turn::none;
  if (first == mine_ && request != nullptr) {
    const std::scoped_lock guard(waiting_mutex_);
    if (next_in_turn() == request) return turn::own;
  }
  const auto both = units_for(first->waits_for.load(std::memory_order_relaxed)) + units_for(bytes);
  return total::of(file_->taken.load(std::memory_order_seq_cst)).units + both >
                 file_->max_units.load(std::memory_order_seq_cst)
             ? turn::another
             : turn::none;
}

void membership::note_turn(waiting_request& request) noexcept {
  const auto now = now_ns();
  const bool mine = first_in_turn(now) == mine_;
  const std::scoped_lock guard(waiting_mutex_);
  PINFOLD_ASSERT(request.last_turn <= now / turn_ns, "the turns of a request follow one another");
  if (mine && next_in_turn() == &request && std::exchange(request.last_turn, now / turn_ns) != now / turn_ns)
    ++request.turns;
  list_waiting();
}

void membership::note_refusal(const waiting_request& request) noexcept {
  if (left() || !still_mine()) return;
  mine_->refused.fetch_add(1, std::memory_order_seq_cst);
  if (request.turns == 0) return;
  const std::scoped_lock guard(waiting_mutex_);
  no_turn_before_ = now_ns() + pause_after_turns_ns;
  list_waiting();
}

}  // namespace pinfold::node
