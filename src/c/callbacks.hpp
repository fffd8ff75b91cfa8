// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Calls of the application's functions.
#pragma once

#include "c/cache.hpp"
#include "os/no_cancellation.hpp"

#include <pinfold/pinfold.h>

namespace pinfold::c {

/// Calls a function of the cache or listener `of`. Returns the result of `call`, and PINFOLD_E_DRIVER_ERROR if it
/// throws: neither an exception nor a cancellation unwinds through the engine.
template <class Call>
[[nodiscard]] int called(const void* of, pinfold_error& failure, Call&& call) noexcept {
  const callback inside(of);
  const detail::no_cancellation guard;
  try {
    return call();
  } catch (...) {
    failure = {PINFOLD_E_DRIVER_ERROR, PINFOLD_NATIVE_NONE, 0, "the callback threw an exception"};
    return PINFOLD_E_DRIVER_ERROR;
  }
}

}  // namespace pinfold::c
