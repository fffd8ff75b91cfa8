// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A pool of memory that is registered before it is allocated: the pool registers each slab once, so that every
/// allocation is already registered (R50). Usable as a `std::pmr::memory_resource`.
#pragma once

#include <pinfold/cache.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/detail/slabs.hpp>
#include <pinfold/pools/options.hpp>
#include <pinfold/pools/pool_lease.hpp>

#include <cstring>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace pinfold {

/// A pool of this process's own memory, registered through a cache. It cannot hold memory of another process: an
/// importer is not a `registrar`, so a pool over one does not compile (R52).
///
/// **Threads.** `registered_pool` and its leases are for one thread at a time. `synchronized_registered_pool` is for
/// any number of threads. It holds its one lock briefly, and never while it maps or registers memory.
///
/// **Staleness.** The pool owns its memory, holds a lease on each slab's registration, and releases that lease before
/// it unmaps the slab. So it works with every choice of monitor. A registration of pool memory turns stale only if
/// other code unmaps or discards the memory; `pool_options::sealed` makes even that impossible.
///
/// **End.** The pool never unmaps a slab that has allocations. If the pool ends before they are returned, such slabs
/// stay mapped and registered for good, and the pool calls `pool_options::abandoned`. Pointers into them stay valid,
/// but can no longer be deallocated. Slabs that only a `pool_lease` holds are unmapped with the last lease.
///
/// **Children.** A child of fork(2) has copies of unsealed memory, and no registration of it: there the pool allocates
/// nothing and returns no registration (`closed`), and `deallocate`, `trim` and the destructor do nothing.
///
/// The pool clears neither freed nor allocated memory, unless `pool_options::clear` is set.
template <registrar R, bool Synchronized>
class basic_registered_pool : public std::pmr::memory_resource {
 public:
  using registration_type = typename R::registration_type;  ///< what the driver makes

  /// Allocated memory and its registration, to be passed to the device.
  struct registered_memory {
    void* data;                      ///< the memory
    registration_type registration;  ///< of the slab around it
  };

  /// Makes a pool that registers through `with`, which must outlive the pool and its leases. Throws only
  /// `std::bad_alloc`.
  explicit basic_registered_pool(cache<R>& with, pool_options options = {})
      : basic_registered_pool(std::shared_ptr<cache<R>>(std::shared_ptr<void>(), &with), std::move(options)) {}

  /// As above, with shared ownership of the cache. Requires that the pointer is not null.
  explicit basic_registered_pool(std::shared_ptr<cache<R>> with, pool_options options = {})
      : core_(detail::make_slab_pool({std::move(with), acquire, give_back, is_leased}, std::move(options),
                                     Synchronized)) {}

  basic_registered_pool(const basic_registered_pool&) = delete;
  basic_registered_pool& operator=(const basic_registered_pool&) = delete;

  /// Allocates as `allocate` does, without exceptions, and returns the registration too.
  ///
  /// Errors: `invalid_argument` (an alignment that is no power of 2, or above `max_alignment`), `larger_than_budget`
  /// and `over_budget` (`max_bytes`, or the cache's), `out_of_resources` (no memory, or the driver has no room),
  /// `unsupported` (the kind of pages, or sealing, is unavailable here), and what else the cache's `acquire` returns.
  [[nodiscard]] result<registered_memory> allocate_registered(
      std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    auto got = detail::allocate(core(), bytes, alignment);
    if (!got) return tl::unexpected(got.error());
    return registered_memory{got->data, typed(*got->object)};
  }

  /// Allocates as `allocate_registered` does, and returns the memory alone.
  [[nodiscard]] result<void*> try_allocate(std::size_t bytes,
                                           std::size_t alignment = alignof(std::max_align_t)) noexcept {
    return detail::allocate(core(), bytes, alignment).map([](const detail::slab_grant& got) { return got.data; });
  }

  /// Deallocates as `deallocate` does, but returns an error: `invalid_argument` if the pool has no such allocation of
  /// that size.
  result<void> try_deallocate(void* data, std::size_t bytes) noexcept {
    return detail::deallocate(core(), data, bytes);
  }

  /// Changes the size of an allocation from `bytes` to `wanted` bytes, up or down, without moving it. Returns false,
  /// and changes nothing, if there is no room behind it.
  [[nodiscard]] bool try_expand(void* data, std::size_t bytes, std::size_t wanted) noexcept {
    return detail::resize(core(), data, bytes, wanted);
  }

  /// Returns the registration of memory anywhere inside the pool, without a look-up in the cache. `invalid_range` for
  /// other memory.
  [[nodiscard]] result<registration_type> registration(const void* data) const noexcept {
    return detail::registration_of(core(), data).map(typed);
  }

  /// Returns a lease on the slab around `data`, for I/O that may outlive the allocation or the pool. `invalid_range`
  /// for other memory.
  [[nodiscard]] result<pool_lease<R>> lease(const void* data) noexcept {
    auto held = detail::hold_slab(*core_, data);
    if (!held) return tl::unexpected(held.error());
    return pool_lease<R>(std::move(*held));
  }

  /// Unmaps unused slabs, returns sealed slabs to the arena, and returns the number of their bytes. If a lease of the
  /// cache touches a slab, the slab is unregistered but stays mapped until a later `trim` finds it free. If the driver
  /// refuses a close, the cache keeps the registration and tells its sink.
  std::size_t trim() noexcept { return detail::trim(core()); }

  /// Returns the current usage.
  [[nodiscard]] pool_usage usage() const noexcept { return detail::usage_of(core()); }

  /// Returns every slab, by address. Allocates.
  [[nodiscard]] std::vector<slab_info> slabs() const { return detail::slabs_of(core()); }

 private:
  [[nodiscard]] detail::slab_pool& core() const noexcept { return **core_; }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    auto got = try_allocate(bytes, alignment);
    if (!got) detail::throw_bad_alloc();
    return *got;
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t) override {
    static_cast<void>(try_deallocate(data, bytes));  // the pool counts errors in `pool_usage::misuses`
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  static registration_type typed(const detail::registration& object) noexcept {
    registration_type copy;
    std::memcpy(&copy, object.bytes.data(), sizeof copy);
    return copy;
  }

  static result<detail::slab_registration> acquire(void* with, const range& memory, access_flags access) noexcept {
    auto* const address = reinterpret_cast<void*>(memory.begin);
    auto& own = *static_cast<cache<R>*>(with);
    own.invalidate(address, memory.size());  // entries at these addresses are of earlier memory
    auto got = own.acquire(address, memory.size(), access);
    if (!got) return tl::unexpected(got.error());
    detail::slab_registration made{};
    const registration_type plain = got->registration();
    std::memcpy(made.object.bytes.data(), &plain, sizeof plain);
    made.held = lease_base(std::move(*got));
    return made;
  }

  // Releases before it invalidates, so that the cache does not report the pool's own lease as invalidated while leased.
  static void give_back(void* with, const range& memory, lease_base& held) noexcept {
    auto& own = *static_cast<cache<R>*>(with);
    static_cast<void>(held.release());  // the cache keeps an entry whose close failed, and tells its sink
    own.invalidate(reinterpret_cast<const void*>(memory.begin), memory.size());
    static_cast<void>(own.progress());
  }

  static bool is_leased(void* with, const range& memory) noexcept {
    return static_cast<cache<R>*>(with)->is_leased(memory);
  }

  detail::slab_pool_handle core_;
};

/// A pool for one thread at a time.
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

/// A pool for any number of threads.
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
