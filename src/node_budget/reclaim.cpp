// SPDX-License-Identifier: BSD-3-Clause
// Taking back the room of members that died, at whatever instruction.
#include "node_budget/clock.hpp"
#include "node_budget/membership.hpp"
#include "node_budget/process.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <thread>

namespace pinfold::node {

namespace {

/// The slots of dead members, with their locks held.
struct dead_slots {
  std::array<slot*, most_members> all;
  std::size_t count = 0;

  [[nodiscard]] std::span<slot* const> found() const noexcept { return std::span(all).first(count); }
  [[nodiscard]] bool contains(const slot& one) const noexcept {
    return std::find(found().begin(), found().end(), &one) != found().end();
  }
};

// A program may close descriptors that it does not own, and lives on without the lock.
bool still_runs(const slot& one) noexcept {
  const process_id owner{one.process.load(), one.started.load(), one.stack.load(), one.namespace_of_process.load()};
  return owner.known_to_run();
}

dead_slots lock_dead(const shared_file& file, const slot* mine) noexcept {
  dead_slots dead;
  for (slot& one : file->members) {
    if (&one == mine || one.owner.load() == 0 || !file.try_lock(&one)) continue;
    if (one.owner.load() == 0 || still_runs(one)) {  // it left, or was taken back, before the lock
      file.unlock(&one);
    } else {
      dead.all[dead.count++] = &one;
    }
  }
  return dead;
}

// Makes the total the sum of the living members' parts. Fails while a living member stands still in a change, or others
// change it all the time.
bool leave_out(account& shared, const dead_slots& dead, bool& sunk) noexcept {
  constexpr int most_tries = 200;
  for (int tries = 0; tries < most_tries; ++tries) {
    auto word = shared.taken.load();
    std::uint64_t sum = 0;
    const bool exact = std::all_of(shared.members.begin(), shared.members.end(), [&](const slot& one) {
      if (dead.contains(one)) return true;
      if (one.pending.load() != 0) return false;
      sum += one.units.load();
      return sum <= total::most_units;
    });
    const auto now = total::of(word);
    if (exact && shared.taken.compare_exchange_strong(word, now.next(sum))) {
      sunk = sum < now.units;
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

// In this order, so that a slot without an owner has no part in the total, and is not changing.
void free_slot(slot& dead) noexcept {
  dead.units.store(0);
  dead.waiting_since.store(0);
  dead.wants_until.store(0);
  dead.pending.store(0);
  dead.owner.store(0);
}

}  // namespace

bool membership::reclaim() noexcept {
  if (left()) return false;
  const std::scoped_lock turn(reclaiming_);
  reclaimed_at_.store(now_ns(), std::memory_order_relaxed);
  const auto dead = lock_dead(file_, mine_);
  for (slot* one : dead.found()) one->pending.store(1);  // before the total changes; any number says so
  bool sunk = false;
  if (dead.count > 0 && leave_out(*file_, dead, sunk))
    for (slot* one : dead.found()) free_slot(*one);
  for (const slot* one : dead.found()) file_.unlock(one);
  known_members_.store(members(), std::memory_order_relaxed);
  return sunk;
}

bool membership::reclaim_sometimes() noexcept {
  constexpr std::int64_t between_ns = 10'000'000;
  return now_ns() - reclaimed_at_.load(std::memory_order_relaxed) >= between_ns && reclaim();
}

}  // namespace pinfold::node
