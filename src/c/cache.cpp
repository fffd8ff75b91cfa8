// SPDX-License-Identifier: BSD-3-Clause
#include "c/cache.hpp"

#include "c/options.hpp"

#include <array>
#include <mutex>
#include <utility>

namespace pinfold::c {

namespace {

thread_local constinit const callback* innermost = nullptr;

// Destroyed caches stay a while, so that a late call finds out. Never destroyed itself: a program may end a cache in a
// destructor that runs later than any of this library.
struct graveyard {
  std::mutex guard;
  std::array<pinfold_cache*, 256> ended{};
  std::size_t next = 0;

  pinfold_cache* replace_oldest(pinfold_cache* by) {
    const std::scoped_lock lock(guard);
    return std::exchange(ended[next++ % ended.size()], by);
  }
};

graveyard& graves() {
  alignas(graveyard) static std::array<std::byte, sizeof(graveyard)> room;
  static auto* const all = new (room.data()) graveyard;
  return *all;
}

}  // namespace

callback::callback(const pinfold_cache* of) noexcept : cache_(of), outer_(std::exchange(innermost, this)) {}
callback::~callback() { innermost = outer_; }

bool callback::of(const pinfold_cache* cache) noexcept {
  for (const callback* one = innermost; one != nullptr; one = one->outer_)
    if (one->cache_ == cache) return true;
  return false;
}

result<void> usable(const pinfold_cache* cache, kind wanted) noexcept {
  if (cache == nullptr) return fail(errc::invalid_argument, "the cache is null");
  if (cache->engine == nullptr) return fail(errc::closed, "the cache was destroyed");
  if (wanted == kind::any || (wanted == kind::local) == cache->local) return {};
  return fail(errc::invalid_argument, cache->local ? "this is a cache of local memory" : "this is a cache of imports");
}

result<void> may_wait(const pinfold_cache* cache, kind wanted) noexcept {
  if (cache != nullptr && callback::of(cache))
    return fail(errc::in_use_conflict, "called from a callback of the same cache");
  return usable(cache, wanted);
}

int create(back_end behind, const pinfold_options* options, pinfold_cache** made) noexcept {
  if (made == nullptr) return refuse(errc::invalid_argument, "there is no place for the cache");
  *made = nullptr;
  const auto owner = behind.owner;  // until it knows that it serves no cache
  const auto used_by = behind.used_by != nullptr ? behind.used_by : [](void*, const pinfold_cache*) noexcept {};
  void* const self = behind.table.self;
  const int code = guarded([&]() -> result<void> {
    auto fresh = std::make_unique<pinfold_cache>(std::move(behind));
    auto converted = as_cpp(options, fresh.get());
    if (!converted) return tl::unexpected(converted.error());
    auto& own = fresh->behind;
    if (own.still_is != nullptr) converted->monitor = monitor_choice::manual;
    used_by(self, fresh.get());
    fresh->engine = detail::make_engine(own.table, *std::move(converted), own.owner);
    fresh->hits = &detail::hits_of(fresh->engine.get());
    fresh->keeps = detail::keeps(fresh->engine.get());
    fresh->hits_at_once = fresh->local && own.still_is == nullptr;
    *made = fresh.release();
    return {};
  });
  if (code != PINFOLD_OK) used_by(self, nullptr);
  return code;
}

}  // namespace pinfold::c

int pinfold_destroy(pinfold_cache* cache) {
  using namespace pinfold;
  if (auto right = c::may_wait(cache, c::kind::any); !right) return c::refuse(right.error());
  cache->hits_at_once = false;
  cache->hits = &detail::hits_of(nullptr);
  detail::engine_handle ended = std::move(cache->engine);
  ended.reset();
  cache->behind.owner.reset();
  delete c::graves().replace_oldest(cache);
  return PINFOLD_OK;
}
