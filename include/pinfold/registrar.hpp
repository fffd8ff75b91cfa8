// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a back end must offer so that `cache` can cache registrations of this process's own memory.
/// `docs/registrars.md` is the porting page, and the suite in `tests/conformance` is what a new registrar has to pass.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/rights.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace pinfold {

/// Largest `registration_type` that an entry can hold, in bytes.
/// Entries take as much of it as the registrar at hand needs.
inline constexpr std::size_t max_registration_bytes = 64;

/// What a registrar can do. Constant while it lives.
struct registrar_limits {
  /// Bytes, a power of 2: what a local registration is rounded out to. At most a page of the system: memory beyond the
  /// pages that were asked for may be going away at this moment.
  std::size_t granularity = 1;
  std::size_t max_bytes = SIZE_MAX;  ///< largest single registration
  rights supported = local_access;   ///< rights that it can give
};

/// What every `open` refuses without asking its driver: `invalid_range` (nothing, or end before begin),
/// `invalid_argument` (no rights), `unsupported` (rights that it cannot give), `too_large`.
[[nodiscard]] constexpr result<void> check_request(const registrar_limits& limits, const range& memory,
                                                   rights access) noexcept {
  if (memory.empty()) return fail(errc::invalid_range, "the range is empty or wraps around");
  if (access == rights::none) return fail(errc::invalid_argument, "a registration without rights is of no use");
  if (!includes(limits.supported, access)) return fail(errc::unsupported, "the registrar cannot give these rights");
  if (memory.size() > limits.max_bytes) return fail(errc::too_large, "more than the registrar takes in one piece");
  return {};
}

/// A registrar makes memory of this process usable by a device, and undoes it.
///
/// - `open` registers exactly the range it is given. `out_of_resources` means that closing another registration could
///   help; any other error is final. A failed open leaves nothing behind.
/// - `open` refuses what `check_request` does, whether a cache asks or not.
/// - `close` either closes or leaves all as it was.
///
/// A registrar that was moved from may refuse everything, with `closed`; it must not crash.
///
/// Both are called on many threads at once, without a lock of the cache. The same memory may be registered several
/// times; a registrar whose driver refuses what overlaps says `already_mapped`, and the cache closes what is idle.
template <class R>
concept registrar = std::move_constructible<R> && std::is_trivially_copyable_v<typename R::registration_type> &&
                    std::default_initializable<typename R::registration_type> &&
                    (sizeof(typename R::registration_type) <= max_registration_bytes) &&
                    requires(R& registrar, const R& constant, range memory, rights access,
                             const typename R::registration_type& registration) {
                      { R::name } -> std::convertible_to<const char*>;
                      { constant.limits() } noexcept -> std::same_as<registrar_limits>;
                      {
                        registrar.open(memory, access)
                      } noexcept -> std::same_as<result<typename R::registration_type>>;
                      { registrar.close(registration) } noexcept -> std::same_as<result<void>>;
                    };

/// A registrar that can register many ranges with fewer calls of its driver. Each result stands for its range alone.
template <class R>
concept group_registrar = registrar<R> && requires(R& registrar, std::span<const range> memory, rights access,
                                                   std::span<result<typename R::registration_type>> made) {
  { registrar.open_many(memory, access, made) } noexcept -> std::same_as<void>;
};

/// A registrar of memory that no monitor sees, and that can tell whether what lies at an address is still what was
/// registered: GPU memory, by its buffer id. A cache asks on every hit, while it holds the registration.
template <class R>
concept identifying_registrar =
    registrar<R> && requires(const R& constant, const typename R::registration_type& registration, range memory) {
      { constant.still_is(registration, memory) } noexcept -> std::same_as<bool>;
    };

}  // namespace pinfold
