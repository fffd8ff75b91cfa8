// SPDX-License-Identifier: BSD-3-Clause
#include "child_caches.hpp"
#include "forks.hpp"
#include "imports.hpp"

#include "support/fixtures/cache_checks.hpp"

#include <pinfold/cache_set.hpp>
#include <pinfold/monitors/announce.hpp>

#include <list>
#include <random>
#include <thread>
#include <utility>

namespace pinfold::explore {

namespace {

using std::chrono::milliseconds;
using local_cache = cache<truthful_registrar>;

constexpr std::array<const char*, operations> names{
    "acquire",  "persist", "release", "find",      "event",  "invalidate", "evict", "flush",
    "progress", "quiesce", "restore", "unpersist", "ticket", "batch",      "merge", "destroy",
    "beside",   "set",     "fork",    "late",      "retire", "drop_peer"};

static_assert(names.back() != nullptr, "each operation has a name");

constexpr range of_pages(std::size_t first, std::size_t last) {
  return {address_of(first), address_of(last) + page_bytes};
}
constexpr range left = of_pages(0, 1);
constexpr range overlapping = of_pages(1, 2);
constexpr range elsewhere = of_pages(4, 4);
constexpr range everything = of_pages(0, 5);

void* at(const range& where) { return reinterpret_cast<void*>(where.begin); }

/// The cache and the threads that use it.
class stage {
 public:
  explicit stage(const scenario& what) : what_(what), random_(static_cast<unsigned>(what.choices % 2147483646U + 1U)) {
    for (std::size_t i = 0; i < what.threads.size(); ++i) ranges_[i] = chosen_range(what.threads[i]);
    cache_.emplace(truthful_registrar(world_), options());
    if (has(operation::fork)) all_threads.expect_forks();
    if (has(operation::beside) || has(operation::set)) other_.emplace(truthful_registrar(world_), options());
    if (has(operation::beside)) world_->refuses_overlaps = true;
    prepare();
  }

  void run() {
    std::vector<std::thread> threads;
    calls_ = what_.threads.size();
    for (std::size_t i = 0; i < calls_; ++i)
      threads.emplace_back([this, i] {
        all_threads.name_this_thread(name_of(what_.threads[i]));
        act(what_.threads[i], ranges_[i]);
      });
    all_threads.arm();
    for (auto& each : threads) each.join();
    all_threads.disarm();
  }

  void check() {
    held_ = {};
    if (cache_) check_cache();
    world_->ending = true;
    cache_.reset();
    other_.reset();
    // Threads of the library may have outlived the cache, and end what they are at.
    std::this_thread::sleep_for(std::chrono::seconds(100));
    for (const auto& [key, one] : world_->open)
      all_threads.fail("registration %llu was never closed", static_cast<unsigned long long>(key));
  }

 private:
  bool is_plain() const { return what_.choices <= scenario::several_shards; }
  /// Returns true in one of `many` cases, and never in a plain scenario.
  bool one_in(unsigned many) { return random_() % many == 0 && !is_plain(); }
  bool has(operation one) const { return std::ranges::count(what_.threads, one) > 0; }

  range chosen_range(operation by) {
    using enum operation;
    const bool speaks = by == event || by == operation::invalidate || by == operation::unpersist;
    if (what_.choices == scenario::several_shards && speaks) return everything;
    if (!one_in(2)) return left;
    constexpr std::array all{overlapping, elsewhere, everything};
    return all[random_() % all.size()];
  }

  cache_options options() {
    cache_options chosen{.monitor = monitor_choice::manual,
                         .shards = one_in(3) || what_.choices == scenario::several_shards ? 4U : 1U};
    if (has(operation::merge) || one_in(4)) chosen.merge = merge_policy::overlaps;
    if (one_in(4)) chosen.closes = close_policy::deferred;
    if (one_in(4)) chosen.max_count = 2;
    if (one_in(2)) chosen.full = one_in(2) ? when_full::bypass : when_full::wait;
    if (one_in(2)) chosen.wait_timeout = milliseconds(100);
    if (one_in(2)) chosen.drain_timeout = milliseconds(0);
    chosen.reaper = one_in(8);
    world_->slow = one_in(3);
    world_->refuses_overlaps = one_in(6);
    if (one_in(6)) world_->capacity = 2;
    if (one_in(6)) world_->failing_closes = 1;
    may_fail_ = !is_plain() || all_threads.jumps() || has(operation::beside);
    return chosen;
  }

  void prepare() {
    if (what_.with != before::nothing) {
      touch(left, what_.with == before::persistent || (what_.with == before::remembered && one_in(2)));
      touch(elsewhere, false);
    }
    if (has(operation::release)) held_ = *cache_->acquire(at(left), left.size());
    if (what_.with == before::remembered && !held_) static_cast<void>(cache_->quiesce());
  }

