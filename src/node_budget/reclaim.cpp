// SPDX-License-Identifier: BSD-3-Clause
// Takes back the room of members that died, at whatever instruction.
#include "node_budget/clock.hpp"
#include "node_budget/membership.hpp"
#include "node_budget/process.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
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

// Returns whether the owner still runs: it may have closed a descriptor that it does not own, and so lost the lock.
bool still_runs(const slot& one, std::uint64_t own_namespace) noexcept {
  const process_id owner{one.process.load(std::memory_order_seq_cst), one.started.load(std::memory_order_seq_cst),
                         one.stack.load(std::memory_order_seq_cst),
                         one.namespace_of_process.load(std::memory_order_seq_cst)};
  return owner.known_to_run(own_namespace);
}

dead_slots lock_dead(const shared_file& file, const slot* mine, std::uint64_t own_namespace) noexcept {
  dead_slots dead;
  for (slot& one : file->members) {
    if (&one == mine || one.owner.load(std::memory_order_seq_cst) == 0 || !file.try_lock(&one)) continue;
    if (one.owner.load(std::memory_order_seq_cst) == 0 ||
        still_runs(one, own_namespace)) {  // it left, or was taken back, before the lock
      file.unlock(&one);
    } else {
      PINFOLD_ASSERT(dead.count < dead.all.size(), "no more members are dead than there are slots");
      dead.all[dead.count++] = &one;
    }
  }
  return dead;
}

// Sets the total to the sum of the living members' parts. Fails while a living member has stopped in a change, or
// others keep changing the total.
bool leave_out(account& shared, const dead_slots& dead, bool& sunk) noexcept {
  auto word = shared.taken.load(std::memory_order_seq_cst);
  std::uint64_t sum = 0;
  const bool exact = std::all_of(shared.members.begin(), shared.members.end(), [&](const slot& one) {
    if (dead.contains(one)) return true;
    if (one.pending.load(std::memory_order_seq_cst) != 0) return false;
    sum += one.units.load(std::memory_order_seq_cst);
    return sum <= total::most_units;
  });
  const auto now = total::of(word);
  sunk = sum < now.units;
  return exact && shared.taken.compare_exchange_strong(word, now.next(sum), std::memory_order_seq_cst);
}

// Lets other processes run, unless the time has passed.
bool pause_before(std::int64_t until_ns) noexcept {
  constexpr std::chrono::microseconds pause{50};
  if (now_ns() >= until_ns) return false;
  std::this_thread::sleep_for(pause);
  return true;
}

// Clears the owner last, so that a slot without an owner has no units and no pending change.
void free_slot(slot& dead) noexcept {
  dead.units.store(0, std::memory_order_seq_cst);
  dead.waiting_since.store(0, std::memory_order_seq_cst);
  dead.waits_for.store(0, std::memory_order_seq_cst);
  dead.wants_until.store(0, std::memory_order_seq_cst);
  dead.pending.store(0, std::memory_order_seq_cst);
  dead.owner.store(0, std::memory_order_seq_cst);
}

}  // namespace

bool has_ended(const shared_file& file, const slot& one, std::uint64_t own_namespace) noexcept {
  return !file.is_locked(&one) && !still_runs(one, own_namespace);
}

// One process at a time takes room back: two would find each other's slots pending.
bool membership::reclaim_now(std::int64_t until_ns) noexcept {
  bool sunk = false;
  while (!file_.try_lock(&file_->version))
    if (!pause_before(until_ns)) return false;
  const auto dead = lock_dead(file_, mine_, self_.namespace_inode);
  for (slot* one : dead.found())
    one->pending.store(1, std::memory_order_seq_cst);  // before the total changes; any nonzero value marks it
  bool left_out = dead.count == 0;
  while (!left_out) {
    left_out = leave_out(*file_, dead, sunk);
    if (!left_out && !pause_before(until_ns)) break;
  }
  if (left_out)
    for (slot* one : dead.found()) free_slot(*one);
  for (const slot* one : dead.found()) file_.unlock(one);
  file_.unlock(&file_->version);
  known_members_.store(members(), std::memory_order_relaxed);
  return left_out && sunk;
}

// Retries for a while: another member may be between two steps for as long as it does not run.
bool membership::reclaim() noexcept {
  constexpr std::int64_t longest_ns = 5'000'000;
  if (left()) return false;
  const auto asked = now_ns();
  const std::scoped_lock turn(reclaiming_);
  if (tried_at_ >= asked) return false;  // another thread has tried since, from start to end
  const auto now = tried_at_ = now_ns();
  PINFOLD_ASSERT(now >= asked, "a try begins after it was asked for");
  reclaimed_at_.store(now, std::memory_order_relaxed);
  return reclaim_now(now + longest_ns);
}

bool membership::reclaim_sometimes() noexcept {
  constexpr std::int64_t between_ns = 10'000'000;
  if (left() || now_ns() - reclaimed_at_.load(std::memory_order_relaxed) < between_ns) return false;
  const std::unique_lock turn(reclaiming_, std::try_to_lock);
  if (!turn.owns_lock()) return false;
  const auto now = now_ns();
  reclaimed_at_.store(now, std::memory_order_relaxed);
  return reclaim_now(now);
}

}  // namespace pinfold::node
