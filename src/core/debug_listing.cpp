// SPDX-License-Identifier: BSD-3-Clause
#include "core/debug_listing.hpp"

#include "core/debug_layout.hpp"
#include "core/ticks.hpp"

#include <pinfold/version.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <string_view>

namespace pinfold::core {

namespace {

using detail::imported_part;
using detail::record;
using index::entry;
using index::record_page;

constinit std::atomic<debugging::cache*> caches{nullptr};

// Not const, nor is the layout: a core file has memory that the process could write, not what is in the library's file.
constinit char release[] = PINFOLD_VERSION;

// In the order of `counter`.
constexpr char counter_list[] =
    "acquires opens closes misses_cold misses_invalidated misses_access misses_extent misses_evicted evicted hits "
    "valid "
    "invalid failed_acquires expired found find_misses failed_opens failed_closes conflicts bypasses bypass_bytes "
    "unmonitored file_backed invalidated_while_leased waited_ns quarantined requests_waiting "
    "closes_due";
static_assert(std::ranges::count(counter_list, ' ') + 1 == static_cast<int>(counter::count_));
constinit auto counter_names = std::to_array(counter_list);

// The bit-fields of `entry`, which have no offset, begin behind the last byte that has one, with the lowest bit.
constexpr std::size_t flags_offset = offsetof(entry, access) + 1;

constinit debugging::record_layout records{
    .page_bytes = record_page::bytes,
    .page_header = sizeof(record_page),
    .page_owner = offsetof(record_page, owner),
    .page_next = offsetof(record_page, next),
    .page_stride = offsetof(record_page, stride),
    .page_capacity = offsetof(record_page, capacity),
    .page_made = offsetof(record_page, made),
    .page_entries_from = offsetof(record_page, entries_from),
    .record_word = offsetof(record, word),
    .record_begin = offsetof(record, begin),
    .record_end = offsetof(record, end),
    .hittable = record::hittable,
    .stale = record::stale,
    .imported_data = sizeof(record) + offsetof(imported_part, data),
    .imported_peer = sizeof(record) + offsetof(imported_part, peer),
    .entry_size = sizeof(entry),
    .entry_bytes = offsetof(entry, bytes),
    .entry_owner_and_hits = offsetof(entry, owner_and_hits),
    .owner_shift = entry::hit_bits,
    .entry_opened_at = offsetof(entry, opened_at),
    .ticks_per_second = ticks_per_second,
    .entry_state = offsetof(entry, state),
    .entry_access = offsetof(entry, access),
    .entry_flags = flags_offset,
    .doomed = 1,
    .persistent = 2,
    .unshared = 4,
    .bypass = 8,
    .in_driver = 16,
    .revoked = record::revoked,
};

template <std::size_t N>
void copy(char (&to)[N], std::string_view from) noexcept {
  const auto kept = from.substr(0, N - 1);
  std::fill(std::ranges::copy(kept, to).out, to + N, '\0');
}

// Takes a place that another engine left, or a new one.
debugging::cache* take_place() {
  for (auto* one = caches.load(std::memory_order_acquire); one != nullptr; one = one->next)
    if (one->taken.load(std::memory_order_relaxed) == 0 && one->taken.exchange(1, std::memory_order_acquire) == 0)
      return one;
  auto* const fresh = new debugging::cache;
  fresh->next = caches.load(std::memory_order_relaxed);
  while (!caches.compare_exchange_weak(fresh->next, fresh, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return fresh;
}

// Their addresses are those of their only fields.
static_assert(sizeof(os::mutex) == sizeof(std::uint32_t));
static_assert(sizeof(guarded_counters) == (8 * static_cast<std::size_t>(counter::count_) + 63) / 64 * 64);

debugging::shard parts_of(const shard& in) noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  return {
      .control = &in.control,
      .pages = &in.pool.pages(),
      .counters = &in.counts,
      .bytes = &in.room.bytes_word(),
      .count = &in.room.count_word(),
      .history = in.table.past().slots(),
      .mutex = &in.mutex,
  };
}

std::unique_ptr<debugging::shard[]> all_parts(const shards& parts) {
  auto made = std::make_unique<debugging::shard[]>(parts.size());
  for (std::size_t number = 0; number < parts.size(); ++number) made[number] = parts_of(parts[number]);
  return made;
}

void describe(debugging::facts& to, const debug_listing::facts& about) noexcept {
  const auto& options = about.options;
  to.engine = about.engine;
  to.process_now = &about.process_now;
  to.process = about.process;
  to.max_bytes = options.max_bytes;
  to.max_count = options.max_count;
  to.hits_before = about.hits_before;
  to.finds_before = about.finds_before;
  to.cache_number = about.cache_number;
  to.imports = about.driver.token_bytes > 0 ? 1 : 0;
  to.retain = options.retain ? 1 : 0;
  to.full = static_cast<std::uint8_t>(options.full);
  to.closes = static_cast<std::uint8_t>(options.closes);
  to.monitor = static_cast<std::uint8_t>(options.monitor);
  to.strict = options.strict ? 1 : 0;
  to.reaper = options.reaper ? 1 : 0;
  copy(to.name, options.name);
  copy(to.registrar, about.driver.name);
}

}  // namespace

debug_listing::debug_listing(const facts& about, const shards& parts)
    : shards_(all_parts(parts)), place_(take_place()) {
  describe(place_->about, about);
  place_->about.shards = shards_.get();
  place_->about.shard_count = static_cast<debugging::number>(parts.size());
  place_->ended.store(0, std::memory_order_relaxed);
  place_->changes.fetch_add(1, std::memory_order_release);  // even
}

debug_listing::~debug_listing() {
  place_->changes.fetch_add(1, std::memory_order_acq_rel);  // odd
  place_->taken.store(0, std::memory_order_release);
}

}  // namespace pinfold::core

namespace pinfold::debugging {

extern "C" [[gnu::used]] constinit const table pinfold_debug_v1{
    .magic = "pinfold debug 1",
    .version = table::current_version,
    .table_bytes = sizeof(table),
    .cache_bytes = sizeof(cache),
    .shard_bytes = sizeof(shard),
    .history_count = core::history::slot_count,
    .release = core::release,
    .counters = core::counter_names.data(),
    .caches = &core::caches,
    .records = &core::records,
    .ledgers = &core::ledger_layout,
};

}  // namespace pinfold::debugging

// The note is in the memory of the process, also when the library is stripped, static, deleted, or one of several.
// "R": the linker keeps it with --gc-sections.
asm(R"(
  .pushsection .note.pinfold, "aR", %note
  .balign 4
  .long 2f - 1f
  .long 4f - 3f
  .long 1
1: .asciz "pinfold"
2: .balign 4
3: .quad pinfold_debug_v1 - .
4: .balign 4
  .popsection
)");