  void touch(const range& where, bool persistent) {
    const auto lease = cache_->acquire(at(where), where.size(), local_access, {.persistent = persistent});
    if (!lease && !may_fail_) all_threads.fail("no lease: %s", describe(lease.error()).c_str());
    world_->note(world_->asked_at, where);
    if (persistent) world_->note(world_->persisted_at, where);
  }

  void hold(const local_cache::lease& lease, const range& where, const world::by_page& known) {
    if (lease.closed() && world_->ending) return;  // the destructor did not wait for it
    const auto key = lease.registration().key;
    ++world_->check(key, where, known).leases;
    point("holds");
    const auto still = world_->open.find(key);
    if (still == world_->open.end()) {
      if (!lease.closed()) all_threads.fail("the registration under a lease was closed");
      return;
    }
    --still->second.leases;
  }

  void acquire(const range& where, bool persistent) {
    const auto known = world_->said;
    auto lease = cache_->acquire(at(where), where.size(), local_access, {.persistent = persistent});
    world_->note(world_->asked_at, where);
    if (persistent) world_->note(world_->persisted_at, where);
    leave();
    if (lease) return hold(*lease, where, known);
    if (!may_fail_) all_threads.fail("no lease: %s", describe(lease.error()).c_str());
  }

  // The cache is told of events, and of no call of the other's.
  void acquire_beside(const range& where) {
    const auto known = world_->announced;
    const auto lease = other_->acquire(at(where), where.size());
    leave();
    if (lease) hold(*lease, where, known);
  }

  // The other cache is told of events only.
  void acquire_by_set(const range& where) {
    const auto known = world_->said;
    const auto known_to_other = world_->announced;
    const std::array<local_cache*, 2> members{&*cache_, &*other_};
    auto leases = cache_set<truthful_registrar>(members).acquire(at(where), where.size());
    world_->note(world_->asked_at, where);
    leave();
    if (leases) {
      hold((*leases)[0], where, known);
      return hold((*leases)[1], where, known_to_other);
    }
    if (!may_fail_) all_threads.fail("no leases from the set: %s", describe(leases.error()).c_str());
  }

  void acquire_both() {
    const auto known = world_->said;
    const std::array both{left, elsewhere};
    const auto leases = cache_->acquire_batch(both, local_access, {.workers = 2});
    for (const range& each : both) world_->note(world_->asked_at, each);
    leave();
    if (!leases) return;
    for (std::size_t i = 0; i < both.size(); ++i) hold((*leases)[i], both[i], known);
  }

  void find(const range& where) {
    const auto known = world_->said;
    const auto lease = cache_->find(at(where), where.size());
    leave();
    if (lease) hold(*lease, where, known);
  }

  // The memory is replaced first: what was registered before has the old one.
  void invalidate(const range& where, bool by_event) {
    world_->replace(where);
    const auto then = world_->generation;
    if (by_event) {
      announce_gone(at(where), where.size());
    } else {
      cache_->invalidate(at(where), where.size());
    }
    world_->was_told(world_->said, where, then);
    if (by_event) world_->was_told(world_->announced, where, then);
    if (by_event) static_cast<void>(cache_->find(at(elsewhere), elsewhere.size()));  // reads the event
    leave();
  }

  void unpersist(const range& where) {
    world_->note(world_->unpersisted, where);
    cache_->unpersist(at(where), where.size());
    leave();
  }

  void restore() {
    auto begun = cache_->restore({.workers = 2});
    leave();
    if (!begun) return;
    const auto mine = restorations_.insert(restorations_.end(), *std::move(begun));
    mine->wait();
    restorations_.erase(mine);
  }

  void start_ticket(const range& where) {
    auto ticket = cache_->register_in_background(at(where), where.size(), local_access, {.workers = 2});
    leave();
    if (!ticket) return;
    const auto mine = tickets_.insert(tickets_.end(), *std::move(ticket));
    static_cast<void>(mine->wait());
    world_->note(world_->asked_at, where);
    tickets_.erase(mine);
  }

  // Calls no member of the cache while it forks: the destructor may run.
  void fork(const range& where) {
    const auto known = world_->said;
    auto mine = cache_->find(at(where), where.size());
    leave();
    fork_here([&] { check_child(mine); });
    if (mine) hold(*mine, where, known);
  }

  // The child neither uses nor tears down what is the parent's, and a cache of its own works (R37). A cache whose
  // destructor has begun is not there any more.
  void check_child(std::optional<local_cache::lease>& mine) {
    world_->inherited = true;
    check_inherited();
    check_own_cache();
    check_inherited();
    if (mine && !mine->release()) all_threads.fail("the parent's lease cannot be released");
    if (!held_.release()) all_threads.fail("the lease of another thread cannot be released");
    tickets_.clear();
    restorations_.clear();
    cache_.reset();
    other_.reset();
  }

  void check_inherited() {
    for (auto* each : {&cache_, &other_})
      if (*each) check_refused(**each);
    for (auto& each : tickets_)
      if (const auto got = each.wait(); got || got.error() != errc::closed) all_threads.fail("a ticket works");
    for (auto& each : restorations_) each.wait();
    announce_gone(at(everything), everything.size());
  }

