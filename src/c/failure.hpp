// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Failures in the C interface: a code, and the details for the thread's `pinfold_last_error`.
#pragma once

#include "os/no_cancellation.hpp"

#include <pinfold/detail/or_error.hpp>
#include <pinfold/error.hpp>
#include <pinfold/pinfold.h>

#include <string_view>

namespace pinfold::c {

/// Returns the PINFOLD_E_ code. The order of `errc` never changes.
[[nodiscard]] constexpr int code_of(errc code) noexcept { return -1 - static_cast<int>(code); }

[[nodiscard]] pinfold_error as_c(const error& failure) noexcept;

/// Returns the result of a callback as an error; `otherwise` is the message if the callback gave none.
[[nodiscard]] error from_callback(int code, const pinfold_error& described, const char* otherwise) noexcept;

/// Makes the failure this thread's last one. Returns its code. Exported for the libraries of other registrars.
PINFOLD_EXPORT int refuse(const error& failure) noexcept;
/// As `refuse`, with `where` before the message.
int refuse_at(std::string_view where, const error& failure) noexcept;
inline int refuse(errc code, const char* message) noexcept { return refuse({code, native_kind::none, 0, message}); }

/// Returns PINFOLD_OK, or makes the failure the last one and returns its code.
inline int as_code(const result<void>& done) noexcept { return done ? PINFOLD_OK : refuse(done.error()); }

/// Calls `body`, which returns a `result<void>`, and returns its code; `out_of_resources` if it throws.
template <class Body>
[[nodiscard]] int guarded(Body&& body) noexcept {
  const detail::no_cancellation guard;
  return as_code(detail::or_error("no memory", "cannot start a thread", body));
}

}  // namespace pinfold::c
