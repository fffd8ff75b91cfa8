// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/walk.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pinfold::inspection {

namespace {

std::uintptr_t address(const volatile void* of) noexcept { return reinterpret_cast<std::uintptr_t>(of); }

bool fits(debugging::number offset, std::size_t bytes, std::size_t into) noexcept {
  return bytes <= into && offset <= into - bytes;
}

}  // namespace

// Brent's cycle detection: the mark moves at powers of two, and a cyclic list comes back to it.
template <class F>
bool walk::follow(std::uintptr_t first, std::uint64_t next, F&& each) noexcept {
  std::uintptr_t mark = 0;
  std::uint64_t steps = 0;
  std::uint64_t until = 1;
  for (std::uintptr_t at = first; at != 0;) {
    if (at == mark || !each(at)) return false;
    if (++steps == until) {
      mark = at;
      until *= 2;
    }
    if (!from_->read(at + next, at)) return false;
  }
  return true;
}

template <class F>
void walk::for_each_word(std::uintptr_t from, std::size_t count, F&& each) noexcept {
  for (std::size_t done = 0; done < count;) {
    const auto now = std::min(chunk, count - done);
    if (!from_->read(from + 8 * done, words_.data(), 8 * now)) return;
    for (std::size_t i = 0; i < now; ++i)
      if (words_[i] != 0) each(words_[i]);
    done += now;
  }
}

template <class T>
T walk::in_page(std::size_t offset) const noexcept {
  T value{};
  std::memcpy(&value, page_.data() + offset, sizeof(T));
  return value;
}

walk::outcome walk::over(memory& from, std::uintptr_t table, visitor& to) noexcept {
  from_ = &from;
  if (const auto read = read_table(table); read != outcome::done) return read;
  std::uintptr_t first = 0;
  if (!from.read(address(table_.caches), first)) return outcome::unfinished;
  const auto next = offsetof(debugging::cache, next);
  return follow(first, next, [&](std::uintptr_t at) { return visit_cache(at, to); }) ? outcome::done
                                                                                     : outcome::unfinished;
}

walk::outcome walk::read_table(std::uintptr_t at) noexcept {
  if (!from_->read(at, table_) || std::memcmp(table_.magic, debugging::magic, sizeof(debugging::magic)) != 0)
    return outcome::not_a_table;
  if (table_.version != debugging::table::current_version || table_.table_bytes < sizeof(debugging::table) ||
      table_.cache_bytes < sizeof(debugging::cache) || table_.shard_bytes < sizeof(debugging::shard))
    return outcome::other_version;
  if (!from_->read(address(table_.records), records_) || !from_->read(address(table_.ledgers), ledgers_))
    return outcome::not_a_table;
  read_names(address(table_.counters));
  return is_sensible() ? outcome::done : outcome::not_a_table;
}

// Reads up to the end of the text, which may be the end of the mapped memory.
void walk::read_names(std::uintptr_t at) noexcept {
  auto& names = cache_.counter_names;
  names.fill('\0');
  constexpr std::size_t line = 64;
  for (std::size_t done = 0; done + line < names.size();) {
    const auto now = line - (at + done) % line;
    if (!from_->read(at + done, names.data() + done, now)) return;
    if (std::memchr(names.data() + done, '\0', now) != nullptr) return;
    done += now;
  }
}

bool walk::is_sensible() const noexcept {
  const auto& r = records_;
  const auto& l = ledgers_;
  const auto in_header = [&](debugging::number offset, std::size_t bytes) {
    return fits(offset, bytes, r.page_header);
  };
  const auto in_entry = [&](debugging::number offset, std::size_t bytes) { return fits(offset, bytes, r.entry_size); };
  const auto in_record = [&](debugging::number offset, std::size_t bytes) { return fits(offset, bytes, 32); };
  return r.page_bytes >= 4096 && r.page_bytes <= page_bytes && std::has_single_bit(r.page_bytes) &&
         r.page_header <= r.page_bytes && in_header(r.page_owner, 8) && in_header(r.page_next, 8) &&
         in_header(r.page_stride, 4) && in_header(r.page_capacity, 4) && in_header(r.page_made, 4) &&
         in_header(r.page_entries_from, 4) && in_record(r.record_word, 4) && in_record(r.record_begin, 8) &&
         in_record(r.record_end, 8) && r.imported_data <= 256 && r.imported_peer <= 256 && r.entry_size <= 256 &&
         in_entry(r.entry_bytes, 8) && in_entry(r.entry_owner_and_hits, 8) && in_entry(r.entry_opened_at, 4) &&
         in_entry(r.entry_state, 1) && in_entry(r.entry_access, 1) && in_entry(r.entry_flags, 1) &&
         r.owner_shift < 64 && r.ticks_per_second > 0 && l.slot_shift < 64 && l.cell_count <= 65536 &&
         l.slot_count <= 65536;
}

