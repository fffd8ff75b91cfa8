// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/open_mappings.hpp"

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

result<void> open_mappings::reserve(std::uint64_t exporter, range wanted) noexcept try {
  const key at{exporter, wanted.begin};
  std::map<key, held> made{{at, {wanted.end, nullptr, state::opening}}};
  const std::scoped_lock hold(mutex_);
  if (overlaps(at, wanted.end)) {
    return fail_errno(errc::already_mapped, EBUSY, "this importer already has overlapping memory of the exporter open");
  }
  ranges_.merge(made);
  return {};
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

void open_mappings::publish(const mapping& made) noexcept {
  const std::scoped_lock hold(mutex_);
  held& one = ranges_.find(key{made.exporter, made.base})->second;
  one.address = made.address;
  one.now = state::open;
}

result<void> open_mappings::begin_close(const mapping& closing) noexcept {
  const std::scoped_lock hold(mutex_);
  const auto found = ranges_.find(key{closing.exporter, closing.base});
  if (found == ranges_.end()) return fail(errc::invalid_argument, "this mapping is not open");
  held& one = found->second;
  if (one.now != state::open || one.address != closing.address || one.end - closing.base != closing.bytes) {
    return fail(errc::invalid_argument, "this mapping is not open");
  }
  one.now = state::closing;
  return {};
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
