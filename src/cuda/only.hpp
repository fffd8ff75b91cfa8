// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Objects of which a process has one, as it has one driver.
#pragma once

namespace pinfold::cuda {

/// Returns the process's only T, made by the first call. Never destroyed: closes may come after the destructors of
/// statics.
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