bool walk::visit_cache(std::uintptr_t at, visitor& to) noexcept {
  std::uint64_t before = 0;
  const auto changes = at + offsetof(debugging::cache, changes);
  if (!from_->read(changes, before)) return false;
  if (before % 2 == 1) return true;  // no cache
  std::uint32_t ended = 0;
  std::uint64_t process = 0;
  if (!from_->read(at + offsetof(debugging::cache, about), cache_.about) ||
      !from_->read(at + offsetof(debugging::cache, ended), ended))
    return false;
  auto& about = cache_.about;
  about.name[sizeof(about.name) - 1] = about.registrar[sizeof(about.registrar) - 1] = '\0';
  cache_.ended = ended != 0;
  cache_.of_parent = !from_->read(address(about.process_now), process) || process != about.process;
  cache_.ticks_per_second = records_.ticks_per_second;
  cache_.locked_shards = 0;
  cache_.bytes = cache_.count = 0;
  cache_.closed.fill(0);
  cache_.counters.fill(0);
  bool complete = about.shard_count <= most_shards;
  const auto each_shard = [&](auto&& call) {
    for (std::size_t number = 0; complete && number < about.shard_count; ++number) {
      debugging::shard part{};
      complete = from_->read(address(about.shards) + number * table_.shard_bytes, part) && call(part);
    }
  };
  each_shard([&](const debugging::shard& part) { return add_shard(part); });
  count_ledgers();
  to.cache(cache_);
  from_->spend(steps_of_cache);
  each_shard([&](const debugging::shard& part) { return visit_entries(part, to); });
  std::uint64_t after = 0;
  to.end(complete && from_->read(changes, after) && before == after);
  return !from_->exhausted();
}

bool walk::add_shard(const debugging::shard& part) noexcept {
  std::uint32_t locked = 0;
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::array<std::uint64_t, seen_cache::most_counters> counters{};
  std::size_t number = 0;
  cache_.for_each_counter([&](std::string_view, std::uint64_t) { ++number; });
  if (!from_->read(address(part.mutex), locked) || !from_->read(address(part.bytes), bytes) ||
      !from_->read(address(part.count), count) || !from_->read(address(part.counters), counters.data(), 8 * number))
    return false;
  cache_.locked_shards += locked != 0 ? 1 : 0;
  cache_.bytes += bytes;
  cache_.count += count;
  for (std::size_t i = 0; i < number; ++i) cache_.counters[i] += counters[i];
  for_each_word(address(part.history), std::min<std::size_t>(table_.history_count, 65536),
                [&](std::uint64_t word) { ++cache_.closed[word % cache_.closed.size()]; });
  return true;
}

// Adds the hits that were made without the mutex, which ledgers count under the cache's number.
void walk::count_ledgers() noexcept {
  const auto number = cache_.about.cache_number;
  if (number == 0 || number >= ledgers_.cache_count) return;
  std::uint64_t hits = 0;
  std::uint64_t finds = 0;
  std::uintptr_t first = 0;
  if (!from_->read(address(ledgers_.first), first)) return;
  const bool all = follow(first, ledgers_.next, [&](std::uintptr_t at) {
    std::uint64_t one = 0;
    std::uint64_t other = 0;
    if (!from_->read(at + ledgers_.hits + 8 * std::uint64_t{number}, one) ||
        !from_->read(at + ledgers_.finds + 8 * std::uint64_t{number}, other))
      return false;
    hits += one;
    finds += other;
    return true;
  });
  if (!all) return;
  hits -= cache_.about.hits_before;
  finds -= cache_.about.finds_before;
  add_to_counter("acquires", hits);
  add_to_counter("hits", hits);
  add_to_counter("valid", hits + finds);
  add_to_counter("found", finds);
}

void walk::add_to_counter(std::string_view name, std::uint64_t more) noexcept {
  std::size_t number = 0;
  cache_.for_each_counter([&](std::string_view one, std::uint64_t) {
    if (one == name) cache_.counters[number] += more;
    ++number;
  });
}

bool walk::visit_entries(const debugging::shard& part, visitor& to) noexcept {
  std::uintptr_t first = 0;
  return from_->read(address(part.pages), first) &&
         follow(first, records_.page_next, [&](std::uintptr_t at) { return visit_page(at, part, to); });
}

bool walk::visit_page(std::uintptr_t at, const debugging::shard& part, visitor& to) noexcept {
  if (at % records_.page_bytes != 0 || !from_->read(at, page_.data(), records_.page_bytes)) return false;
  if (!page_is_sensible(part)) return false;
  if (!any_used()) return true;
  for (std::size_t number = 0; number < page_now_.made; ++number)
    pins_[number] = in_page<std::int32_t>(records_.page_bytes - 4 * (number + 1));
  add_pins(at);
  for (std::size_t number = 0; number < page_now_.made; ++number) {
    const auto found = entry_at(at, number);
    if (found.state != 0) to.entry(found);
    if (found.revoked) to.revoked(found.record);
    if (found.state != 0 || found.revoked) from_->spend(1);
  }
  return true;
}

