// SPDX-License-Identifier: BSD-3-Clause
// Leases: two words, so that they are returned in registers.
#include "c/cache.hpp"
#include "c/request.hpp"
#include "c/structure.hpp"
#include "index/record_page.hpp"

#include <pinfold/detail/hit.hpp>

#include <atomic>
#include <cstddef>
#include <cstring>

namespace pinfold::c {

namespace {

constexpr std::uint32_t acquire_flags = PINFOLD_PERSISTENT | PINFOLD_BYPASS | PINFOLD_FILE;

// A bound: another thread may keep freeing and reallocating the memory meanwhile.
constexpr int most_identities = 16;

result<options_of_request> read_options(const pinfold_acquire_options* given) noexcept {
  if (given == nullptr) return options_of_request{};
  pinfold_acquire_options known{};
  if (!read(given, known)) return fail(errc::invalid_argument, "the options have a wrong size or unknown members");
  if ((known.flags & ~acquire_flags) != 0) return fail(errc::invalid_argument, "the options have an unknown flag");
  if ((known.flags & PINFOLD_FILE) != 0 && known.file < 0)
    return fail(errc::invalid_argument, "the descriptor of the file is negative");
  return options_of_request{.persistent = (known.flags & PINFOLD_PERSISTENT) != 0,
                            .bypass = (known.flags & PINFOLD_BYPASS) != 0,
                            .file = (known.flags & PINFOLD_FILE) != 0 ? known.file : -1,
                            .argument = known.argument};
}

const void* registration_in(const detail::record* one, bool imported) noexcept {
  return reinterpret_cast<const std::byte*>(one) +
         (imported ? detail::imported_object_offset : detail::local_object_offset);
}
const void* registration_in(const detail::record* one) noexcept {
  return registration_in(one, index::record_page::of(one).imported);
}

// Returns the record that the registration lies in; null if its surroundings do not look like a page of records.
const detail::record* record_around(const void* registration) noexcept {
  if (reinterpret_cast<std::uintptr_t>(registration) < index::record_page::bytes) return nullptr;
  auto& page = index::record_page::of(registration);
  const auto stride = page.stride;
  if (stride == 0 || stride % 32 != 0 || stride > index::largest_stride ||
      page.owner.load(std::memory_order_seq_cst) == nullptr ||
      page.capacity != index::record_page::capacity_for(stride))
    return nullptr;
  const auto number = page.number_of(static_cast<const detail::record*>(registration));
  if (number >= page.made.load(std::memory_order_seq_cst)) return nullptr;
  const auto* found = page.at(number);
  return registration_in(found, page.imported) == registration ? found : nullptr;
}

// Returns the record that the lease pins; null if the lease is empty, or if the library detects that it was released.
const detail::record* record_of(pinfold_lease lease) noexcept {
  return lease.pin == 0 ? nullptr : detail::record_of(lease.pin);
}

result<void> give_back(detail::pin held) noexcept {
  const detail::record* unpinned = detail::unpin(held);
  return unpinned == nullptr ? result<void>{} : detail::finish_release(unpinned);
}

bool is_current(const pinfold_cache& cache, const detail::grant& held, const range& wanted) noexcept {
  if (cache.behind.still_is == nullptr) return true;
  const auto& table = cache.behind.table;
  if (cache.behind.still_is(table.self, registration_in(detail::record_of(held.held)), wanted)) return true;
  detail::invalidate(cache.on(), {}, wanted);
  static_cast<void>(give_back(held.held));  // closes it; if that fails, the entry is quarantined, and the sink notified
  return false;
}

result<detail::grant> acquire(const pinfold_cache& cache, const detail::request& what) noexcept {
  for (int attempt = 0; attempt < most_identities; ++attempt) {
    if (const auto hit = detail::look_up(cache.on(), what); hit.held != 0) {
      if (is_current(cache, hit, what.wanted)) return hit;
      continue;
    }
    auto got = detail::acquire(cache.on(), what);
    if (!got || is_current(cache, *got, what.wanted)) return got;
  }
  return fail(errc::invalid_range, "the memory was freed and allocated again during every attempt");
}

pinfold_lease as_lease(const result<detail::grant>& got) noexcept {
  if (got) return {got->held, got->data};
  refuse(got.error());
  return {};
}

[[gnu::noinline]] pinfold_lease acquire_slowly(pinfold_cache* cache, const void* address, std::size_t bytes,
                                               std::uint32_t access, const pinfold_acquire_options* options) noexcept {
  if (auto right = may_wait(cache, kind::local); !right) return as_lease(tl::unexpected(right.error()));
  const auto how = read_options(options);
  if (!how) return as_lease(tl::unexpected(how.error()));
  const auto what = asked(*cache, address, bytes, access, *how);
  if (!what) return as_lease(tl::unexpected(what.error()));
  return as_lease(acquire(*cache, *what));
}

// Whether the request may hit without the checks that a miss needs.
[[gnu::always_inline]] inline bool may_hit(const pinfold_cache* cache, std::uintptr_t begin, std::size_t bytes,
                                           std::uint32_t access) noexcept {
  return cache != nullptr && cache->hits_at_once.load(std::memory_order_relaxed) && begin < begin + bytes &&
         is_access(access);
}

// A hit by the thread's hint.
[[gnu::always_inline]] inline pinfold_lease hinted(const pinfold_cache* cache, const void* address, std::size_t bytes,
                                                   std::uint32_t access) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (!may_hit(cache, begin, bytes, access)) [[unlikely]]
    return {};
  const auto need = static_cast<access_flags>(access);
  const auto held = detail::hinted_hit(*cache->hits.load(std::memory_order_acquire), begin, begin + bytes, need);
  return {held, const_cast<void*>(address)};
}

[[gnu::noinline]] pinfold_lease acquire_without_hint(pinfold_cache* cache, const void* address, std::size_t bytes,
                                                     std::uint32_t access,
                                                     const pinfold_acquire_options* options) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (may_hit(cache, begin, bytes, access)) {
    const auto hit = detail::look_up(cache->on(), begin, begin + bytes, static_cast<access_flags>(access));
    if (hit.held != 0) return {hit.held, hit.data};
  }
  return acquire_slowly(cache, address, bytes, access, options);
}

