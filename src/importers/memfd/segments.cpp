// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/exporter_state.hpp"
#include "os/no_cancellation.hpp"
#include "os/page_bytes.hpp"
#include "os/reservation.hpp"

#include <iterator>
#include <map>
#include <mutex>
#include <new>

namespace pinfold {

namespace {

struct segment {
  memfd_handle handle;
  memfd::exported_memory memory;

  segment(const memfd_handle& of, memfd::exported_memory owned) noexcept : handle(of), memory(std::move(owned)) {}
  segment(const segment&) = delete;
  segment& operator=(const segment&) = delete;
  ~segment() { memory.leave_mapping(); }  // the reservation owns the addresses
};

result<std::size_t> whole_pages(std::size_t bytes) noexcept {
  const std::size_t page = os::page_bytes();
  if (bytes == 0) return fail(errc::invalid_range, "the range is empty");
  if (bytes > SIZE_MAX / 2) return fail(errc::invalid_range, "the range exceeds the address space");
  return (bytes + page - 1) / page * page;
}

}  // namespace

/// Segments by their first address. Every change is made under the mutex, with its memory allocated before.
struct memfd_segments::state {
  using table = std::map<std::uintptr_t, segment>;

  std::weak_ptr<memfd_exporter::state> exporter;
  std::shared_ptr<memfd::served_table> served;
  std::shared_ptr<release_registry> registry;  ///< null if the exporter retires nothing
  memory_window window;
  os::reservation place;
  mutable std::mutex mutex;
  table all;

  state() noexcept = default;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    if (!served || served->inherited()) return;
    for (const auto& one : all) stop_sharing(one.second.handle.serial);
  }

  [[nodiscard]] result<range> part(std::size_t offset, std::size_t bytes) const noexcept;
  [[nodiscard]] bool is_free(const range& wanted) const noexcept;
  [[nodiscard]] result<std::pair<table::iterator, table::iterator>> inside(const range& wanted) noexcept;
  [[nodiscard]] result<memfd_handle> add(const range& where);
  [[nodiscard]] result<void> start_sharing(const memfd_handle& handle) noexcept;
  void stop_sharing(std::uint64_t serial) noexcept;
};

result<range> memfd_segments::state::part(std::size_t offset, std::size_t bytes) const noexcept {
  const std::size_t page = os::page_bytes();
  if (bytes == 0 || offset % page != 0 || bytes % page != 0)
    return fail(errc::invalid_range, "segments are whole pages");
  if (offset >= window.size || bytes > window.size - offset)
    return fail(errc::invalid_range, "the segment reaches outside the reserved range");
  return range{window.base + offset, window.base + offset + bytes};
}

bool memfd_segments::state::is_free(const range& wanted) const noexcept {
  const auto after = all.lower_bound(wanted.begin);
  if (after != all.end() && after->first < wanted.end) return false;
  return after == all.begin() || std::prev(after)->second.handle.allocation().end <= wanted.begin;
}

/// Returns the segments in the range, which must not cut one.
result<std::pair<memfd_segments::state::table::iterator, memfd_segments::state::table::iterator>>
memfd_segments::state::inside(const range& wanted) noexcept {
  const auto first = all.lower_bound(wanted.begin);
  const auto last = all.lower_bound(wanted.end);
  if (first == last) return fail(errc::invalid_range, "there is no segment in the range");
  const bool cuts_first = first != all.begin() && std::prev(first)->second.handle.allocation().end > wanted.begin;
  if (cuts_first || std::prev(last)->second.handle.allocation().end > wanted.end)
    return fail(errc::invalid_range, "the range cuts a segment");
  return std::pair{first, last};
}

result<void> memfd_segments::state::start_sharing(const memfd_handle& handle) noexcept {
  if (!served->add(handle.serial, handle.descriptor))
    return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
  if (!registry) return {};
  auto added = registry->add(handle.serial);
  if (!added) served->remove(handle.serial);
  return added;
}

void memfd_segments::state::stop_sharing(std::uint64_t serial) noexcept {
  served->remove(serial);
  if (registry) registry->forget(serial);
}

/// Adds a segment to free addresses of the range.
result<memfd_handle> memfd_segments::state::add(const range& where) {
  const auto owner = exporter.lock();
  if (!owner) return fail(errc::closed, "the exporter has ended");
  if (!is_free(where)) return fail_errno(errc::in_use_conflict, EEXIST, "the range already has a segment");
  table made;  // allocated before any step that would have to be undone
  const auto fresh = made.try_emplace(where.begin, memfd_handle{}, memfd::exported_memory()).first;
  auto memory = memfd::make_memory(where.size(), reinterpret_cast<void*>(where.begin), owner->options.access,
                                   memfd::placing::reservation);
  if (!memory) return tl::unexpected(memory.error());
  const auto handle = owner->next_handle(*memory);
  fresh->second.memory = std::move(*memory);
  fresh->second.handle = handle;
  if (auto shared = start_sharing(handle); !shared) {
    static_cast<void>(os::reserve_again(reinterpret_cast<void*>(where.begin), where.size()));
    return tl::unexpected(shared.error());
  }
  all.merge(made);
  return handle;
}

