// SPDX-License-Identifier: BSD-3-Clause
// Leases on all segments under a range of a peer's memory.
#include "c/cache.hpp"

#include <pinfold/detail/segments_under.hpp>
#include <pinfold/segments.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

using namespace pinfold;

/// Copies of the caller's handles at aligned addresses: importers read their members.
class aligned_handles {
 public:
  /// Throws `std::bad_alloc`.
  aligned_handles(const void* given, std::size_t bytes, std::size_t count)
      : count_(count), words_((bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t)), all_(count * words_) {
    for (std::size_t one = 0; one < count; ++one)
      std::memcpy(all_.data() + one * words_, static_cast<const std::byte*>(given) + one * bytes, bytes);
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] const void* at(std::size_t number) const noexcept { return all_.data() + number * words_; }

 private:
  std::size_t count_;
  std::size_t words_;  ///< of one handle
  std::vector<std::uint64_t> all_;
};

/// Leases that are released at the end, unless the caller got them.
class held_leases {
 public:
  /// Throws `std::bad_alloc`.
  explicit held_leases(std::size_t room) { all_.reserve(room); }
  held_leases(const held_leases&) = delete;
  held_leases& operator=(const held_leases&) = delete;
  ~held_leases() {
    for (const auto& one : all_)
      if (const auto* unpinned = detail::unpin(one.pin)) static_cast<void>(detail::finish_release(unpinned));
  }

  void add(const detail::grant& got) noexcept { all_.push_back({got.held, got.data}); }
  void hand_out(pinfold_lease* to) noexcept {
    std::copy(all_.begin(), all_.end(), to);
    all_.clear();
  }

 private:
  std::vector<pinfold_lease> all_;
};

result<std::vector<detail::named_segment>> segments_under(const pinfold_cache& cache, const range& wanted,
                                                          const aligned_handles& handles) {
  std::vector<detail::named_segment> all;
  for (std::size_t one = 0; one < handles.count(); ++one) {
    const auto where = cache.behind.allocation(cache.behind.table.self, handles.at(one));
    if (!where) return tl::unexpected(where.error());
    if (where->overlaps(wanted)) all.push_back({*where, handles.at(one)});
  }
  if (auto covered = detail::sort_to_cover(all, wanted); !covered) return tl::unexpected(covered.error());
  return all;
}

result<detail::grant> acquire(const pinfold_cache& cache, const detail::request& what) noexcept {
  if (const auto hit = detail::look_up(cache.on(), what); hit.held != 0) return hit;
  return detail::acquire(cache.on(), what);
}

struct destination {
  pinfold_lease* leases;
  pinfold_range* where;  ///< may be null
  std::size_t* made;
};

result<void> acquire_all(const pinfold_cache& cache, std::uint64_t peer, const range& wanted,
                         const aligned_handles& handles, const destination& to) {
  const auto all = segments_under(cache, wanted, handles);
  if (!all) return tl::unexpected(all.error());
  held_leases held(all->size());
  for (const auto& one : *all) {
    const auto got = acquire(cache, {.peer = {peer}, .wanted = one.part_of(wanted), .token = one.handle});
    if (!got) return tl::unexpected(got.error());
    held.add(*got);
  }
  held.hand_out(to.leases);
  for (std::size_t one = 0; to.where != nullptr && one < all->size(); ++one) {
    const range part = (*all)[one].part_of(wanted);
    to.where[one] = {part.begin, part.size()};
  }
  *to.made = all->size();
  return {};
}

}  // namespace

extern "C" int pinfold_acquire_segments(pinfold_cache* cache, uint64_t peer, const void* handles, size_t handle_bytes,
                                        size_t count, uint64_t address, size_t bytes, pinfold_lease* leases,
                                        pinfold_range* where, size_t* made) {
  if (made == nullptr || (leases == nullptr && count != 0))
    return c::refuse(errc::invalid_argument, "there is no place for the leases, or for their number");
  *made = 0;
  if (count != 0) std::fill_n(leases, count, pinfold_lease{});
  if (const auto right = c::may_wait(cache, c::kind::imported); !right) return c::refuse(right.error());
  if ((handles == nullptr && count != 0) || handle_bytes != cache->behind.table.token_bytes)
    return c::refuse(errc::invalid_handle, "the handles are null, or of another length than the importer's handles");
  if (count > UINT32_MAX) return c::refuse(errc::too_large, "there are too many handles");
  const auto wanted = range::of(address, bytes);
  if (!wanted) return c::refuse(wanted.error());
  return c::guarded([&] {
    return acquire_all(*cache, peer, *wanted, aligned_handles(handles, handle_bytes, count), {leases, where, made});
  });
}
