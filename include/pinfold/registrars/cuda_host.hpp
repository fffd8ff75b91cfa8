// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Host memory that a GPU reads and writes by itself: page-locked and mapped for the device by cuMemHostRegister.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>
#include <pinfold/rights.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pinfold {

struct cuda_host_registrar_options {
  int device = 0;          ///< whose primary context registers; the memory is usable by all devices
  bool read_only = false;  ///< for reading by the device alone, as memory that is mapped so needs; the device faults if
                           ///< it writes, whatever rights were asked for
};

/// Registers memory with the CUDA driver. A lease's handle has the device's address of the memory; copies by the driver
/// take the host's.
///
/// The driver refuses to register a page twice. What lies inside a registration that this process made through pinfold,
/// in any cache, shares it; what overlaps one otherwise is refused with `already_mapped`, on which a cache closes idle
/// registrations that stand in the way, and says `in_use_conflict` where a lease or the application itself does.
///
/// Thread-safe. `open` errors: those of `check_request`; `already_mapped`, `out_of_resources`, `invalid_range` (memory
/// that the driver cannot lock), `unsupported` (no driver; a forked child), `driver_error`, `closed` (moved from).
class PINFOLD_EXPORT cuda_host_registrar {
 public:
  static constexpr const char* name = "cuda_host";
  struct registration_type {
    std::uint64_t device_address;  ///< of the first byte, as kernels see it
    std::uint64_t number;          ///< of this registration, never given again
  };

  /// Does not touch the driver: what is wrong with that, `open` tells.
  explicit cuda_host_registrar(cuda_host_registrar_options options = {});
  cuda_host_registrar(cuda_host_registrar&&) noexcept;
  cuda_host_registrar& operator=(cuda_host_registrar&&) noexcept;
  ~cuda_host_registrar();  ///< unregisters what it has registered

  [[nodiscard]] registrar_limits limits() const noexcept;
  [[nodiscard]] result<registration_type> open(range memory, rights access) noexcept;
  /// Of a registration whose context is gone nothing is left to close: that is a success.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
