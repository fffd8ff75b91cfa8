// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a process has one of, as the driver has.
#pragma once

namespace pinfold::cuda {

/// The process's only T, made by the first call. Never destroyed: closes may come after the destructors of statics.
template <class T>
[[nodiscard]] T& only() noexcept {
  union place {
    T value;
    place() noexcept : value() {}
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() {}  // NOLINT(modernize-use-equals-default): that would be deleted
  };
  static place there;
  return there.value;
}

}  // namespace pinfold::cuda
