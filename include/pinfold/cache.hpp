// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache of registrations of this process's own memory: io_uring buffers, RDMA memory regions.
#pragma once

#include <pinfold/background.hpp>
#include <pinfold/batch.hpp>
#include <pinfold/cache_base.hpp>
#include <pinfold/detail/local_driver.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/large_lease.hpp>
#include <pinfold/lease.hpp>
#include <pinfold/options.hpp>
#include <pinfold/registrar.hpp>
#include <pinfold/statistics.hpp>

#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pinfold {

/// Options of one request (R27).
struct acquire_options {
  bool persistent = false;  ///< neither evicted nor flushed until `unpersist` or an invalidation
  bool bypass = false;      ///< register for this lease only: not looked up, not kept, outside the budget

  /// The descriptor of the file that is mapped at the memory. A registration of file memory is kept only if the file's
  /// seals stop other processes from truncating it: F_SEAL_SHRINK with F_SEAL_WRITE or F_SEAL_FUTURE_WRITE (R30).
  /// Negative: unknown. The cache checks the descriptor only when it has to register. If the descriptor is not open,
  /// is not a file, or is a memfd other than the mapped one, the request fails with `invalid_argument` and changes
  /// nothing.
  int file = -1;
};

namespace detail {

/// Returns `invalid_argument`, the error of a request to write to const memory.
[[nodiscard]] inline tl::unexpected<error> write_to_const() noexcept {
  return fail(errc::invalid_argument, "write access was requested for a pointer to const");
}

}  // namespace detail

/// The access that a request for a container has by default: to read, and also to write if its elements are not const.
template <std::ranges::contiguous_range B>
inline constexpr access_flags default_access =
    std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<B>>> ? access_flags::local_read
                                                                                : local_access;

/// A cache that registers memory once and reuses the registration, for ranges that nest, overlap, and need different
/// access.
///
/// A request inside a registration that grants the access is a hit (R20). The cache registers any other range as
/// requested, beside the registrations that it overlaps. For local access it rounds the range out to pages. For remote
/// access the range is exact, so that no peer sees a neighbour's bytes (R22–R24).
///
/// **Staleness.** Once memory is unmapped, or its pages are replaced, no acquire may return its registration. The
/// monitor named by `cache_options::monitor` reports that to the cache. Without a monitor the cache keeps nothing:
/// every acquire registers.
///
/// A registrar that identifies memory by itself (GPU memory) needs no monitor: the cache asks it on every hit, and
/// registers memory again that was freed and reallocated. Such a cache has no batches and no chunks, because both
/// join ranges.
///
/// Every member may be called on any thread at any time, except that the destructor and a move must not run at the same
/// time as another member. The cache holds no lock while the registrar works. A moved-from cache returns `closed` and
/// finds nothing.
///
/// **Cancellation.** If a thread is cancelled (pthread_cancel(3), deferred) while it waits in a member, it finishes the
/// call, and the cancellation stays pending. A registrar that is called without a cache does not protect its callers in
/// this way.
template <registrar R>
class cache : public cache_base<R> {
 public:
  using lease = pinfold::lease<R>;  ///< what `acquire` returns

  /// Takes over the registrar. Throws only `std::bad_alloc`, or `std::system_error` when the reaper's thread cannot
  /// start.
  explicit cache(R registrar, cache_options options = {})
      : cache_base<R>(std::move(registrar), with_monitor(std::move(options)), detail::local_driver<R>::table),
        keeps_(detail::keeps(this->inside())) {}

  /// Returns a lease on the `bytes` bytes at `address`, registered with at least the access `need`.
  ///
  /// Errors: `invalid_range`, `invalid_argument` (no access, or a wrong `acquire_options::file`), `too_large` (use
  /// `acquire_chunks`), `unsupported` (access that the registrar cannot grant), `over_budget`, `larger_than_budget`,
  /// `out_of_resources`, `timed_out`, `closed`, and what the registrar's `open` returns.
  [[nodiscard, gnu::always_inline]] result<lease> acquire(void* address, std::size_t bytes,
                                                          access_flags need = local_access,
                                                          acquire_options how = {}) noexcept {
    if constexpr (identifying_registrar<R>) return acquire_identified(address, bytes, need, how);
    return acquire_any(address, bytes, need, how);
  }

