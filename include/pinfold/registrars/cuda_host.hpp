// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Host memory that a GPU accesses directly: page-locked and mapped for the device by cuMemHostRegister.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pinfold {

/// Options of the registrar.
struct cuda_host_registrar_options {
  int device = 0;          ///< the device whose primary context registers; all devices can use the memory
  bool read_only = false;  ///< register for reading by the device only, as read-only mappings require; the device
                           ///< faults if it writes, whatever the requested access
};

/// A registrar of host memory with the CUDA driver. A lease's `registration()` has the device's address of the memory;
/// the driver's copy functions take the host address.
///
/// The driver refuses to register a page twice. Memory inside a registration that this process made through pinfold, in
/// any cache, shares that registration, unless its memory went away since or the driver refused to close it. Other
/// memory that overlaps one is refused with `already_mapped`: a cache then closes idle registrations in the way, its
/// own and those of the process's other caches, and returns `in_use_conflict` if a lease or the application itself is
/// in the way.
///
/// Memory of `cudaHostAlloc`, and memory that the application itself has registered, is used as it is, and never
/// unregistered: each lease asks the driver for the device's address, as the application may free it at any time.
/// Part of it is not enough: a range that is not all inside is refused as above.
///
/// Thread-safe. `open` errors: those of `check_request`; `already_mapped`, `out_of_resources`, `invalid_range` (memory
/// that the driver cannot lock), `unsupported` (no driver; a forked child), `driver_error`, `closed` (moved from).
class PINFOLD_EXPORT cuda_host_registrar {
 public:
  static constexpr const char* name = "cuda_host";    ///< shown in events and dumps
  static constexpr bool exclusive_in_process = true;  ///< the driver registers a page once
  /// Where GPUs see the memory.
  struct registration_type {
    std::uint64_t device_address;  ///< address of the first byte, as GPU kernels see it
    std::uint64_t number;          ///< number of this registration, never reused; 0: the application's own
  };

  /// Does not touch the driver; `open` reports a driver that is missing or broken.
  explicit cuda_host_registrar(cuda_host_registrar_options options = {});
  cuda_host_registrar(cuda_host_registrar&&) noexcept;
  cuda_host_registrar& operator=(cuda_host_registrar&&) noexcept;
  ~cuda_host_registrar();  ///< unregisters what it has registered

  /// Returns the limits: whole pages, local access.
  [[nodiscard]] registrar_limits limits() const noexcept;
  /// Registers the memory with the driver.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept;
  /// Succeeds if the registration's context is gone: nothing is left to close.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;
  /// Returns false for registrations that the application made.
  [[nodiscard]] bool may_keep(const registration_type& registration) const noexcept { return registration.number != 0; }
  /// Keeps every later `open`, of any registrar, from sharing the driver's registration.
  void invalidated(const registration_type& registration) noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
