// SPDX-License-Identifier: BSD-3-Clause
#include "c/cache.hpp"

#include "c/options.hpp"
#include "os/no_cancellation.hpp"

#include <array>
#include <atomic>
#include <utility>

namespace pinfold::c {

namespace {

thread_local constinit const callback* innermost_callback = nullptr;

// Destroyed caches stay for a while, to detect late calls. No lock: it could be held at a fork.
constinit std::array<std::atomic<pinfold_cache*>, 256> ended{};
constinit std::atomic<std::size_t> next_ended{0};

// Returns the cache that was destroyed longest ago.
pinfold_cache* replace_oldest(pinfold_cache* by) noexcept {
  return ended[next_ended.fetch_add(1, std::memory_order_relaxed) % ended.size()].exchange(by,
                                                                                           std::memory_order_seq_cst);
}

}  // namespace

callback::callback(const void* of) noexcept : of_(of), outer_(std::exchange(innermost_callback, this)) {}
callback::~callback() { innermost_callback = outer_; }

bool callback::of(const pinfold_cache* cache) noexcept {
  for (const callback* one = innermost_callback; one != nullptr; one = one->outer_)
    if (one->of_ == cache) return true;
  return false;
}

bool callback::must_not_wait_for(const pinfold_cache& cache) noexcept {
  return of(&cache) || of_listener(cache.behind.listener);
}

bool callback::of_listener(const void* listener) noexcept {
  if (listener == nullptr) return false;
  for (const callback* one = innermost_callback; one != nullptr; one = one->outer_)
    if (one->of_ == listener) return true;
  return false;
}

bool callback::any() noexcept { return innermost_callback != nullptr; }

result<void> usable(const pinfold_cache* cache, kind wanted) noexcept {
  if (cache == nullptr) return fail(errc::invalid_argument, "the cache is null");
  if (cache->on() == nullptr) return fail(errc::closed, "the cache was destroyed");
  if (auto here = detail::usable(cache->on()); !here) return here;
  if (wanted == kind::any || (wanted == kind::local) == cache->local) return {};
  return fail(errc::invalid_argument, cache->local ? "this is a cache of local memory" : "this is a cache of imports");
}

result<void> may_wait(const pinfold_cache* cache, kind wanted) noexcept {
  if (cache != nullptr && callback::must_not_wait_for(*cache))
    return fail(errc::in_use_conflict, "called from a callback of the same cache");
  if (cache != nullptr && cache->ending.load(std::memory_order_seq_cst))
    return fail(errc::closed, "the cache is being destroyed");
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
    if (own.attach) {
      auto attached = std::exchange(own.attach, nullptr)(fresh.get());
      if (!attached) return tl::unexpected(attached.error());
      fresh->attached = *std::move(attached);
    }
    fresh->engine = detail::make_engine(own.table, *std::move(converted), own.owner);
    fresh->running = fresh->engine.get();
    fresh->hits = &detail::hits_of(fresh->engine.get());
    fresh->keeps = detail::keeps(fresh->engine.get());
    fresh->hits_at_once = fresh->local && own.still_is == nullptr;
    *fresh->made = true;
    *made = fresh.release();
    return {};
  });
  if (code != PINFOLD_OK) used_by(self, nullptr);
  return code;
}

}  // namespace pinfold::c

int pinfold_destroy(pinfold_cache* cache) {
  using namespace pinfold;
  if (cache == nullptr) return c::refuse(errc::invalid_argument, "the cache is null");
  if (c::callback::must_not_wait_for(*cache))
    return c::refuse(errc::in_use_conflict, "called from a callback of the same cache");
  if (cache->streams.load(std::memory_order_seq_cst) != 0)
    return c::refuse(errc::in_use_conflict, "a stream of chunks has not ended");
  if (cache->ending.exchange(true, std::memory_order_seq_cst))
    return c::refuse(errc::closed, "the cache was destroyed");
  const detail::no_cancellation guard;
  const bool here =
      detail::usable(cache->on()).has_value();  // in a child of fork(2), the parent's cache stays as it is
  cache->hits_at_once = false;
  cache->hits = &detail::hits_of(nullptr);
  cache->attached.reset();  // waits until the listener's thread has left the engine
  cache->engine.reset();    // callbacks meanwhile may still read its statistics
  cache->running = nullptr;
  const bool in_driver = here && cache->behind.owner.use_count() > 1;
  cache->behind.owner.reset();
  delete c::replace_oldest(cache);
  return in_driver ? c::refuse(errc::timed_out, "the cache is destroyed, but a thread is still in the driver")
                   : PINFOLD_OK;
}
