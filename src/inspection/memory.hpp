// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Copies a process's memory. No address, however wrong, causes a fault.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pinfold::inspection {

/// The memory of a core file or of a process, which may be this one, may run, and may end meanwhile. Takes no lock,
/// allocates nothing and has no cancellation point, so signal handlers may use it. One thread at a time.
class memory {
 public:
  /// Opens the memory of a process, 0: of this one. If the main thread has ended, `process` is the id of another
  /// thread. `failure` returns whether that worked.
  explicit memory(int process) noexcept;
  /// Owns `file`: the process's /proc/PID/mem, or another file whose bytes this reads. -1: `failure` returns `errno`.
  memory(int process, int file) noexcept : thread_(process), file_(file), failure_(file < 0 ? errno : 0) {}
  ~memory();
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;

  /// Returns the `errno` of the failed open, or 0.
  [[nodiscard]] int failure() const noexcept { return failure_; }

  /// Returns false, with part of the bytes copied, if they cannot be read or `limit` is reached.
  [[nodiscard]] bool read(std::uintptr_t from, void* into, std::size_t bytes) noexcept;
  template <class T>
  [[nodiscard]] bool read(std::uintptr_t from, T& into) noexcept {
    return read(from, &into, sizeof(T));
  }

  /// Memory that is in the file from `offset` on.
  struct part {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::uint64_t offset;
  };
  /// From now on reads the memory in these parts of a core file, which are sorted by address.
  void read_parts(std::vector<part> all) noexcept { parts_ = std::move(all); }

  /// Sets how many more steps are allowed, because damaged memory may lead anywhere. A read costs one step, and one
  /// more for each 4 KiB.
  void limit(std::uint64_t steps) noexcept { steps_left_ = steps; }
  /// Charges steps for the caller's use of the bytes, for example to keep them.
  void spend(std::uint64_t steps) noexcept { steps_left_ -= std::min(steps_left_, steps); }
  /// Returns whether the limit was reached.
  [[nodiscard]] bool exhausted() const noexcept { return steps_left_ == 0; }

 private:
  static constexpr std::uint64_t sensible_steps = 8'000'000;  // some ten seconds, and a gigabyte of entries

  [[nodiscard]] long copy(std::uintptr_t from, void* into, std::size_t bytes) const noexcept;

  int thread_;
  int file_ =
      -1;  // /proc/PID/mem: still refers to that process after another one gets its number. -1: no descriptor left
  std::vector<part> parts_;  // of a core file
  int failure_ = 0;
  std::uint64_t steps_left_ = sensible_steps;
};

}  // namespace pinfold::inspection
