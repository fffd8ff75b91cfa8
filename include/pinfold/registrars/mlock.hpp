// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that stays resident: no device, only mlock(2).
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <memory>

namespace pinfold {

/// A registrar that locks the pages of registered memory. Memory locks do not nest, so the registrar counts: a page
/// stays locked until the last registration that touches it is closed. Thread-safe; a mutex serializes the calls,
/// because counting and locking must be one step.
///
/// `open` errors: those of `check_request`; `out_of_resources` (RLIMIT_MEMLOCK, or too many mappings), `invalid_range`
/// (not mapped, or not accessible), `not_permitted`, `driver_error`, `closed` (moved from).
class PINFOLD_EXPORT mlock_registrar {
 public:
  static constexpr const char* name = "mlock";  ///< shown in events and dumps
  /// The locked pages.
  struct registration_type {
    std::uintptr_t begin;  ///< the first byte
    std::uintptr_t end;    ///< behind the last byte
  };

  mlock_registrar();
  mlock_registrar(mlock_registrar&&) noexcept;
  mlock_registrar& operator=(mlock_registrar&&) noexcept;
  ~mlock_registrar();  ///< unlocks everything that is still registered

  /// Returns the limits: whole pages, local access.
  [[nodiscard]] registrar_limits limits() const noexcept;
  /// Locks the pages.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept;
  /// Unlocks the pages that no other registration touches.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
