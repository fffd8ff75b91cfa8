// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Keeps memory resident: no device, only mlock(2).
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>
#include <pinfold/rights.hpp>

#include <memory>

namespace pinfold {

/// Locks the pages of what is registered. Memory locks do not nest, so the registrar counts: a page stays locked until
/// the last registration that touches it is closed. Thread-safe; calls follow one another, as counting and locking must
/// not be torn apart.
///
/// `open` errors: those of `check_request`; `out_of_resources` (RLIMIT_MEMLOCK, or too many mappings), `invalid_range`
/// (not mapped, or not accessible), `not_permitted`, `driver_error`. One that was moved from says `closed`.
class PINFOLD_EXPORT mlock_registrar {
 public:
  static constexpr const char* name = "mlock";
  struct registration_type {
    std::uintptr_t begin;
    std::uintptr_t end;
  };

  mlock_registrar();
  mlock_registrar(mlock_registrar&&) noexcept;
  mlock_registrar& operator=(mlock_registrar&&) noexcept;
  ~mlock_registrar();  ///< unlocks everything that is still registered

  [[nodiscard]] registrar_limits limits() const noexcept;
  [[nodiscard]] result<registration_type> open(range memory, rights access) noexcept;
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
