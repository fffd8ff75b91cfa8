// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The fake device behind a table of C functions.
#pragma once

#include "support/doubles/fake_registrar.hpp"

#include <pinfold/pinfold.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace pinfold::testing {

/// Writes a failure as a C callback does. Returns its code.
inline int told(const error& failure, pinfold_error* to) {
  to->native_kind = static_cast<int>(failure.kind);
  to->native = failure.native;
  to->message = failure.message;
  return -1 - static_cast<int>(failure.code);
}

/// The application's `self` of the table.
struct c_device {
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::atomic<void*> last_argument{nullptr};
  std::atomic<int> finished{0};
  std::atomic<int> still{1};              ///< the answer of `still_is`
  std::function<void()> in_open = [] {};  ///< called in each open, before the device

  [[nodiscard]] static int open(void* self, const pinfold_open_request* what, pinfold_registration* made,
                                pinfold_error* failure) {
    auto& own = *static_cast<c_device*>(self);
    own.device->call();
    own.in_open();
    return own.enter(*what, *made, failure);
  }
  static void open_many(void* self, const pinfold_open_request* what, size_t count, pinfold_registration* made,
                        int* codes, pinfold_error* failures) {
    auto& own = *static_cast<c_device*>(self);
    own.device->call();
    own.in_open();
    for (std::size_t i = 0; i < count; ++i) codes[i] = own.enter(what[i], made[i], &failures[i]);
  }
  [[nodiscard]] static int close(void* self, const pinfold_registration* made, pinfold_error* failure) {
    auto done = static_cast<c_device*>(self)->device->leave(made->words[0]);
    return done ? PINFOLD_OK : told(done.error(), failure);
  }
  [[nodiscard]] static int still_is(void* self, const pinfold_registration*, const void*, size_t) {
    return static_cast<c_device*>(self)->still;
  }
  static void finish(void* self) { ++static_cast<c_device*>(self)->finished; }

  /// Returns the table of functions, without those that may be null.
  [[nodiscard]] pinfold_registrar table() const {
    pinfold_registrar calls{};
    calls.size = sizeof calls;
    calls.name = "fake";
    calls.granularity = device->limits.granularity;
    calls.open = open;
    calls.close = close;
    calls.finished = finish;
    return calls;
  }

 private:
  int enter(const pinfold_open_request& what, pinfold_registration& made, pinfold_error* failure) {
    last_argument = what.argument;
    const auto begin = reinterpret_cast<std::uintptr_t>(what.address);
    auto key = device->enter({begin, begin + what.bytes}, static_cast<access_flags>(what.access));
    if (!key) return told(key.error(), failure);
    made = {{*key, 0, 0, ~*key}};
    return PINFOLD_OK;
  }
};

}  // namespace pinfold::testing