  // No member may run at the same time as the destructor; leases, tickets and restorations may.
  void destroy() {
    leave();
    while (calls_ > 0) all_threads.wait(&calls_, never, "calls");
    if (std::exchange(world_->ending, true)) return;
    cache_.reset();
    world_->ended = true;
  }

  // The thread calls no member of the cache any more.
  void leave() {
    if (--calls_ == 0) all_threads.wake(&calls_, static_cast<int>(most_threads));
  }

  template <class Call>
  void simply(Call&& call) {
    static_cast<void>(call());
    leave();
  }

  void act(operation what, const range& where) {
    switch (what) {
      case operation::acquire: return acquire(where, false);
      case operation::persist: return acquire(where, true);
      case operation::release: return leave(), static_cast<void>(std::exchange(held_, {}));
      case operation::find: return find(where);
      case operation::event: return invalidate(where, true);
      case operation::invalidate: return invalidate(where, false);
      case operation::evict: return simply([&] { return cache_->evict(1); });
      case operation::flush: return simply([&] { return cache_->flush(); });
      case operation::progress: return simply([&] { return cache_->progress(); });
      case operation::quiesce: return simply([&] { return cache_->quiesce(); });
      case operation::restore: return restore();
      case operation::unpersist: return unpersist(where);
      case operation::ticket: return start_ticket(where);
      case operation::batch: return acquire_both();
      case operation::merge: return acquire(overlapping, false);
      case operation::destroy: return destroy();
      case operation::beside: return acquire_beside(where);
      case operation::set: return acquire_by_set(where);
      case operation::fork: return fork(where);
      default: break;
    }
  }

  // No lease is out: what one cache has open is not in the way of the other.
  void check_way() {
    const bool persistent = has(operation::persist) || what_.with == before::persistent;
    if (!other_ || !is_plain() || all_threads.jumps() || persistent) return;
    for (auto* each : {&*other_, &*cache_})
      if (const auto lease = each->acquire(at(left), left.size()); !lease)
        all_threads.fail("idle registrations are in the way: %s", describe(lease.error()).c_str());
    world_->note(world_->asked_at, left);
  }

  // With no call in progress. What was invalidated after its last request is not there, also after a restoration.
  void check_cache() {
    check_way();
    auto begun = cache_->restore({.workers = 1});
    if (begun) begun->wait();
    for (std::size_t page = 0; page < pages; ++page) {
      const range where = of_pages(page, page);
      const auto found = cache_->find(at(where), where.size());
      if (!found) continue;
      world_->check(found->registration().key, where, world_->said);
      if (world_->gone_at[page] > world_->asked_at[page])
        all_threads.fail("page %zu was invalidated after its last request, and is registered again", page);
    }
    const auto both = other_ ? other_->flush() : result<void>();
    if (const auto flushed = both ? cache_->flush() : both; !flushed) {
      if (!may_fail_) all_threads.fail("flush: %s", describe(flushed.error()).c_str());
      return;  // a close fails, or one by the reaper takes longer than the time-out
    }
    check_counters();
    for (const auto& [key, one] : world_->open) {  // what flush left
      bool may_stay = false;
      for_each_page(one.where, [&](std::size_t page) {
        may_stay = may_stay || world_->persisted_at[page] > world_->unpersisted[page];
      });
      if (!may_stay) all_threads.fail("a registration is persistent without a request, or after a call of unpersist");
    }
  }

  void check_counters() {
    const auto now = cache_->statistics();
    testing::expect_counters_add_up(now);
    EXPECT_EQ(now.open + (other_ ? other_->statistics().open : 0), world_->open.size());
    EXPECT_EQ(now.leases_now, 0U);
  }

  const scenario& what_;
  std::minstd_rand random_;
  std::shared_ptr<world> world_ = std::make_shared<world>();
  std::array<range, 8> ranges_;
  bool may_fail_ = false;
  std::optional<local_cache> cache_;
  std::optional<local_cache> other_;
  local_cache::lease held_;
  std::list<background_registration<truthful_registrar>> tickets_;
  std::list<restoration> restorations_;
  std::size_t calls_ = 0;
};

}  // namespace

const char* name_of(operation one) noexcept { return names[static_cast<std::size_t>(one)]; }

std::string scenario::text() const {
  constexpr std::array states{"nothing", "cached", "persistent", "remembered"};
  std::string all;
  for (const operation each : threads) all += std::string(all.empty() ? "" : ", ") + name_of(each);
  return all + (imports ? " of imports with " : " with ") + states[static_cast<std::size_t>(with)] + ", choices " +
         std::to_string(choices);
}

void play(const scenario& what) {
  if (what.imports) return play_import(what);
  stage on(what);
  on.run();
  on.check();
}

}  // namespace pinfold::explore
