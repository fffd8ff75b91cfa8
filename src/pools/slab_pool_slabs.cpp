// SPDX-License-Identifier: BSD-3-Clause
// Makes slabs and gives them back.
#include "os/check.hpp"
#include "os/no_cancellation.hpp"
#include "pools/arena.hpp"
#include "pools/slab_pool.hpp"

#include <algorithm>
#include <atomic>
#include <new>

namespace pinfold::detail {

namespace {

void unmap(const pools::mapping& gone, bool sealed) noexcept {
  if (!sealed) return pools::unmap(gone.memory);
  if (auto* const arena = pools::arena::of_this_process()) arena->give_back(gone);
}

result<pools::mapping> map(std::size_t bytes, const pool_options& options) noexcept {
  if (!options.sealed) return pools::mapper(bytes).map(options.pages);
  auto* const arena = pools::arena::of_this_process();
  return arena == nullptr ? fail(errc::out_of_resources, "no memory for sealed_arena")
                          : arena->take(bytes, options.pages);
}

slab_info info_of(const slab& one) noexcept {
  return {.memory = one.mapping.memory,
          .pages = one.mapping.pages,
          .reason = one.mapping.reason,
          .native = one.mapping.native,
          .used = one.used,
          .allocations = one.allocations,
          .leases = one.leases,
          .sealed = one.sealed};
}

}  // namespace

slab_pool::~slab_pool() = default;

// A binary search without branches to mispredict.
slab* slab_pool::around(const void* data) const noexcept {
  if (table_.empty()) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const place* found = table_.data();
  for (std::size_t left = table_.size(); left > 1; left -= left / 2)
    found += found[left / 2].begin <= address ? left / 2 : 0;
  return found->begin <= address && address < found->is->mapping.memory.end ? found->is.get() : nullptr;
}

// Makes a slab, whose room is reserved, and takes its first block at once, so that no other thread can take it.
result<slab*> slab_pool::grow(const wish& what, lock& guard) noexcept try {
  PINFOLD_ASSERT(guard.owns_lock(), "the caller holds the lock");
  const std::size_t bytes = what.large ? std::max(what.bytes, what.alignment) : options_.slab_bytes;
  const bool small = options_.pages == page_kind::plain || bytes < pools::huge_page;
  const std::size_t most = pools::bytes_as(bytes, small ? page_kind::plain : page_kind::thp);
  table_.reserve(table_.size() + arriving_ + 1);
  ++arriving_;
  auto made = reserve(most, guard).and_then([&]() -> result<std::unique_ptr<slab>> {
    for (;;) {
      guard.unlock();
      auto attempt = make_slab(bytes, what.large);
      guard.lock();
      const bool short_of =
          !attempt && (attempt.error() == errc::out_of_resources || attempt.error() == errc::over_budget);
      if (attempt || !short_of || give_back(guard) == 0) {
        PINFOLD_ASSERT(bytes_ >= most, "the room for the slab is reserved");
        bytes_ -= most;
        return attempt;
      }
    }
  });
  PINFOLD_ASSERT(arriving_ > 0 && table_.size() < table_.capacity(), "the place in the table is reserved");
  --arriving_;
  if (!made) return tl::unexpected(made.error());
  slab* const fresh = adopt(std::move(*made));
  [[maybe_unused]] const auto first =
      fresh->blocks.take(what.granules, what.alignment_granules, pools::block_map::effort::little);
  PINFOLD_ASSERT(first == 0U, "the first block of a new slab is for the request that made it");
  return fresh;
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory for the record of another slab");
}

result<void> slab_pool::reserve(std::size_t bytes, lock& guard) noexcept {
  const std::size_t limit = options_.max_bytes;
  if (bytes > limit) return fail(errc::larger_than_budget, "one slab exceeds pool_options::max_bytes");
  const auto full = [&] { return bytes_ > limit || bytes > limit - bytes_; };
  if (full()) give_back(guard);
  if (full()) return fail(errc::over_budget, "pool_options::max_bytes is used up");
  bytes_ += bytes;
  return {};
}

result<std::unique_ptr<slab>> slab_pool::make_slab(std::size_t bytes, bool large) noexcept {
  const auto mapped = map(bytes, options_);
  if (!mapped) return tl::unexpected(mapped.error());
  auto made = describe_slab(*mapped, large);
  if (made) {
    auto registered = driver_.acquire(driver_.cache.get(), mapped->memory, options_.access);
    if (registered) {
      (*made)->held = std::move(registered->held);
      (*made)->object = registered->object;
      return made;
    }
    made = tl::unexpected(registered.error());
  }
  unmap(*mapped, options_.sealed);
  return made;
}

result<std::unique_ptr<slab>> slab_pool::describe_slab(const pools::mapping& mapped, bool large) const noexcept try {
  return std::make_unique<slab>(mapped, options_.sealed, large, granule_);
} catch (const std::bad_alloc&) {
  return fail(errc::out_of_resources, "no memory for the map of a slab");
}

slab* slab_pool::adopt(std::unique_ptr<slab> made) noexcept {
  slab* const fresh = made.get();
  const auto begin = fresh->mapping.memory.begin;
  bytes_ += fresh->mapping.memory.size();
  table_.insert(std::ranges::upper_bound(table_, begin, {}, &place::begin), {begin, std::move(made)});
  free_.place(*fresh);
  return fresh;
}

// Takes the unused slabs out of the table and returns them as a chain.
slab* slab_pool::take_unused() noexcept {
  slab* chain = nullptr;
  std::erase_if(table_, [&](place& one) {
    if (!one.is->unused()) return false;
    PINFOLD_ASSERT(one.is->allocations == 0 && one.is->resting == 0, "an unused slab has no allocation");
    free_.remove(*one.is);
    slab* const unused = one.is.release();
    unused->next = std::exchange(chain, unused);
    return true;
  });
  return chain;
}

std::size_t slab_pool::give_back(lock& guard) noexcept {
  PINFOLD_ASSERT(guard.owns_lock(), "the caller holds the lock");
  slab* chain = take_unused();
  slab** last = &chain;
  for (; *last != nullptr; last = &(*last)->next) {
  }
  *last = std::exchange(lingering_, nullptr);
  if (chain == nullptr) return 0;
  guard.unlock();
  for (slab* one = chain; one != nullptr; one = one->next)
    if (one->held) driver_.give_back(driver_.cache.get(), one->mapping.memory, one->held);
  std::size_t freed = 0;
  slab* kept = free_unleased(chain, freed);
  guard.lock();
  PINFOLD_ASSERT(bytes_ >= freed, "the bytes of a slab that goes are counted");
  bytes_ -= freed;
  while (kept != nullptr) {
    slab* const one = std::exchange(kept, kept->next);
    one->next = std::exchange(lingering_, one);
  }
  return freed;
}

// Unmaps the slabs that no lease of the cache uses for I/O, and returns the chain of the others (R51).
slab* slab_pool::free_unleased(slab* chain, std::size_t& freed) const noexcept {
  slab* kept = nullptr;
  while (chain != nullptr) {
    slab* const one = std::exchange(chain, chain->next);
    if (driver_.is_leased(driver_.cache.get(), one->mapping.memory)) {
      one->next = std::exchange(kept, one);
    } else {
      freed += one->mapping.memory.size();
      unmap(one->mapping, one->sealed);
      delete one;
    }
  }
  return kept;
}

std::size_t slab_pool::trim() noexcept {
  lock guard(mutex_);
  return give_back(guard);
}

bool slab_pool::end() noexcept {
  lock guard(mutex_);
  ended_ = true;
  give_back(guard);
  const bool lost = std::ranges::any_of(table_, [](const place& one) { return one.is->allocations > 0; });
  if (!lost && lingering_ == nullptr) return false;
  stays_ = true;
  guard.unlock();
  tell_abandoned();
  return true;
}

void slab_pool::keep_for_good(const std::shared_ptr<slab_pool>& core) noexcept {
  static std::atomic<slab_pool*> newest{nullptr};
  PINFOLD_ASSERT(core->self_ == nullptr, "a pool is kept for good once");
  core->self_ = core;
  core->kept_before_ = newest.load(std::memory_order_seq_cst);
  while (!newest.compare_exchange_weak(core->kept_before_, core.get(), std::memory_order_seq_cst)) {
  }
}

// An exception of the callback must not reach the destructor of a pool. The slabs stay in any case.
void slab_pool::tell_abandoned() const noexcept try {
  if (!options_.abandoned) return;
  const no_cancellation whole;
  auto stay = slabs();
  std::erase_if(stay, [](const slab_info& one) { return one.allocations == 0 && one.leases > 0; });
  options_.abandoned(stay);
} catch (...) {
  return;
}

pool_usage slab_pool::usage() const noexcept {
  lock guard(mutex_);
  pool_usage seen{.slabs = table_.size(), .bytes = bytes_, .misuses = misuses_};
  for (const place& one : table_) {
    seen.used += one.is->used;
    seen.allocations += one.is->allocations;
  }
  for (const slab* one = lingering_; one != nullptr; one = one->next) ++seen.slabs;
  return seen;
}

std::vector<slab_info> slab_pool::slabs() const {
  lock guard(mutex_);
  std::vector<slab_info> all;
  for (const place& one : table_) all.push_back(info_of(*one.is));
  for (const slab* one = lingering_; one != nullptr; one = one->next) all.push_back(info_of(*one));
  std::ranges::sort(all, {}, [](const slab_info& one) { return one.memory.begin; });
  return all;
}

}  // namespace pinfold::detail