bool walk::page_is_sensible(const debugging::shard& part) noexcept {
  auto& now = page_now_;
  now.stride = in_page<std::uint32_t>(records_.page_stride);
  now.made = std::min(in_page<std::uint32_t>(records_.page_made), in_page<std::uint32_t>(records_.page_capacity));
  now.entries_from = in_page<std::uint32_t>(records_.page_entries_from);
  const std::size_t least =
      cache_.about.imports != 0 ? std::max(records_.imported_data, records_.imported_peer) + 8 : 32;
  const std::size_t behind_records = records_.page_header + std::size_t{now.made} * now.stride;
  const std::size_t entries = std::size_t{now.made} * records_.entry_size;
  return in_page<std::uintptr_t>(records_.page_owner) == address(part.control) && now.made <= most_records &&
         now.stride >= least && now.stride <= records_.page_bytes && behind_records <= now.entries_from &&
         now.entries_from + entries + 4 * std::size_t{now.made} <= records_.page_bytes;
}

bool walk::any_used() const noexcept {
  for (std::size_t number = 0; number < page_now_.made; ++number)
    if (const auto found = entry_at(0, number); found.state != 0 || found.revoked) return true;
  return false;
}

void walk::add_pins(std::uintptr_t page) noexcept {
  std::uintptr_t first = 0;
  if (!from_->read(address(ledgers_.first), first)) return;
  static_cast<void>(follow(first, ledgers_.next, [&](std::uintptr_t at) {
    add_pins_of(at, page);
    return true;
  }));
}

// Reads the cells first: a pin moves from a cell to a slot.
void walk::add_pins_of(std::uintptr_t ledger, std::uintptr_t page) noexcept {
  for_each_word(ledger + ledgers_.cells, ledgers_.cell_count, [&](std::uint64_t word) { add_pin(word, page, 1); });
  const auto mask = (std::uint64_t{1} << ledgers_.slot_shift) - 1;
  for_each_word(ledger + ledgers_.slots, ledgers_.slot_count, [&](std::uint64_t word) {
    const auto count = static_cast<std::int64_t>(word & mask) - std::int64_t{ledgers_.slot_bias};
    if (count != 0) add_pin(word >> ledgers_.slot_shift, page, count);
  });
}

void walk::add_pin(std::uintptr_t record, std::uintptr_t page, std::int64_t count) noexcept {
  const auto offset = record - page - records_.page_header;
  if (offset / page_now_.stride < page_now_.made && offset % page_now_.stride == 0)
    pins_[offset / page_now_.stride] += count;
}

seen_entry walk::entry_at(std::uintptr_t page, std::size_t number) const noexcept {
  const auto& where = records_;
  const auto record = where.page_header + number * page_now_.stride;
  const auto entry = page_now_.entries_from + number * where.entry_size;
  const auto word = in_page<std::uint32_t>(record + where.record_word);
  const auto owner_and_hits = in_page<std::uint64_t>(entry + where.entry_owner_and_hits);
  const auto flags = in_page<std::uint8_t>(entry + where.entry_flags);
  seen_entry found;
  found.record = page + record;
  found.entry = page + entry;
  found.begin = found.data = in_page<std::uintptr_t>(record + where.record_begin);
  found.end = in_page<std::uintptr_t>(record + where.record_end);
  if (cache_.about.imports != 0) {
    found.data = in_page<std::uintptr_t>(record + where.imported_data);
    found.peer = in_page<std::uint64_t>(record + where.imported_peer);
  }
  found.bytes = in_page<std::uint64_t>(entry + where.entry_bytes);
  found.pins = pins_[number];
  found.hits = owner_and_hits & ((std::uint64_t{1} << where.owner_shift) - 1);
  found.owner = static_cast<std::int32_t>(owner_and_hits >> where.owner_shift);
  found.opened_at = in_page<std::uint32_t>(entry + where.entry_opened_at);
  found.state = in_page<std::uint8_t>(entry + where.entry_state);
  found.access = in_page<std::uint8_t>(entry + where.entry_access);
  found.doomed = (flags & where.doomed) != 0;
  found.persistent = (flags & where.persistent) != 0;
  found.unshared = (flags & where.unshared) != 0;
  found.bypass = (flags & where.bypass) != 0;
  found.in_driver = (flags & where.in_driver) != 0;
  found.hittable = (word & where.hittable) != 0;
  found.stale = (word & where.stale) != 0;
  found.revoked = (word & where.revoked) != 0;
  return found;
}

}  // namespace pinfold::inspection