// Whether the options hold nothing but the driver's argument.
bool only_argument(const pinfold_acquire_options* options) noexcept {
  return options == nullptr || (options->size == sizeof *options && options->flags == 0);
}

// A handle at an aligned address: the library's importers read its members, and an application's may, too.
class aligned_handle {
 public:
  aligned_handle(const void* handle, std::size_t bytes) noexcept : of_(handle) {
    if (reinterpret_cast<std::uintptr_t>(handle) % alignof(std::uint64_t) == 0 || bytes > sizeof copy_) return;
    std::memcpy(&copy_, handle, bytes);
    of_ = &copy_;
  }
  [[nodiscard]] const void* get() const noexcept { return of_; }

 private:
  struct alignas(std::uint64_t) room {
    std::byte all[max_handle_bytes];
  };

  const void* of_;
  room copy_;  // not initialized
};

result<detail::request> import_request(const pinfold_cache& cache, std::uint64_t peer, const void* handle,
                                       std::size_t handle_bytes, std::uint64_t address, std::size_t bytes) noexcept {
  if (handle == nullptr || handle_bytes != cache.behind.table.token_bytes)
    return fail(errc::invalid_handle, "the handle is null, or of another length than the importer's handles");
  const auto wanted = range::of(address, bytes);
  if (!wanted) return tl::unexpected(wanted.error());
  return detail::request{.peer = {peer}, .wanted = *wanted, .token = handle};
}

// Finding no lease is not a failure.
pinfold_lease found(const pinfold_cache& cache, const detail::request& what) noexcept {
  if (cache.behind.still_is != nullptr && callback::of(&cache))
    return as_lease(fail(errc::in_use_conflict, "called from a callback of the same cache"));
  const auto got = detail::find(cache.on(), what);
  if (got.held == 0 || !is_current(cache, got, what.wanted)) return {};
  return {got.held, got.data};
}

}  // namespace

}  // namespace pinfold::c

