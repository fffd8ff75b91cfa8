// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An io_uring with a cache of its registered buffers, and file I/O on it.
#pragma once

#include <pinfold/cache.hpp>
#include <pinfold/error.hpp>
#include <pinfold/registrars/io_uring.hpp>

#include <cstddef>
#include <cstdint>
#include <liburing.h>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tool {

inline constexpr unsigned default_slots = pinfold::io_uring_registrar_options{}.slots;

using uring_cache = pinfold::cache<pinfold::io_uring_registrar>;

/// One read or write of a file.
struct file_io {
  bool write;
  int file;
  std::span<std::byte> memory;
  std::uint64_t offset;                                                      ///< in the file
  std::optional<pinfold::io_uring_registrar::registration_type> registered;  ///< around the memory; none when it is not
};

/// A ring with a fixed address. For one thread at a time.
class uring {
 public:
  /// Makes a ring for `depth` I/Os at a time. Returns `unsupported` where the kernel has none or does not allow it. Its
  /// registrars' tables have `slots` slots; 0: as many as the kernel permits.
  [[nodiscard]] static pinfold::result<std::unique_ptr<uring>> open(unsigned depth,
                                                                    unsigned slots = default_slots) noexcept;
  uring(const uring&) = delete;
  uring& operator=(const uring&) = delete;
  ~uring();

  /// Makes a registrar with the ring's table of buffers. One at a time.
  [[nodiscard]] pinfold::result<pinfold::io_uring_registrar> registrar() noexcept;

  /// Makes a cache over such a registrar. Throws `failure`.
  [[nodiscard]] uring_cache cache(pinfold::cache_options options = {});

  /// Prepares an I/O; `submit` starts it. Returns `out_of_resources` when `depth` are under way.
  [[nodiscard]] pinfold::result<void> prepare(const file_io& what, std::uint64_t tag) noexcept;
  [[nodiscard]] pinfold::result<void> submit() noexcept;

  struct completion {
    std::uint64_t tag;
    int answer;  ///< bytes, or a negative errno
  };

  /// Waits for one I/O.
  [[nodiscard]] pinfold::result<completion> wait() noexcept;

  /// Does one I/O from start to end. No other may be under way.
  [[nodiscard]] pinfold::result<void> perform(const file_io& what) noexcept;

 private:
  explicit uring(unsigned slots) noexcept : slots_(slots) {}

  ::io_uring ring_{};
  unsigned slots_;
  bool made_ = false;
};

/// Returns whether an I/O moved all its bytes, or else why not.
[[nodiscard]] pinfold::result<void> checked(int answer, std::size_t bytes) noexcept;

/// Returns a ring, or throws a `failure` that says why there is none.
[[nodiscard]] std::unique_ptr<uring> need_uring(unsigned depth, unsigned slots = default_slots);

}  // namespace tool