  /// As above, for memory that this process does not write through the pointer: the device and peers may read it. Also
  /// returns `invalid_argument` if `need` contains access to write.
  [[nodiscard, gnu::always_inline]] result<lease> acquire(const void* address, std::size_t bytes,
                                                          access_flags need = access_flags::local_read,
                                                          acquire_options how = {}) noexcept {
    if (any_write(need)) [[unlikely]]
      return detail::write_to_const();
    return acquire(const_cast<void*>(address), bytes, need, how);
  }

  /// As above, for the bytes of the elements of a container, an array or a span, which decide whether they are const.
  template <std::ranges::contiguous_range B>
    requires std::ranges::sized_range<B>
  [[nodiscard]] result<lease> acquire(B&& buffer, access_flags need = default_access<B>,
                                      acquire_options how = {}) noexcept {
    return acquire(std::ranges::data(buffer), std::ranges::size(buffer) * sizeof(std::ranges::range_value_t<B>), need,
                   how);
  }

  /// Returns a lease as `acquire` does, but only on memory that is already registered: never opens a registration,
  /// never waits (R48). With an identifying registrar, the cache asks whether the registration is current, and may
  /// close it if it is stale.
  [[nodiscard]] std::optional<lease> find(void* address, std::size_t bytes, access_flags need = local_access) noexcept {
    auto found = find_any(address, bytes, need);
    if constexpr (identifying_registrar<R>) {
      if (found && !is_current(*found, address, bytes)) found.reset();
    }
    return found;
  }

  /// As above, for memory that this process does not write through the pointer, as in `acquire`. Returns no lease if
  /// `need` contains access to write.
  [[nodiscard]] std::optional<lease> find(const void* address, std::size_t bytes,
                                          access_flags need = access_flags::local_read) noexcept {
    if (any_write(need)) return std::nullopt;
    return find(const_cast<void*>(address), bytes, need);
  }

  /// Returns leases on many ranges at once (R26). Merges duplicates and neighbours, and registers the rest on several
  /// threads; if the registrar takes groups, several ranges with one driver call. All or nothing: on an error the
  /// caller holds no lease.
  [[nodiscard]] result<batch_lease<R>> acquire_batch(std::span<const range> ranges, access_flags need = local_access,
                                                     const batch_options& how = {}) noexcept
    requires(!identifying_registrar<R>)
  {
    return detail::or_error("no memory for the batch", "cannot start a thread for the batch",
                            [&] { return acquire_ranges(ranges, need, how); });
  }

  /// Returns leases on the pieces of one range, in order, while later pieces are being registered (R25). The
  /// registrar's largest registration does not limit the range.
  [[nodiscard]] result<chunk_stream<R>> acquire_chunks(void* address, std::size_t bytes,
                                                       access_flags need = local_access,
                                                       chunk_options how = {}) noexcept
    requires(!identifying_registrar<R>)
  {
    return detail::or_error("no memory for the chunks", "cannot start a thread to register chunks",
                            [&] { return acquire_pieces(address, bytes, need, how); });
  }

  /// As above, for memory that this process does not write through the pointer, as in `acquire`.
  [[nodiscard]] result<chunk_stream<R>> acquire_chunks(const void* address, std::size_t bytes,
                                                       access_flags need = access_flags::local_read,
                                                       chunk_options how = {}) noexcept
    requires(!identifying_registrar<R>)
  {
    if (any_write(need)) return detail::write_to_const();
    return acquire_chunks(const_cast<void*>(address), bytes, need, how);
  }

  /// Returns one lease on a range of any size, registered in pieces (R65). All or nothing: on an error the caller holds
  /// no lease, though the cache may keep what it registered. A range that exceeds the whole budget, in bytes or in
  /// pieces, is refused before anything is registered or evicted.
  ///
  /// Errors: those of `acquire`, from the first piece that failed; `invalid_argument` also for pieces of 0 bytes,
  /// `too_large` for more than 4 194 304 pieces.
  [[nodiscard]] result<large_lease<R>> acquire_large(void* address, std::size_t bytes, access_flags need = local_access,
                                                     const large_options& how = {}) noexcept
    requires(!identifying_registrar<R>)
  {
    return detail::or_error("no memory for the pieces", "no memory for the pieces",
                            [&] { return acquire_cut(address, bytes, need, how); });
  }

