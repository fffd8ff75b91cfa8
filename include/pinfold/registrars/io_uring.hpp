// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Fixed buffers of an io_uring: the kernel pins the pages once, not for every read and write.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct io_uring;

namespace pinfold {

/// Options of the registrar.
struct io_uring_registrar_options {
  /// Size of the buffer table: the largest number of registrations at a time. 0, or a number above the kernel's limit,
  /// means the kernel's limit (16 384). For each huge page that is registered the kernel searches the whole table, so a
  /// large table is slow: `docs/operate/tuning.md`.
  unsigned slots = 1024;
};

/// A registrar that registers memory in the buffer table of one ring; a registration is an index of the table.
/// Thread-safe.
///
/// The ring must outlive the registrar and must not move. It must not have other registered buffers. A ring with
/// IORING_SETUP_SINGLE_ISSUER works only if its owner thread alone uses the cache. A lease must outlive the I/O that
/// uses its index, submitted or not: after the release the index may mean other memory.
///
/// `open` errors: those of `check_request`; `out_of_resources` (ENOMEM: the locked-memory limit, which is charged by
/// whole huge pages; or all slots taken), `invalid_range` (EFAULT: not mapped, not writable, or file-backed),
/// `unsupported` (EOPNOTSUPP: pages of some files), `not_permitted` (EEXIST: not the owner thread of a SINGLE_ISSUER
/// ring; EACCES: the ring's restrictions), `driver_error`, `closed` (moved from).
///
/// `close` errors: `invalid_argument` (a slot that is not in use), `not_permitted` (as above), `out_of_resources`,
/// `driver_error`; then the slot stays in use. A child of fork(2) shares the ring with its parent: the child's copy of
/// the registrar leaves the ring alone when it is destroyed.
class PINFOLD_EXPORT io_uring_registrar {
 public:
  static constexpr const char* name = "io_uring";  ///< shown in events and dumps
  /// The buffer index, for `io_uring_prep_write_fixed` and its relatives. Their addresses are ordinary pointers.
  struct registration_type {
    std::uint32_t index = UINT32_MAX;  ///< the default is no buffer's index: the kernel refuses it
  };

  /// Takes over the ring's buffer table. Errors: `invalid_argument` (no ring), `in_use_conflict` (EBUSY: the ring has
  /// buffers already), `unsupported`, `not_permitted` (as above), `out_of_resources`, `driver_error`.
  [[nodiscard]] static result<io_uring_registrar> create(::io_uring* ring,
                                                         io_uring_registrar_options options = {}) noexcept;
  io_uring_registrar(io_uring_registrar&&) noexcept;
  io_uring_registrar& operator=(io_uring_registrar&&) noexcept;
  ~io_uring_registrar();

  /// Returns the limits: whole pages, at most 1 GiB, local access.
  [[nodiscard]] registrar_limits limits() const noexcept;
  /// Registers one range.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept;
  /// Registers many ranges with few system calls; each has a result of its own in `made`.
  void open_many(std::span<const range> memory, access_flags access,
                 std::span<result<registration_type>> made) noexcept;
  /// Unregisters one range.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept;

  [[nodiscard]] unsigned slots() const noexcept;       ///< size of the table
  [[nodiscard]] std::uint64_t calls() const noexcept;  ///< system calls made so far to register and unregister

 private:
  struct state;
  explicit io_uring_registrar(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
