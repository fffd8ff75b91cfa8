// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface of a back end that registers this process's own memory for a `cache`. `docs/use/registrars.md` is the
/// porting page. A new registrar has to pass the suite in `tests/conformance`.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/limits.hpp>
#include <pinfold/range.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace pinfold {

/// Largest `registration_type` that an entry can hold, in bytes. An entry allocates only the size that its registrar
/// needs.
inline constexpr std::size_t max_registration_bytes = 64;

/// Limits of a registrar. Constant while the registrar lives.
struct registrar_limits {
  /// Alignment in bytes, a power of 2: the cache rounds local registrations out to it. At most the system's page size,
  /// because memory beyond the requested pages may be going away at this moment.
  std::size_t granularity = 1;
  std::size_t max_bytes = unlimited;      ///< largest single registration
  access_flags supported = local_access;  ///< access that it can grant
};

/// Returns the error that every `open` returns without a driver call: `invalid_range` (empty, or end before begin),
/// `invalid_argument` (no access), `unsupported` (access that the registrar cannot grant), `too_large`.
[[nodiscard]] constexpr result<void> check_request(const registrar_limits& limits, const range& memory,
                                                   access_flags access) noexcept {
  if (memory.empty()) return fail(errc::invalid_range, "the range is empty or wraps around");
  if (access == access_flags::none) return fail(errc::invalid_argument, "a registration needs at least one right");
  if (!contains_all(limits.supported, access)) return fail(errc::unsupported, "the registrar cannot grant this access");
  if (memory.size() > limits.max_bytes)
    return fail(errc::too_large, "the range exceeds the registrar's largest registration");
  return {};
}

/// A back end that makes memory of this process usable by a device, and undoes it.
///
/// - `open` registers exactly the given range. `out_of_resources` means that closing another registration could help;
///   any other error but `already_mapped` is final. A failed open leaves nothing behind.
/// - `open` itself refuses all that `check_request` refuses: it may be called without a cache.
/// - `close` either closes the registration or changes nothing.
///
/// A moved-from registrar may refuse every call with `closed`; it must not crash.
///
/// The cache calls `open` and `close` on many threads at once, and holds no lock meanwhile. It may register the same
/// memory several times. If the driver refuses ranges that overlap, `open` returns `already_mapped`, and the cache
/// closes the idle entries in the way.
template <class R>
concept registrar = std::move_constructible<R> && std::is_trivially_copyable_v<typename R::registration_type> &&
                    std::default_initializable<typename R::registration_type> &&
                    (sizeof(typename R::registration_type) <= max_registration_bytes) &&
                    requires(R& registrar, const R& constant, range memory, access_flags access,
                             const typename R::registration_type& registration) {
                      { R::name } -> std::convertible_to<const char*>;
                      { constant.limits() } noexcept -> std::same_as<registrar_limits>;
                      {
                        registrar.open(memory, access)
                      } noexcept -> std::same_as<result<typename R::registration_type>>;
                      { registrar.close(registration) } noexcept -> std::same_as<result<void>>;
                    };

/// Whether a call of the registrar may be a cancellation point (pthreads(7)). A registrar without cancellation points
/// declares `static constexpr bool cancellation_points = false`. If its granularity is also 1, and no monitor has to
/// watch the memory, the cache need not disable cancellation, which saves about 10 ns for each registration. A class
/// that derives from such a registrar and may wait in `open` has to declare `true`.
template <class R>
inline constexpr bool has_cancellation_points = [] {
  if constexpr (requires { R::cancellation_points; }) {
    return static_cast<bool>(R::cancellation_points);
  } else {
    return true;
  }
}();

/// A registrar whose driver may serve several caches with one registration. The cache calls `invalidated` when the
/// memory of an open registration is gone: no later `open` may return that registration of the driver. The call comes
/// before any later `open` for memory there, with a lock held: it has to be quick, and must not call the cache.
template <class R>
concept informed_registrar = registrar<R> && requires(R& registrar, const typename R::registration_type& registration) {
  { registrar.invalidated(registration) } noexcept -> std::same_as<void>;
};

/// A registrar with registrations that the application may end at any time. The cache keeps a registration for which
/// `may_keep` is false only for its lease, and serves no other request with it.
template <class R>
concept borrowing_registrar =
    registrar<R> && requires(const R& constant, const typename R::registration_type& registration) {
      { constant.may_keep(registration) } noexcept -> std::same_as<bool>;
    };

/// Whether the driver refuses memory that any cache of this process has registered. A registrar of such a driver
/// declares `static constexpr bool exclusive_in_process = true`: if its `open` returns `already_mapped`, and its cache
/// has no idle registration in the way, the cache makes the process's other caches of registrars with the same `name`
/// close their idle registrations there.
template <class R>
inline constexpr bool is_exclusive_in_process = [] {
  if constexpr (requires { R::exclusive_in_process; }) {
    return static_cast<bool>(R::exclusive_in_process);
  } else {
    return false;
  }
}();

/// A registrar that can register many ranges with fewer calls of its driver. Each range has a result of its own.
template <class R>
concept group_registrar = registrar<R> && requires(R& registrar, std::span<const range> memory, access_flags access,
                                                   std::span<result<typename R::registration_type>> made) {
  { registrar.open_many(memory, access, made) } noexcept -> std::same_as<void>;
};

/// A registrar of memory that no monitor sees, such as GPU memory. `still_is` returns whether the address still holds
/// the allocation that was registered, for example by its buffer id. The cache calls it on every hit, while it has the
/// entry pinned.
template <class R>
concept identifying_registrar =
    registrar<R> && requires(const R& constant, const typename R::registration_type& registration, range memory) {
      { constant.still_is(registration, memory) } noexcept -> std::same_as<bool>;
    };

}  // namespace pinfold