  /// As above, for memory that this process does not write through the pointer, as in `acquire`.
  [[nodiscard]] result<large_lease<R>> acquire_large(const void* address, std::size_t bytes,
                                                     access_flags need = access_flags::local_read,
                                                     const large_options& how = {}) noexcept
    requires(!identifying_registrar<R>)
  {
    if (any_write(need)) return detail::write_to_const();
    return acquire_large(const_cast<void*>(address), bytes, need, how);
  }

  /// Starts to register a range of any size on threads of the library, in pieces, and returns a ticket for it (R65).
  /// The cache may be moved or destroyed meanwhile.
  ///
  /// Errors, before anything is registered: `invalid_range`, `invalid_argument` (no access, or pieces of 0 bytes),
  /// `unsupported`, `larger_than_budget` and `too_large` as for `acquire_large`, `out_of_resources` (no memory, or no
  /// thread can be started), `closed`. The ticket returns later ones.
  [[nodiscard]] result<background_registration<R>> register_in_background(void* address, std::size_t bytes,
                                                                          access_flags need = local_access,
                                                                          const background_options& how = {}) noexcept
    requires(!identifying_registrar<R>)
  {
    const auto whole = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (!whole) return tl::unexpected(whole.error());
    return register_in_background(std::span(&*whole, 1), need, how);
  }

  /// As above, for memory that this process does not write through the pointer, as in `acquire`.
  [[nodiscard]] result<background_registration<R>> register_in_background(const void* address, std::size_t bytes,
                                                                          access_flags need = access_flags::local_read,
                                                                          const background_options& how = {}) noexcept
    requires(!identifying_registrar<R>)
  {
    if (any_write(need)) return detail::write_to_const();
    return register_in_background(const_cast<void*>(address), bytes, need, how);
  }

  /// As above, for several ranges. Those that overlap are registered as one.
  [[nodiscard]] result<background_registration<R>> register_in_background(std::span<const range> ranges,
                                                                          access_flags need = local_access,
                                                                          const background_options& how = {}) noexcept
    requires(!identifying_registrar<R>)
  {
    return detail::or_error("no memory for the pieces", "no memory for the pieces",
                            [&] { return start_background(ranges, need, how); });
  }

  /// Invalidates memory that is about to be unmapped, or whose pages are about to be replaced: no later acquire returns
  /// a registration that touches it. Leases on these registrations stay valid. Only marks; the closes come later (R36).
  /// Call it **before** the memory goes: as soon as the address is free, another thread can get it.
  void invalidate(const void* address, std::size_t bytes) noexcept {
    if (auto gone = range::of(reinterpret_cast<std::uintptr_t>(address), bytes))
      detail::invalidate(this->inside(), {}, *gone);
  }

  /// Returns the monitors that watch memory, as text for people: `hooks+userfaultfd`. If none does, returns the reason;
  /// the cache then keeps nothing (R33). Allocates.
  [[nodiscard]] std::string monitors() const { return detail::monitors_of(this->inside()); }

  /// Returns whether a lease of this cache is on a registration that touches the memory. Takes the cache's mutexes,
  /// which no thread holds for long.
  [[nodiscard]] bool is_leased(const range& memory) const noexcept { return detail::is_leased(this->inside(), memory); }

  /// Makes registrations that touch the range no longer persistent: the cache keeps or closes them like any other.
  void unpersist(const void* address, std::size_t bytes) noexcept {
    if (auto where = range::of(reinterpret_cast<std::uintptr_t>(address), bytes))
      detail::unpersist(this->inside(), {}, *where);
  }

 private:
  // Throws std::bad_alloc.
  [[nodiscard]] result<batch_lease<R>> acquire_ranges(std::span<const range> ranges, access_flags need,
                                                      const batch_options& how)
    requires(!identifying_registrar<R>)
  {
    if (auto open = detail::usable(this->inside()); !open) return tl::unexpected(open.error());
    if (ranges.size() > UINT32_MAX) return fail(errc::too_large, "a batch has fewer than 2^32 ranges");
    for (const range& one : ranges)
      if (one.empty()) return fail(errc::invalid_range, "a range of the batch is empty or wraps around");
    if (ranges.empty()) return batch_lease<R>();
    auto like = asked(reinterpret_cast<const void*>(ranges[0].begin), ranges[0].size(), need, {});
    if (!like) return tl::unexpected(like.error());
    auto plan = detail::merge_ranges(ranges, limits_for(need));
    std::vector<lease> leases;
    leases.reserve(plan.merged.size());  // before any pin: nothing may fail between a pin and its lease
    auto granted = detail::acquire_all(this->inside(), *like, plan.merged, together, how.workers, how.progress);
    if (!granted) return tl::unexpected(granted.error());
    for (const auto& one : *granted) leases.push_back(lease(one));
    return batch_lease<R>(std::move(leases), std::move(plan.member));
  }

