// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ring in which the kernel programs record this process's events, as this process reads it.
#pragma once

#include "invalidation/event_log.hpp"
#include "invalidation/registered_filter.hpp"
#include "monitors/bpf/layout.h"
#include "os/file.hpp"

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstdint>

namespace pinfold::monitors {

/// A ring in this process's memory that only the kernel writes. Thread-safe without a lock; `drain` may run in signal
/// handlers, too.
class bpf_ring {
 public:
  /// Maps the ring. `from` is the ring's generation before the first record.
  [[nodiscard]] static result<bpf_ring> map(const os::file& ring, std::uint64_t from) noexcept;
  bpf_ring(bpf_ring&& other) noexcept;
  bpf_ring& operator=(bpf_ring&&) = delete;
  ~bpf_ring();

  /// Returns the number of events that the kernel has recorded, plus a start number that no other ring had.
  [[nodiscard]] const std::atomic<std::uint64_t>& generation() const noexcept { return area_->generation; }
  /// Returns the generation up to which the events are in the event log.
  [[nodiscard]] const std::atomic<std::uint64_t>& drained() const noexcept { return drained_; }
  [[nodiscard]] bool closed() const noexcept { return area_->closed.load(std::memory_order_acquire) != 0; }

  /// Writes the recorded events to the event log, except those of unwatched memory. Returns the generation up to which
  /// that is done, by this thread or another: at least the generation at the time of the call.
  std::uint64_t drain(invalidation::event_log& to, const invalidation::registered_filter& watched) noexcept;

  /// Replaces the ring in a forked child with zeroed memory of its own.
  void become_empty() noexcept;

 private:
  struct record {
    std::atomic<std::uint64_t> begin;
    std::atomic<std::uint64_t> end;
    std::atomic<std::uint64_t> check;
  };
  struct area {
    std::atomic<std::uint64_t> generation;
    std::atomic<std::uint64_t> closed;
    std::array<std::uint64_t, 6> padding;
    std::array<record, pinfold_records> records;
  };
  static_assert(sizeof(area) == sizeof(pinfold_area));

  bpf_ring(const area* mapped, std::uint64_t from) noexcept : area_(mapped), drained_(from) {}
  [[nodiscard]] bool read(std::uint64_t number, range& gone) const noexcept;
  [[nodiscard]] bool wait_for(std::uint64_t number, range& gone) const noexcept;
  [[nodiscard]] std::uint64_t skip_all(invalidation::event_log& to) noexcept;

  const area* area_;
  alignas(64) std::atomic<std::uint64_t> drained_;
};

}  // namespace pinfold::monitors
