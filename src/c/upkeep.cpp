// SPDX-License-Identifier: BSD-3-Clause
// Invalidation, closes, and a cache's information about itself.
#include "c/cache.hpp"
#include "c/callbacks.hpp"
#include "c/structure.hpp"
#include "c/text.hpp"

#include <pinfold/cache_base.hpp>
#include <pinfold/monitors/announce.hpp>
#include <pinfold/statistics.hpp>

#include <cstddef>
#include <cstdint>

namespace pinfold::c {

namespace {

// Calls `what(engine, range)` if the cache and the range are valid.
template <class What>
int on_range(const pinfold_cache* cache, kind wanted, std::uint64_t address, std::size_t bytes, What&& what) noexcept {
  if (auto right = usable(cache, wanted); !right) return refuse(right.error());
  const auto where = range::of(address, bytes);
  if (!where) return refuse(where.error());
  what(cache->on(), *where);
  return PINFOLD_OK;
}

template <class What>
int waiting(const pinfold_cache* cache, kind wanted, What&& what) noexcept {
  if (auto right = may_wait(cache, wanted); !right) return refuse(right.error());
  return as_code(what(cache->on()));
}

pinfold_statistics in_c(const statistics& from) noexcept {
  return {
      .size = sizeof(pinfold_statistics),
      .hits = from.hits,
      .valid = from.valid,
      .invalid = from.invalid,
      .misses = from.misses,
      .evicted = from.evicted,
      .expired = from.expired,
      .found = from.found,
      .find_misses = from.find_misses,
      .acquires = from.acquires,
      .failed_acquires = from.failed_acquires,
      .misses_cold = from.misses_cold,
      .misses_invalidated = from.misses_invalidated,
      .misses_access = from.misses_access,
      .misses_extent = from.misses_extent,
      .misses_evicted = from.misses_evicted,
      .opens = from.opens,
      .closes = from.closes,
      .failed_opens = from.failed_opens,
      .failed_closes = from.failed_closes,
      .conflicts = from.conflicts,
      .bypasses = from.bypasses,
      .unmonitored = from.unmonitored,
      .file_backed = from.file_backed,
      .audits = from.audits,
      .monitor_failures = from.monitor_failures,
      .failed_audits = from.failed_audits,
      .invalidated_while_leased = from.invalidated_while_leased,
      .sink_failures = from.sink_failures,
      .waited_ns = static_cast<std::uint64_t>(from.waited.count()),
      .open = from.open,
      .bytes_now = from.bytes_now,
      .entries_now = from.entries_now,
      .peak_bytes = from.peak_bytes,
      .peak_entries = from.peak_entries,
      .leases_now = from.leases_now,
      .peak_leases = from.peak_leases,
      .quarantined = from.quarantined,
      .bypass_bytes = from.bypass_bytes,
      .requests_waiting = from.requests_waiting,
      .closes_due = from.closes_due,
  };
}
constexpr std::size_t statistics_size_in_0_2 = offsetof(pinfold_statistics, requests_waiting);
static_assert(sizeof(pinfold_statistics) == sizeof(std::size_t) + sizeof(statistics), "each counter is in both");

pinfold_entry in_c(const entry_info& from) noexcept {
  return {
      .size = sizeof(pinfold_entry),
      .peer = from.peer.value,
      .base = from.covered.begin,
      .bytes = from.covered.size(),
      .budget_bytes = from.bytes,
      .kind = from.kind,
      .state = name_of(from.state),
      .leases = from.leases,
      .hits = from.hits,
      .age_ns = static_cast<std::uint64_t>(from.age.count()),
      .owner = from.owner,
      .bypass = from.bypass ? 1 : 0,
  };
}

}  // namespace

}  // namespace pinfold::c