  // Throws std::bad_alloc, and std::system_error when no thread can be started.
  [[nodiscard]] result<chunk_stream<R>> acquire_pieces(const void* address, std::size_t bytes, access_flags need,
                                                       const chunk_options& how)
    requires(!identifying_registrar<R>)
  {
    if (auto open = detail::usable(this->inside()); !open) return tl::unexpected(open.error());
    auto whole = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (!whole) return tl::unexpected(whole.error());
    const auto limits = limits_for(need);
    if (how.chunk_bytes == 0 || limits.max_bytes == 0)
      return fail(errc::invalid_argument, "a chunk needs at least one byte");
    if (auto right = detail::check_pieces(*whole, how.chunk_bytes, limits); !right)
      return tl::unexpected(right.error());
    auto ranges = detail::cut(*whole, how.chunk_bytes, limits);
    std::vector<detail::request> wanted;
    wanted.reserve(ranges.size());
    for (const range& one : ranges) {
      auto what = asked(reinterpret_cast<const void*>(one.begin), one.size(), need, {});
      if (!what) return tl::unexpected(what.error());
      wanted.push_back(*what);
    }
    return chunk_stream<R>(std::move(ranges),
                           detail::pipeline(this->inside(), std::move(wanted), how.depth, how.workers));
  }

  // Throws std::bad_alloc.
  [[nodiscard]] result<large_lease<R>> acquire_cut(const void* address, std::size_t bytes, access_flags need,
                                                   const large_options& how)
    requires(!identifying_registrar<R>)
  {
    const auto whole = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (!whole) return tl::unexpected(whole.error());
    auto plan = plan_for(std::span(&*whole, 1), need, how.piece_bytes, background_order::as_given);
    if (!plan) return tl::unexpected(plan.error());
    plan->like.file = how.file;
    plan->workers = how.workers;
    plan->progress = how.progress;
    auto parts = detail::acquire_pieces(this->inside(), *std::move(plan));
    if (!parts) return tl::unexpected(parts.error());
    return large_lease<R>(*std::move(parts));
  }

  // Throws std::bad_alloc.
  [[nodiscard]] result<background_registration<R>> start_background(std::span<const range> ranges, access_flags need,
                                                                    const background_options& how)
    requires(!identifying_registrar<R>)
  {
    auto plan = plan_for(ranges, need, how.piece_bytes, how.order);
    if (!plan) return tl::unexpected(plan.error());
    plan->workers = how.workers;
    plan->progress = how.progress;
    plan->pace = {how.bytes_per_second, how.prefault, how.first_piece_bytes};
    auto started = detail::background_work::start(this->inside(), *std::move(plan));
    if (!started) return tl::unexpected(started.error());
    return background_registration<R>(*std::move(started));
  }

  // Throws std::bad_alloc.
  [[nodiscard]] result<detail::background_plan> plan_for(std::span<const range> ranges, access_flags need,
                                                         std::size_t piece_bytes, background_order order)
    requires(!identifying_registrar<R>)
  {
    if (auto open = detail::usable(this->inside()); !open) return tl::unexpected(open.error());
    if (ranges.empty()) return fail(errc::invalid_range, "there is no range");
    for (const range& one : ranges)
      if (one.empty()) return fail(errc::invalid_range, "a range is empty or wraps around");
    auto like = asked(reinterpret_cast<const void*>(ranges[0].begin), ranges[0].size(), need, {});
    if (!like) return tl::unexpected(like.error());
    if (!contains_all(this->backend().limits().supported, need))
      return fail(errc::unsupported, "the registrar cannot grant this access");
    auto plan = detail::plan_pieces(this->inside(), ranges, piece_bytes, limits_for(need), order);
    if (plan) plan->like = *like;
    return plan;
  }

  static bool may_hit(std::uintptr_t begin, std::size_t bytes, access_flags need, acquire_options how) noexcept {
    return begin < begin + bytes && need != access_flags::none && !how.persistent && !how.bypass;
  }

