// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Errors are values: what failed, the driver's own code, and one static sentence. Making one never allocates.
#pragma once

#include <pinfold/export.hpp>

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

namespace pinfold {

/// The kind of failure. `docs/use/errors.md` lists for each code the functions that return it and what to do about it.
enum class errc : std::uint8_t {
  invalid_range,       ///< empty, wraps around, or reaches outside the memory that the handle stands for
  invalid_handle,      ///< not a handle of this registrar, or damaged
  invalid_argument,    ///< an option or setting that makes no sense
  too_large,           ///< above what the registrar can register in one piece
  not_permitted,       ///< the system refuses this process the access
  over_budget,         ///< the cache's budget is used up and no idle entry is left to close
  larger_than_budget,  ///< this one request exceeds the whole budget
  out_of_resources,    ///< the driver has no room, though the cache closed every idle entry
  in_use_conflict,     ///< memory that this request needs is mapped by something still in use
  already_mapped,      ///< from a registrar to its cache: overlaps an open registration. A cache never returns it
  stale_handle,        ///< the exporter has freed or replaced the memory behind this handle
  peer_gone,           ///< the exporting process has ended
  unsupported,         ///< not possible on this host, or with this memory
  timed_out,           ///< a deadline from the options passed
  driver_error,        ///< any other failure of the driver; see the native code
  closed,              ///< the cache is shutting down or gone
};

/// The origin of a native code, so that it can be printed as words.
enum class native_kind : std::uint8_t {
  none,       ///< there is no native code
  posix,      ///< an `errno` value
  cuda,       ///< a `CUresult`
  libfabric,  ///< a `fi_errno`, positive: an `errno` value below 256, libfabric's own from there on
};

/// One failure. Trivially copyable. Several threads may read and copy one object.
struct error {
  errc code = errc::driver_error;        ///< what failed
  native_kind kind = native_kind::none;  ///< the origin of `native`
  std::int32_t native = 0;               ///< the driver's own code, 0 where no driver was involved
  const char* message = "";              ///< static text, never null, never freed

  /// Returns whether the failure has this code.
  friend constexpr bool operator==(const error& failure, errc wanted) noexcept { return failure.code == wanted; }
};

/// Either a value or an `error`.
template <class T>
using result = tl::expected<T, error>;

/// Returns a failure without a native code, which converts to any `result`.
[[nodiscard]] constexpr tl::unexpected<error> fail(errc code, const char* message) noexcept {
  return tl::unexpected<error>(error{code, native_kind::none, 0, message});
}

/// Returns a failure of a system call, with its `errno`.
[[nodiscard]] constexpr tl::unexpected<error> fail_errno(errc code, int native, const char* message) noexcept {
  return tl::unexpected<error>(error{code, native_kind::posix, native, message});
}

/// Returns the code's name as written above, for logs and JSON.
[[nodiscard]] PINFOLD_EXPORT const char* name_of(errc code) noexcept;

/// Returns a line of text for people: name, sentence, native code with its meaning. Allocates.
[[nodiscard]] PINFOLD_EXPORT std::string describe(const error& failure);

}  // namespace pinfold