extern "C" {

void pinfold_announce_gone(const void* address, size_t bytes) { pinfold::announce_gone(address, bytes); }

int pinfold_close_idle_in_process(const char* registrar, const void* address, size_t bytes) {
  const auto memory = pinfold::range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  return memory && pinfold::close_idle_in_process(registrar, *memory) ? 1 : 0;
}

int pinfold_invalidate(pinfold_cache* cache, const void* address, size_t bytes) {
  using namespace pinfold;
  return c::on_range(cache, c::kind::local, reinterpret_cast<std::uintptr_t>(address), bytes,
                     [](detail::engine* on, const range& gone) { detail::invalidate(on, {}, gone); });
}

int pinfold_invalidate_peer(pinfold_cache* cache, uint64_t peer, uint64_t address, size_t bytes) {
  using namespace pinfold;
  return c::on_range(cache, c::kind::imported, address, bytes,
                     [&](detail::engine* on, const range& gone) { detail::invalidate(on, {peer}, gone); });
}

int pinfold_drop_peer(pinfold_cache* cache, uint64_t peer) {
  using namespace pinfold;
  return c::waiting(cache, c::kind::imported, [&](detail::engine* on) { return detail::drop_peer(on, {peer}); });
}

int pinfold_unpersist(pinfold_cache* cache, const void* address, size_t bytes) {
  using namespace pinfold;
  return c::on_range(cache, c::kind::local, reinterpret_cast<std::uintptr_t>(address), bytes,
                     [](detail::engine* on, const range& where) { detail::unpersist(on, {}, where); });
}

size_t pinfold_monitors(const pinfold_cache* cache, char* text, size_t room) {
  using namespace pinfold;
  if (auto right = c::usable(cache, c::kind::any); !right) return c::copy_text(right.error().message, text, room);
  return c::write_text(text, room, [&] { return detail::monitors_of(cache->on()); });
}

int pinfold_flush(pinfold_cache* cache) {
  return pinfold::c::waiting(cache, pinfold::c::kind::any, pinfold::detail::flush);
}

int pinfold_quiesce(pinfold_cache* cache) {
  return pinfold::c::waiting(cache, pinfold::c::kind::any, pinfold::detail::quiesce);
}

int pinfold_progress(pinfold_cache* cache) {
  return pinfold::c::waiting(cache, pinfold::c::kind::any, pinfold::detail::progress);
}

size_t pinfold_evict(pinfold_cache* cache, size_t count) {
  using namespace pinfold;
  if (auto right = c::may_wait(cache, c::kind::any); !right) {
    c::refuse(right.error());
    return 0;
  }
  return detail::evict(cache->on(), count);
}

int pinfold_statistics_of(const pinfold_cache* cache, pinfold_statistics* counters) {
  using namespace pinfold;
  if (auto right = c::usable(cache, c::kind::any); !right) return c::refuse(right.error());
  if (!c::write(c::in_c(detail::read_statistics(cache->on())), counters, c::statistics_size_in_0_2))
    return c::refuse(errc::invalid_argument, "the counters are null, or have a wrong size");
  return PINFOLD_OK;
}

size_t pinfold_describe(const pinfold_cache* cache, char* text, size_t room) {
  using namespace pinfold;
  if (auto right = c::usable(cache, c::kind::any); !right) return c::copy_text(right.error().message, text, room);
  return c::write_text(text, room, [&] { return describe(detail::read_statistics(cache->on())); });
}

int pinfold_dump(const pinfold_cache* cache, int (*each)(void* self, const pinfold_entry* entry), void* self) {
  using namespace pinfold;
  if (each == nullptr) return c::refuse(errc::invalid_argument, "there is no function to call");
  if (auto right = c::usable(cache, c::kind::any); !right) return c::refuse(right.error());
  int answer = PINFOLD_OK;
  pinfold_error thrown{};
  const int code = c::guarded([&]() -> result<void> {
    const auto all = detail::dump(cache->on());
    for (auto one = all.begin(); one != all.end() && answer == PINFOLD_OK; ++one) {
      const pinfold_entry plain = c::in_c(*one);
      answer = c::called(cache, thrown, [&] { return each(self, &plain); });
    }
    return {};
  });
  if (thrown.message != nullptr) return c::refuse(c::from_callback(thrown.code, thrown, ""));
  return code == PINFOLD_OK ? answer : code;
}

}  // extern "C"
