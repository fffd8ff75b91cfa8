// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that is registered before it is allocated: slabs are registered once, so that an allocation has its
/// registration already (R50). Usable wherever a `std::pmr::memory_resource` is.
#pragma once

#include <pinfold/cache.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/detail/slabs.hpp>
#include <pinfold/pools/options.hpp>
#include <pinfold/pools/pool_lease.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace pinfold {

/// A pool of this process's own memory, registered through a cache. Memory of another process is not its business: an
/// importer is no `registrar`, so that a pool over one does not compile (R52).
///
/// **Threads.** `registered_pool` and its leases are for one thread at a time. `synchronized_registered_pool` is for
/// any number; its one lock is short, and never held while memory is mapped or registered.
///
/// **Staleness.** The pool owns its memory, holds a lease on each slab's registration, and gives a slab up in the right
/// order. So it works with every choice of monitor, and a registration of its memory is never stale unless somebody
/// else unmaps or discards pool memory; `pool_options::sealed` makes even that impossible.
///
/// **End.** A slab with allocations out is never unmapped. If the pool ends before they are returned, such slabs stay
/// mapped and registered, for good, and `pool_options::abandoned` is told: what still points there is safe, though it
/// cannot be deallocated any more. Slabs that only a `pool_lease` holds go with the last lease.
///
/// Freed memory is not cleared, and neither is allocated memory, unless `pool_options::clear`.
template <registrar R, bool Synchronized>
class basic_registered_pool : public std::pmr::memory_resource {
 public:
  using registration_type = typename R::registration_type;

  /// Memory and what to tell the device about it.
  struct registered_memory {
    void* data;
    registration_type registration;
  };

  /// Registers through `with`, which must outlive the pool and its leases. Throws only `std::bad_alloc`.
  explicit basic_registered_pool(cache<R>& with, pool_options options = {})
      : basic_registered_pool(std::shared_ptr<cache<R>>(std::shared_ptr<void>(), &with), std::move(options)) {}

  /// The same, with a share in the cache. Requires that it is not null.
  explicit basic_registered_pool(std::shared_ptr<cache<R>> with, pool_options options = {})
      : core_(detail::make_slab_pool({std::move(with), acquire, give_back, leased}, std::move(options), Synchronized)) {
  }

  basic_registered_pool(const basic_registered_pool&) = delete;
  basic_registered_pool& operator=(const basic_registered_pool&) = delete;

  /// As `allocate`, without exceptions, and with the registration.
  ///
  /// Errors: `invalid_argument` (an alignment that is no power of 2, or above `max_alignment`), `larger_than_budget`
  /// and `over_budget` (`max_bytes`, or the cache's), `out_of_resources` (no memory, or the driver has no room),
  /// `unsupported` (the kind of pages, or sealing, cannot be had here), and what else the cache's `acquire` returns.
  [[nodiscard]] result<registered_memory> allocate_registered(
      std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    auto got = detail::allocate(core(), bytes, alignment);
    if (!got) return tl::unexpected(got.error());
    return registered_memory{got->data, typed(*got->object)};
  }

  /// As `allocate_registered`, without the registration.
  [[nodiscard]] result<void*> try_allocate(std::size_t bytes,
                                           std::size_t alignment = alignof(std::max_align_t)) noexcept {
    return detail::allocate(core(), bytes, alignment).map([](const detail::slab_grant& got) { return got.data; });
  }

  /// As `deallocate`, but says what is wrong: `invalid_argument` when the pool has no such allocation of that size.
  result<void> try_deallocate(void* data, std::size_t bytes) noexcept {
    return detail::deallocate(core(), data, bytes);
  }

  /// Makes an allocation of `bytes` bytes `wanted` bytes long, longer or shorter, without moving it. False, and nothing
  /// changed, when there is no room behind it. From then on its size is `wanted`.
  [[nodiscard]] bool try_expand(void* data, std::size_t bytes, std::size_t wanted) noexcept {
    return detail::resize(core(), data, bytes, wanted);
  }

  /// What memory anywhere inside the pool is registered as: no look-up in the cache. `invalid_range` for other memory.
  [[nodiscard]] result<registration_type> registration(const void* data) const noexcept {
    const auto object = detail::registration_of(core(), data);
    if (!object) return fail(errc::invalid_range, "the memory is not of this pool");
    return typed(*object);
  }

