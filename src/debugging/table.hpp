// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The table that describes this copy of the library to a reader of the process's memory: a debugger, another process,
/// or a signal handler. `docs/operate/dump.md` describes how a reader finds and reads it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::debugging {

/// The offset of a field, or a number, as the table states them. A reader takes them from the table, never from a
/// header, which may be of another release than the process.
using number = std::uint32_t;

/// Places and sizes in pages of records, their records and their entries. Readers rely on the order of these fields: a
/// release that changes it has another `table::version`.
struct record_layout {
  number page_bytes;   ///< of a page, which is aligned to that
  number page_header;  ///< bytes in front of the first record
  number page_owner;   ///< the address of the control block of the page's shard
  number page_next;    ///< the address of the shard's next page
  number page_stride, page_capacity, page_made, page_entries_from;  ///< numbers of 32 bits
  number record_word, record_begin, record_end;
  number hittable, stale;                                ///< bits of the record's word
  number imported_data, imported_peer;                   ///< in a record of imported memory
  number entry_size, entry_bytes, entry_owner_and_hits;  ///< the latter two are words of 64 bits
  number owner_shift;                                    ///< the owner is above the hits
  number entry_opened_at;                                ///< 32 bits, in ticks
  number ticks_per_second;
  number entry_state, entry_access, entry_flags;           ///< bytes
  number doomed, persistent, unshared, bypass, in_driver;  ///< bits of the flags
  number revoked;  ///< bit of the record's word: the cache was destroyed under its leases
};

/// The same for a ledger, which has a thread's pins and counts of hits.
struct ledger_layout {
  const void* first;  ///< points to the first ledger
  number next;
  number cells, cell_count;  ///< a cell is the address of a record, or 0
  number slots, slot_count;  ///< a slot is the address of a record, above a count with a bias
  number slot_shift, slot_bias;
  number hits, finds, cache_count;  ///< a word for each cache number
};

/// One shard of a cache: addresses of its parts.
struct shard {
  const void* control;   ///< the value of `page_owner` in its pages
  const void* pages;     ///< points to the first page
  const void* counters;  ///< words of 64 bits, named by `table::counters`
  const void* bytes;     ///< the registered bytes, a word
  const void* count;     ///< the registered entries, a word
  const void* history;   ///< words: 0, or a hash above the reason (`core::miss_reason`) in 3 bits
  const void* mutex;     ///< a word of 32 bits: 0 if it is free
};

/// A cache's description of itself. It changes only while `cache::changes` is odd.
struct facts {
  const void* engine = nullptr;
  const std::atomic<std::uint64_t>* process_now = nullptr;  ///< differs from `process` in a child of fork(2)
  std::uint64_t process = 0;
  const shard* shards = nullptr;
  std::uint64_t max_bytes = 0;
  std::uint64_t max_count = 0;
  std::uint64_t hits_before = 0;  ///< hits and finds that ledgers counted under this number before the cache was made
  std::uint64_t finds_before = 0;
  number shard_count = 0;
  number cache_number = 0;
  std::uint8_t imports = 0;
  std::uint8_t retain = 0;
  std::uint8_t full = 0;     ///< `when_full`
  std::uint8_t closes = 0;   ///< `close_policy`
  std::uint8_t monitor = 0;  ///< `monitor_choice`
  std::uint8_t strict = 0;
  std::uint8_t reaper = 0;
  char name[64] = {};  ///< cut off if longer
  char registrar[32] = {};
};

/// One cache. Its memory is never freed, only reused for another cache.
struct cache {
  cache* next = nullptr;                  ///< in the list of all, which only grows
  std::atomic<std::uint64_t> changes{1};  ///< odd while unused
  facts about{};
  std::atomic<std::uint32_t> ended{0};  ///< the cache was destroyed, and leases keep the engine
  std::atomic<std::uint32_t> taken{1};  ///< for those that list caches
};

/// The table. A reader first checks `magic`, `version` and the sizes.
struct table {
  static constexpr number current_version = 1;

  char magic[16];
  number version;
  number table_bytes;
  number cache_bytes;
  number shard_bytes;
  number history_count;               ///< words of a shard's history
  const char* release;                ///< of the library, for instance `0.2.0`
  const char* counters;               ///< names of a shard's counters, with blanks between
  const std::atomic<cache*>* caches;  ///< points to the first cache
  const record_layout* records;
  const ledger_layout* ledgers;
};

inline constexpr char magic[16] = "pinfold debug 1";
inline constexpr char note_name[8] = "pinfold";
inline constexpr number note_type = 1;
static_assert(sizeof(void*) == 8, "readers expect words of 64 bits");

/// The table of this copy of the library. It is found by an ELF note (`.note.pinfold`): name `pinfold`, type 1, and the
/// distance from the note's content to the table in 64 bits.
extern "C" [[gnu::visibility("hidden")]] const table pinfold_debug_v1;

}  // namespace pinfold::debugging
