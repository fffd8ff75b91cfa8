// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/open_mappings.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>

namespace pinfold::memfd {

bool open_mappings::overlaps(const key& wanted, std::uint64_t end) const noexcept {
  const auto after = ranges_.lower_bound(wanted);
  if (after != ranges_.end() && after->first.exporter == wanted.exporter && after->first.base < end) return true;
  if (after == ranges_.begin()) return false;
  const auto before = std::prev(after);
  return before->first.exporter == wanted.exporter && before->second.end > wanted.base;
}

bool open_mappings::meets_window(const key& wanted, std::uint64_t end) const noexcept {
  const auto after = windows_.lower_bound(wanted);
  if (after != windows_.end() && after->first.exporter == wanted.exporter && after->first.base < end) return true;
  if (after == windows_.begin()) return false;
  const auto& [before, place] = *std::prev(after);
  return before.exporter == wanted.exporter && before.base + place.size() > wanted.base;
}

/// Returns the range's place in the window that contains all of it; null if none does.
void* open_mappings::place_of(const key& wanted, std::uint64_t end) const noexcept {
  const auto after = windows_.upper_bound(wanted);
  if (after == windows_.begin()) return nullptr;
  const auto& [window, place] = *std::prev(after);
  if (window.exporter != wanted.exporter || end - window.base > place.size()) return nullptr;
  return place.data() + (wanted.base - window.base);
}

result<void*> open_mappings::add_window(const memory_window& window, os::reservation place) noexcept try {
  const key at{window.exporter, window.base};
  windows made;
  made.emplace(at, std::move(place));
  const std::scoped_lock hold(mutex_);
  const auto known = windows_.find(at);
  if (known != windows_.end() && known->second.size() == window.size) return known->second.data();
  if (meets_window(at, window.base + window.size))
    return fail(errc::in_use_conflict, "the window meets another window of the exporter");
  if (overlaps(at, window.base + window.size))
    return fail(errc::in_use_conflict, "memory in the window is already open elsewhere");
  windows_.merge(made);
  return windows_.find(at)->second.data();
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

result<void> open_mappings::remove_window(const memory_window& window) noexcept {
  const key at{window.exporter, window.base};
  windows::node_type removed;  // unmapped after the lock is released
  const std::scoped_lock hold(mutex_);
  const auto found = windows_.find(at);
  if (found == windows_.end() || found->second.size() != window.size)
    return fail(errc::invalid_argument, "there is no such window");
  if (overlaps(at, window.base + window.size)) return fail(errc::in_use_conflict, "memory is mapped in the window");
  removed = windows_.extract(found);
  return {};
}

bool open_mappings::is_in_window(const void* address) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return std::ranges::any_of(windows_, [&](const auto& one) {
    const auto begin = reinterpret_cast<std::uintptr_t>(one.second.data());
    return begin <= at && at < begin + one.second.size();
  });
}

result<void*> open_mappings::reserve(std::uint64_t exporter, range wanted) noexcept try {
  const key at{exporter, wanted.begin};
  std::map<key, held> made{{at, {wanted.end, nullptr, state::opening}}};
  const std::scoped_lock hold(mutex_);
  if (overlaps(at, wanted.end)) {
    return fail_errno(errc::already_mapped, EBUSY, "this importer already has overlapping memory of the exporter open");
  }
  ranges_.merge(made);
  return place_of(at, wanted.end);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

void open_mappings::publish(const mapping& made) noexcept {
  const std::scoped_lock hold(mutex_);
  held& one = ranges_.find(key{made.exporter, made.base})->second;
  one.address = made.address;
  one.now = state::open;
}

result<bool> open_mappings::begin_close(const mapping& closing) noexcept {
  const std::scoped_lock hold(mutex_);
  const auto found = ranges_.find(key{closing.exporter, closing.base});
  if (found == ranges_.end()) return fail(errc::invalid_argument, "this mapping is not open");
  held& one = found->second;
  if (one.now != state::open || one.address != closing.address || one.end - closing.base != closing.bytes) {
    return fail(errc::invalid_argument, "this mapping is not open");
  }
  one.now = state::closing;
  return place_of(found->first, one.end) != nullptr;
}

void open_mappings::undo_close(const mapping& failed) noexcept {
  const std::scoped_lock hold(mutex_);
  ranges_.find(key{failed.exporter, failed.base})->second.now = state::open;
}

void open_mappings::remove(std::uint64_t exporter, std::uint64_t base) noexcept {
  std::map<key, held>::node_type removed;  // its memory is freed after the lock is released
  const std::scoped_lock hold(mutex_);
  removed = ranges_.extract(key{exporter, base});
}

std::size_t open_mappings::size() const noexcept {
  const std::scoped_lock hold(mutex_);
  return ranges_.size();
}

}  // namespace pinfold::memfd
