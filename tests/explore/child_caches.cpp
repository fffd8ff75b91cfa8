// SPDX-License-Identifier: BSD-3-Clause
#include "child_caches.hpp"

#include "support/fixtures/cache_checks.hpp"

#include <pinfold/monitors/announce.hpp>

#include <array>
#include <memory>

namespace pinfold::explore {

namespace {

constexpr range own_memory = {address_of(0), address_of(1) + page_bytes};
constexpr range other_memory = {address_of(4), address_of(4) + page_bytes};

class own_cache {
 public:
  void check() {
    acquire_and_expect(1);
    acquire_and_expect(1);
    if (!cache_.find(at(own_memory), own_memory.size()))
      all_threads.fail("a cache of its own does not find what it registered");
    invalidate();
    acquire_and_expect(2);
    use_threads();
    if (const auto flushed = cache_.flush(); !flushed) all_threads.fail("flush: %s", describe(flushed.error()).c_str());
    testing::expect_counters_add_up(cache_.statistics());
    EXPECT_EQ(cache_.statistics().leases_now, 0U);
    if (!world_->open.empty()) all_threads.fail("flush left a registration of a cache of its own");
  }

 private:
  static void* at(const range& where) { return reinterpret_cast<void*>(where.begin); }

  void acquire_and_expect(std::uint64_t opens) {
    const auto lease = cache_.acquire(at(own_memory), own_memory.size());
    if (!lease) all_threads.fail("no lease of a cache of its own: %s", describe(lease.error()).c_str());
    world_->check(lease->registration().key, own_memory, world_->said);
    if (world_->last != opens)
      all_threads.fail("a cache of its own has registered %llu times, not %llu times",
                       static_cast<unsigned long long>(world_->last), static_cast<unsigned long long>(opens));
  }

  void invalidate() {
    world_->replace(own_memory);
    announce_gone(at(own_memory), own_memory.size());
    world::was_told(world_->said, own_memory, world_->generation);
  }

  void use_threads() {
    auto ticket = cache_.register_in_background(at(other_memory), other_memory.size(), local_access, {.workers = 2});
    if (!ticket || !ticket->wait()) all_threads.fail("a cache of its own does not register in the background");
    if (auto done = ticket->take(); !done) all_threads.fail("a ticket of its own gives no lease");
    if (!cache_.quiesce()) all_threads.fail("a cache of its own cannot be quiesced");
    auto begun = cache_.restore({.workers = 2});
    if (!begun) all_threads.fail("a cache of its own cannot be restored");
    begun->wait();
  }

  std::shared_ptr<world> world_ = std::make_shared<world>();
  cache<truthful_registrar> cache_{truthful_registrar(world_), {.monitor = monitor_choice::manual, .shards = 4}};
};

template <class Result>
void expect_closed(const Result& got, const char* call) {
  if (got || got.error() != errc::closed) all_threads.fail("%s works on the parent's cache", call);
}

void check_refused(cache<truthful_registrar>& inherited, const range& where) {
  void* const address = reinterpret_cast<void*>(where.begin);
  const access_flags access = local_access;
  if (inherited.find(address, where.size())) all_threads.fail("the child finds a registration of its parent");
  expect_closed(inherited.acquire(address, where.size()), "acquire");
  expect_closed(inherited.acquire(address, where.size(), access, {.persistent = true}), "persistent acquire");
  expect_closed(inherited.acquire_batch(std::array{where}, access, {.workers = 2}), "acquire_batch");
  expect_closed(inherited.register_in_background(address, where.size(), access, {.workers = 2}), "a ticket");
  if (inherited.is_leased(where)) all_threads.fail("the child says that memory of its parent's cache is leased");
  inherited.invalidate(address, where.size());
  inherited.unpersist(address, where.size());
}

}  // namespace

void check_own_cache() { own_cache().check(); }

void check_refused(cache<truthful_registrar>& inherited) {
  for (const range& where : {own_memory, other_memory, range{own_memory.begin, other_memory.end}})
    check_refused(inherited, where);
  expect_closed(inherited.restore({.workers = 2}), "restore");
  expect_closed(inherited.flush(), "flush");
  expect_closed(inherited.quiesce(), "quiesce");
  expect_closed(inherited.progress(), "progress");
  if (inherited.evict(1) != 0) all_threads.fail("the child evicts registrations of its parent");
  if (!inherited.dump().empty()) all_threads.fail("the child lists registrations of its parent");
  static_cast<void>(inherited.statistics());
  if (close_idle_in_process(truthful_registrar::name, {own_memory.begin, other_memory.end}))
    all_threads.fail("the child closes idle registrations of its parent");
}

}  // namespace pinfold::explore
