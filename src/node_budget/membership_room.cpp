// SPDX-License-Identifier: BSD-3-Clause
// Taking room from the account, and giving it back.
#include "node_budget/clock.hpp"
#include "node_budget/membership.hpp"

#include <algorithm>

namespace pinfold::node {

namespace {

// What part of a member's even share it takes in advance, and how much at most.
constexpr std::size_t portions = 16;
constexpr std::size_t largest_portion = std::size_t{8} << 20U;

// How long a request that found no room makes others give way.
constexpr std::int64_t wanted_for_ns = 100'000'000;

constexpr std::uint64_t units_for(std::size_t bytes) noexcept { return bytes / unit + (bytes % unit != 0 ? 1 : 0); }

}  // namespace

std::size_t membership::portion() const noexcept {
  const auto even = max_bytes() / portions / std::max<std::size_t>(known_members_.load(std::memory_order_relaxed), 1);
  return std::min(even, largest_portion) / unit * unit;
}

// Changes the total, then this slot. `pending` is not 0 while they differ.
bool membership::add(std::int64_t units) noexcept {
  slot& mine = *mine_;
  mine.pending.store(units);
  for (auto word = file_->taken.load();;) {
    const auto now = total::of(word);
    if (units > 0 && now.units + static_cast<std::uint64_t>(units) > file_->max_units.load()) {
      mine.pending.store(0);
      return false;
    }
    if (file_->taken.compare_exchange_strong(word, now.next(now.units + static_cast<std::uint64_t>(units)))) break;
  }
  mine.units.store(mine.units.load() + static_cast<std::uint64_t>(units));
  mine.pending.store(0);
  return true;
}

bool membership::draw(std::size_t missing) noexcept {
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
  const bool asks = requests_.load(std::memory_order_relaxed) > 0 && mine_->wants_until.load() > now_ns();
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

// Gives whole units back, but for `keep` bytes.
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
    return total::of(file_->taken.load()).units + missing <= file_->max_units.load();
  };
  return !left() && (fits() || (reclaim_sometimes() && fits()));
}

// The hint spares members a look at all slots while no member wants room. A hint of the past is taken away.
bool membership::wanted() const noexcept {
  auto until = file_->wanted_until.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (until > now_ns()) return true;
  static_cast<void>(file_->wanted_until.compare_exchange_strong(until, 0));
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
  return others.wanting > 0 && mine_->units.load() * unit > max_bytes() / std::max<std::size_t>(others.members, 1);
}

void membership::want(std::size_t bytes) noexcept {
  if (left() || !still_mine()) return;
  mine_->asked.store(bytes);
  const auto limit = process_max();
  if (bytes > limit || bytes_here() > limit - bytes) return;  // its own limit refuses it: others cannot help
  const auto until = now_ns() + wanted_for_ns;
  mine_->wants_until.store(until);
  file_->wanted_until.store(until);
}

void membership::want_share(std::size_t bytes) noexcept {
  if (left()) return;
  const auto members = std::max<std::size_t>(others_that_want().members, 1);
  if (bytes_here() + bytes <= max_bytes() / members) want(bytes);
}

void membership::begin_waiting(waiting_request& request) noexcept {
  const std::scoped_lock guard(waiting_mutex_);
  request.since = now_ns();
  auto** last = &oldest_;
  while (*last != nullptr) last = &(*last)->next;
  *last = &request;
  if (oldest_ == &request) list_oldest();
}

void membership::end_waiting(waiting_request& request) noexcept {
  const std::scoped_lock guard(waiting_mutex_);
  const bool was_oldest = oldest_ == &request;
  auto** at = &oldest_;
  while (*at != &request) at = &(*at)->next;
  *at = request.next;
  if (was_oldest) list_oldest();
}

void membership::list_oldest() noexcept {
  if (left() || !still_mine()) return;
  mine_->waiting_since.store(oldest_ != nullptr ? oldest_->since : 0);
  mine_->waits_for.store(oldest_ != nullptr ? oldest_->bytes : 0);
  if (oldest_ == nullptr) mine_->wants_until.store(0);
}

// In each second tenth of a second a request that has waited for so long has its turn, so that requests that may wait
// for it for ever, as it needs the room that they have, wait for a tenth of a second. One that waits for longer than
// `longest_in_turn` is not waited for.
bool membership::is_turn_of_another(const waiting_request& request) noexcept {
  constexpr std::int64_t turn = 100'000'000;
  constexpr std::int64_t longest_in_turn = 20 * turn;
  if (left() || !wanted()) return false;
  const auto now = now_ns();
  if (now / turn % 2 == 0) return false;
  const slot* first = nullptr;
  auto first_since = now - turn;
  for (const slot& one : file_->members) {
    const auto since = one.waiting_since.load(std::memory_order_relaxed);
    if (since == 0 || since >= first_since || since < now - longest_in_turn) continue;
    if (one.owner.load(std::memory_order_relaxed) == 0 || one.wants_until.load(std::memory_order_relaxed) <= now)
      continue;
    first = &one;
    first_since = since;
  }
  if (first == nullptr) return false;
  if (first == mine_) {
    const std::scoped_lock guard(waiting_mutex_);
    if (oldest_ == &request) return false;
  }
  const auto both = units_for(first->waits_for.load(std::memory_order_relaxed)) + units_for(request.bytes);
  return total::of(file_->taken.load()).units + both > file_->max_units.load();
}

void membership::count_refusal() noexcept {
  if (!left() && still_mine()) mine_->refused.fetch_add(1);
}

}  // namespace pinfold::node