extern "C" {

pinfold_lease pinfold_acquire(pinfold_cache* cache, const void* address, size_t bytes, uint32_t access) {
  using namespace pinfold;
  if (const auto hit = c::hinted(cache, address, bytes, access); hit.pin != 0) [[likely]]
    return hit;
  return c::acquire_without_hint(cache, address, bytes, access, nullptr);
}

pinfold_lease pinfold_acquire_with(pinfold_cache* cache, const void* address, size_t bytes, uint32_t access,
                                   const pinfold_acquire_options* options) {
  using namespace pinfold;
  if (!c::only_argument(options)) return c::acquire_slowly(cache, address, bytes, access, options);
  if (const auto hit = c::hinted(cache, address, bytes, access); hit.pin != 0) [[likely]]
    return hit;
  return c::acquire_without_hint(cache, address, bytes, access, options);
}

pinfold_lease pinfold_find(pinfold_cache* cache, const void* address, size_t bytes, uint32_t access) {
  using namespace pinfold;
  if (auto right = c::usable(cache, c::kind::local); !right) return c::as_lease(tl::unexpected(right.error()));
  const auto what = c::asked(*cache, address, bytes, access, {});
  return what ? c::found(*cache, *what) : c::as_lease(tl::unexpected(what.error()));
}

pinfold_lease pinfold_import(pinfold_cache* cache, uint64_t peer, const void* handle, size_t handle_bytes,
                             uint64_t address, size_t bytes) {
  return pinfold_import_with(cache, peer, handle, handle_bytes, address, bytes, nullptr);
}

pinfold_lease pinfold_import_with(pinfold_cache* cache, uint64_t peer, const void* handle, size_t handle_bytes,
                                  uint64_t address, size_t bytes, const pinfold_acquire_options* options) {
  using namespace pinfold;
  if (auto right = c::usable(cache, c::kind::imported); !right) return c::as_lease(tl::unexpected(right.error()));
  const c::aligned_handle aligned(handle, handle_bytes);
  auto what = c::import_request(*cache, peer, aligned.get(), handle_bytes, address, bytes);
  if (!what) return c::as_lease(tl::unexpected(what.error()));
  if (options != nullptr) {
    const auto how = c::read_options(options);
    if (!how) return c::as_lease(tl::unexpected(how.error()));
    if (options->flags != 0) return c::as_lease(fail(errc::invalid_argument, "the options of an import have no flags"));
    what->argument = how->argument;
  }
  if (const auto hit = detail::look_up(cache->on(), *what); hit.held != 0) return {hit.held, hit.data};
  if (auto right = c::may_wait(cache, c::kind::imported); !right) return c::as_lease(tl::unexpected(right.error()));
  return c::as_lease(detail::acquire(cache->on(), *what));
}

pinfold_lease pinfold_find_import(pinfold_cache* cache, uint64_t peer, const void* handle, size_t handle_bytes,
                                  uint64_t address, size_t bytes) {
  using namespace pinfold;
  if (auto right = c::usable(cache, c::kind::imported); !right) return c::as_lease(tl::unexpected(right.error()));
  const c::aligned_handle aligned(handle, handle_bytes);
  const auto what = c::import_request(*cache, peer, aligned.get(), handle_bytes, address, bytes);
  return what ? c::found(*cache, *what) : c::as_lease(tl::unexpected(what.error()));
}

size_t pinfold_handle_bytes(const pinfold_cache* cache) {
  return pinfold::c::usable(cache, pinfold::c::kind::imported) ? cache->behind.table.token_bytes : 0;
}

int pinfold_release(pinfold_lease lease) {
  using namespace pinfold;
  if (lease.pin == 0) return PINFOLD_OK;
  if (c::record_of(lease) == nullptr) [[unlikely]]
    return c::refuse(errc::invalid_argument, "the lease was released before");
  const detail::record* unpinned = detail::unpin(lease.pin);
  return unpinned == nullptr ? PINFOLD_OK : c::as_code(detail::finish_release(unpinned));
}

int pinfold_is_stale(pinfold_lease lease) {
  const auto* one = pinfold::c::record_of(lease);
  return one != nullptr && one->is(pinfold::detail::record::stale) ? 1 : 0;
}

int pinfold_is_closed(pinfold_lease lease) {
  const auto* one = pinfold::c::record_of(lease);
  return one == nullptr || one->is(pinfold::detail::record::revoked) ? 1 : 0;
}

pinfold_lease pinfold_share(pinfold_lease lease) {
  using namespace pinfold;
  if (c::record_of(lease) != nullptr) return {detail::pin_again(lease.pin), lease.data};
  return c::as_lease(fail(errc::invalid_argument, "the lease is empty, or was released before"));
}

int pinfold_covered(pinfold_lease lease, uint64_t* base, uint64_t* bytes) {
  using namespace pinfold;
  const auto* one = c::record_of(lease);
  if (one == nullptr || base == nullptr || bytes == nullptr)
    return c::refuse(errc::invalid_argument, "the lease is empty, or there is no place for the answer");
  const range covered = one->covered();
  *base = covered.begin;
  *bytes = covered.size();
  return PINFOLD_OK;
}

const void* pinfold_registration_of(pinfold_lease lease) {
  using namespace pinfold;
  if (const auto* one = c::record_of(lease); one != nullptr) return c::registration_in(one);
  c::refuse(errc::invalid_argument, "the lease is empty, or was released before");
  return nullptr;
}

const void* pinfold_detach(pinfold_lease lease) {
  using namespace pinfold;
  const auto* one = c::record_of(lease);
  const void* registration = pinfold_registration_of(lease);
  if (registration == nullptr || (lease.pin & detail::in_cell) == 0) return registration;
  auto& cell = *reinterpret_cast<detail::pin_cell*>(lease.pin - detail::in_cell);
  auto* mine = detail::ledger::if_there();
  if (mine != nullptr && mine->move_to_slot(cell, one)) [[likely]]
    return registration;
  static_cast<void>(detail::pin_again(lease.pin));
  static_cast<void>(c::give_back(lease.pin));  // never the last pin, so it closes nothing
  return registration;
}

int pinfold_release_registration(const void* registration) {
  using namespace pinfold;
  const detail::record* one = c::record_around(registration);
  if (one == nullptr) return c::refuse(errc::invalid_argument, "this is no registration of a cache");
  return c::as_code(c::give_back(reinterpret_cast<detail::pin>(one)));
}

}  // extern "C"