  /// A lease on the slab around `data`, for I/O that may outlive the allocation or the pool. `invalid_range` for memory
  /// that is not of this pool.
  [[nodiscard]] result<pool_lease<R>> lease(const void* data) noexcept {
    auto held = detail::hold_slab(*core_, data);
    if (!held) return tl::unexpected(held.error());
    return pool_lease<R>(std::move(*held));
  }

  /// Unmaps the slabs that nobody uses; sealed ones go back to the arena. How many bytes that was. A slab on whose
  /// memory somebody has a lease of the cache is unregistered but stays mapped, until a later `trim` finds it free.
  /// A close that the driver refuses is kept by the cache and told to its sink.
  std::size_t trim() noexcept { return detail::trim(core()); }

  [[nodiscard]] pool_usage usage() const noexcept { return detail::usage_of(core()); }

  /// Every slab, by address. Allocates.
  [[nodiscard]] std::vector<slab_info> slabs() const { return detail::slabs_of(core()); }

 private:
  [[nodiscard]] detail::slab_pool& core() const noexcept { return **core_; }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    auto got = try_allocate(bytes, alignment);
    if (!got) detail::throw_bad_alloc();
    return *got;
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t) override {
    static_cast<void>(try_deallocate(data, bytes));  // what is wrong is counted in `pool_usage::misuses`
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  static registration_type typed(const detail::registration& object) noexcept {
    registration_type copy;
    std::memcpy(&copy, object.bytes.data(), sizeof copy);
    return copy;
  }

  static result<detail::slab_registration> acquire(void* with, const range& memory, rights access) noexcept {
    const auto* address = reinterpret_cast<const void*>(memory.begin);
    auto& own = *static_cast<cache<R>*>(with);
    own.invalidate(address, memory.size());  // whatever it knows about these addresses was before they were mapped
    auto got = own.acquire(address, memory.size(), access);
    if (!got) return tl::unexpected(got.error());
    detail::slab_registration made{};
    const registration_type plain = got->handle();
    std::memcpy(made.object.bytes.data(), &plain, sizeof plain);
    made.held = detail::hold(std::move(*got));
    return made;
  }

  // Released before it is invalidated, so that our own lease is not reported as one that lost its memory.
  static void give_back(void* with, const range& memory, detail::hold& held) noexcept {
    auto& own = *static_cast<cache<R>*>(with);
    static_cast<void>(held.release());  // a failure is kept by the cache and told to its sink; so below
    own.invalidate(reinterpret_cast<const void*>(memory.begin), memory.size());
    static_cast<void>(own.progress());
  }

  static bool leased(void* with, std::span<const range> memory, std::span<bool> held) noexcept {
    const auto looked = detail::or_error("", "", [&]() -> result<void> {
      const auto entries = static_cast<cache<R>*>(with)->dump();
      std::ranges::transform(memory, held.begin(), [&](const range& one) {
        return std::ranges::any_of(entries, [&](const auto& e) { return e.leases > 0 && e.covered.overlaps(one); });
      });
      return {};
    });
    return looked.has_value();
  }

  detail::slab_pool_handle core_;
};

/// For one thread at a time.
template <registrar R>
class registered_pool : public basic_registered_pool<R, false> {
 public:
  using basic_registered_pool<R, false>::basic_registered_pool;
};
template <registrar R>
registered_pool(cache<R>&) -> registered_pool<R>;
template <registrar R>
registered_pool(cache<R>&, pool_options) -> registered_pool<R>;
template <registrar R>
registered_pool(std::shared_ptr<cache<R>>) -> registered_pool<R>;
template <registrar R>
registered_pool(std::shared_ptr<cache<R>>, pool_options) -> registered_pool<R>;

/// For any number of threads.
template <registrar R>
class synchronized_registered_pool : public basic_registered_pool<R, true> {
 public:
  using basic_registered_pool<R, true>::basic_registered_pool;
};
template <registrar R>
synchronized_registered_pool(cache<R>&) -> synchronized_registered_pool<R>;
template <registrar R>
synchronized_registered_pool(cache<R>&, pool_options) -> synchronized_registered_pool<R>;
template <registrar R>
synchronized_registered_pool(std::shared_ptr<cache<R>>) -> synchronized_registered_pool<R>;
template <registrar R>
synchronized_registered_pool(std::shared_ptr<cache<R>>, pool_options) -> synchronized_registered_pool<R>;

}  // namespace pinfold