  [[nodiscard, gnu::always_inline]] result<lease> acquire_any(const void* address, std::size_t bytes, access_flags need,
                                                              acquire_options how) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (may_hit(begin, bytes, need, how)) [[likely]] {
      if (const auto held = detail::hinted_hit(this->hits(), begin, begin + bytes, need); held != 0) [[likely]]
        return lease({held, const_cast<void*>(address)});
      if (const auto hit = detail::look_up(this->inside(), begin, begin + bytes, need); hit.held != 0)
        return lease(hit);
    }
    // Build the lease here, so that only this function needs the address of the caller's lease: on a hit the lease
    // stays in registers.
    const auto granted = acquire_slowly(address, bytes, need, how);
    if (!granted) return tl::unexpected(granted.error());
    return lease(*granted);
  }

  // A bound, because another thread may keep freeing and reallocating the memory meanwhile.
  static constexpr int most_identities = 16;

  [[nodiscard]] result<lease> acquire_identified(const void* address, std::size_t bytes, access_flags need,
                                                 acquire_options how) noexcept
    requires identifying_registrar<R>
  {
    for (int attempt = 0; attempt < most_identities; ++attempt) {
      auto got = acquire_any(address, bytes, need, how);
      if (!got || is_current(*got, address, bytes)) return got;
    }
    return fail(errc::invalid_range, "the memory was freed and allocated again during every attempt");
  }

  // Returns whether the lease is on the allocation that is at the address now; if it is not, invalidates the range.
  [[nodiscard]] bool is_current(const lease& held, const void* address, std::size_t bytes) noexcept
    requires identifying_registrar<R>
  {
    const auto wanted = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (wanted && this->backend().still_is(held.registration(), *wanted)) return true;
    invalidate(address, bytes);
    return false;
  }

  [[nodiscard]] std::optional<lease> find_any(const void* address, std::size_t bytes, access_flags need) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (may_hit(begin, bytes, need, {})) [[likely]] {
      const auto held = detail::hinted_hit<detail::asked_by::find>(this->hits(), begin, begin + bytes, need);
      if (held != 0) [[likely]]
        return lease({held, const_cast<void*>(address)});
    }
    auto what = asked(address, bytes, need, {});
    if (!what || what->unshared) return std::nullopt;
    auto granted = detail::find(this->inside(), *what);
    if (granted.held == 0) return std::nullopt;
    return lease(granted);
  }

  // Monitors see host memory only, so an identifying registrar uses none.
  static cache_options with_monitor(cache_options options) {
    if constexpr (identifying_registrar<R>) options.monitor = monitor_choice::manual;
    return options;
  }

  [[nodiscard, gnu::noinline]] result<detail::grant> acquire_slowly(const void* address, std::size_t bytes,
                                                                    access_flags need, acquire_options how) noexcept {
    if (const auto valid = checked(address, bytes, need); !valid) return tl::unexpected(valid.error());
    return detail::acquire(this->inside(), request_for(address, bytes, need, how));
  }

  [[nodiscard]] result<detail::request> asked(const void* address, std::size_t bytes, access_flags need,
                                              acquire_options how) const noexcept {
    if (const auto valid = checked(address, bytes, need); !valid) return tl::unexpected(valid.error());
    return request_for(address, bytes, need, how);
  }

  [[nodiscard]] static result<void> checked(const void* address, std::size_t bytes, access_flags need) noexcept {
    const auto wanted = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (!wanted) return tl::unexpected(wanted.error());
    if (need == access_flags::none) return fail(errc::invalid_argument, "a registration needs at least one right");
    return {};
  }

  [[nodiscard]] detail::request request_for(const void* address, std::size_t bytes, access_flags need,
                                            acquire_options how) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    return {.wanted = {begin, begin + bytes},
            .need = need,
            .persistent = how.persistent && keeps_,
            .unshared = how.bypass || !keeps_,
            .unbudgeted = how.bypass,
            .file = how.file};
  }

  // Requests of a batch that one worker takes at a time.
  static constexpr std::size_t together = group_registrar<R> ? detail::most_in_group : 1;

  // Ranges with remote access are registered exactly, others in whole pages.
  [[nodiscard]] detail::piece_limits limits_for(access_flags need) noexcept {
    const registrar_limits limits = this->backend().limits();
    return {limits.max_bytes, any_remote(need) ? 1 : limits.granularity};
  }

  bool keeps_;  // whether a monitor reports memory that goes, so that the cache may keep registrations
};

}  // namespace pinfold