namespace {

/// Fails in a forked child, where a thread that the child does not have may hold the mutex.
template <class State>
result<void> usable_here(const State* state) noexcept {
  if (state == nullptr) return fail(errc::closed, "the segments were moved from");
  if (state->served->inherited()) return fail(errc::unsupported, "the exporter belongs to the parent process");
  return {};
}

}  // namespace

memfd_segments::memfd_segments() noexcept = default;
memfd_segments::memfd_segments(memfd_segments&& other) noexcept = default;
memfd_segments& memfd_segments::operator=(memfd_segments&& other) noexcept = default;
memfd_segments::~memfd_segments() = default;
memfd_segments::memfd_segments(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}

std::byte* memfd_segments::data() const noexcept { return state_ ? state_->place.data() : nullptr; }
std::size_t memfd_segments::size() const noexcept { return state_ ? state_->place.size() : 0; }
memory_window memfd_segments::window() const noexcept { return state_ ? state_->window : memory_window{}; }
std::size_t memfd_segments::segments() const noexcept {
  if (!usable_here(state_.get())) return 0;
  const std::scoped_lock hold(state_->mutex);
  return state_->all.size();
}

result<memfd_handle> memfd_segments::add(std::size_t offset, std::size_t bytes) noexcept try {
  const detail::no_cancellation whole;
  if (auto usable = usable_here(state_.get()); !usable) return tl::unexpected(usable.error());
  const auto where = state_->part(offset, bytes);
  if (!where) return tl::unexpected(where.error());
  const std::scoped_lock hold(state_->mutex);
  return state_->add(*where);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
}

result<memfd_handle> memfd_segments::grow(std::size_t bytes) noexcept try {
  const detail::no_cancellation whole;
  if (auto usable = usable_here(state_.get()); !usable) return tl::unexpected(usable.error());
  const auto size = whole_pages(bytes);
  if (!size) return tl::unexpected(size.error());
  const std::scoped_lock hold(state_->mutex);
  const auto& all = state_->all;
  const auto end = all.empty() ? state_->window.base : std::prev(all.end())->second.handle.allocation().end;
  const auto where = state_->part(end - state_->window.base, *size);
  if (!where) return tl::unexpected(where.error());
  return state_->add(*where);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
}

result<void> memfd_segments::remove(std::size_t offset, std::size_t bytes) noexcept {
  if (auto usable = usable_here(state_.get()); !usable) return tl::unexpected(usable.error());
  const auto where = state_->part(offset, bytes);
  if (!where) return tl::unexpected(where.error());
  const std::scoped_lock hold(state_->mutex);
  const auto gone = state_->inside(*where);
  if (!gone) return tl::unexpected(gone.error());
  // The only step that can fail comes first. Peers may still fetch the files until they are closed below.
  if (auto unmapped = os::reserve_again(reinterpret_cast<void*>(where->begin), where->size()); !unmapped)
    return unmapped;
  for (auto one = gone->first; one != gone->second; ++one) state_->stop_sharing(one->second.handle.serial);
  state_->all.erase(gone->first, gone->second);
  return {};
}

result<std::vector<memfd_handle>> memfd_segments::handles(const void* address, std::size_t bytes) const noexcept try {
  if (auto usable = usable_here(state_.get()); !usable) return tl::unexpected(usable.error());
  const auto wanted = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  if (!wanted) return tl::unexpected(wanted.error());
  std::vector<memfd_handle> found;
  const std::scoped_lock hold(state_->mutex);
  const auto& all = state_->all;
  auto one = all.upper_bound(wanted->begin);
  if (one != all.begin()) --one;
  auto at = wanted->begin;
  for (; one != all.end() && at < wanted->end; ++one) {
    const auto there = one->second.handle.allocation();
    if (at < there.begin || there.end <= at) break;
    found.push_back(one->second.handle);
    at = there.end;
  }
  if (at < wanted->end) return fail(errc::invalid_range, "a part of the range has no segment");
  return found;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
}

result<memfd_segments> memfd_exporter::reserve(std::size_t bytes) noexcept {
  if (!state_) return fail(errc::closed, "the exporter was moved from");
  if (state_->buffers->inherited()) return fail(errc::unsupported, "the exporter belongs to the parent process");
  const auto size = whole_pages(bytes);
  if (!size) return tl::unexpected(size.error());
  std::unique_ptr<memfd_segments::state> made(new (std::nothrow) memfd_segments::state);
  if (!made) return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
  auto place = os::reservation::of(*size);
  if (!place) return tl::unexpected(place.error());
  made->exporter = state_;
  made->served = state_->buffers;
  if (state_->releases) made->registry = state_->releases->registry();
  made->window = {state_->id.exporter, reinterpret_cast<std::uintptr_t>(place->data()), *size};
  made->place = std::move(*place);
  return memfd_segments(std::move(made));
}

}  // namespace pinfold
