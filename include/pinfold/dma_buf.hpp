// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One dma-buf of an allocation for all devices of a request, closed in time.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace pinfold {

/// The dma-buf of an allocation.
struct exported_dma_buf {
  int descriptor;        ///< the receiver closes it
  range memory;          ///< the addresses that the dma-buf covers: of one allocation, which is freed as a whole
  std::uint64_t offset;  ///< of the first of them in the dma-buf, in bytes
};

/// The position of memory in a dma-buf. The receiver closes the descriptor.
struct dma_buf_position {
  int descriptor;        ///< of the dma-buf
  std::uint64_t offset;  ///< of the memory in it, in bytes
};

/// Counts of a `shared_dma_buf`.
struct dma_buf_counts {
  std::uint64_t exports = 0;   ///< calls of the export function that gave a dma-buf
  std::uint64_t failures = 0;  ///< calls that failed
  std::uint64_t given = 0;     ///< descriptors given to registrars
  std::size_t open = 0;        ///< descriptors that this object holds now
};

/// Exports the dma-buf of an allocation once for a request that registers it with several devices.
///
/// While a `request` for memory of an allocation lives, the first registration of it exports, and the others get
/// duplicates of that descriptor. The descriptor is closed with the last request for memory of the allocation, or with
/// this object. A registration outside any request exports for itself. `set_options::dma_bufs` makes a request of each
/// acquire of a set.
///
/// An allocation must not be freed while a request for it lives. Every member may be called on any thread at any time.
/// Copies share one state.
class PINFOLD_EXPORT shared_dma_buf {
  struct state;

 public:
  /// Returns the dma-buf of the allocation around the memory, or nothing for memory of the process. The exporter makes
  /// the descriptor; the caller closes it. Runs on any thread, without a lock; must not throw.
  using export_function = std::function<result<std::optional<exported_dma_buf>>(const range& memory)>;

  /// Takes the function. Throws `std::bad_alloc`.
  explicit shared_dma_buf(export_function exporter);

  /// Keeps the descriptors of the allocations around some memory, once they are exported. Move-only.
  class PINFOLD_EXPORT request {
   public:
    /// Keeps nothing.
    request() noexcept = default;
    request(request&& other) noexcept : of_(std::move(other.of_)), memory_(std::exchange(other.memory_, range{})) {}
    /// Ends the request that this object was.
    request& operator=(request&& other) noexcept {
      request taken(std::move(other));
      std::swap(of_, taken.of_);
      std::swap(memory_, taken.memory_);
      return *this;
    }
    /// Closes the descriptors that no other request needs.
    ~request();

   private:
    friend class shared_dma_buf;
    std::shared_ptr<state> of_{};
    range memory_{};
  };

  /// Begins a request for the memory. Errors: `invalid_range` (empty), `out_of_resources`.
  [[nodiscard]] result<request> begin(const range& memory) noexcept;

  /// Returns a descriptor for one registration, and the offset of the memory; nothing for memory of the process.
  /// Errors: what the export function returns; `invalid_range` (its dma-buf does not contain the memory), `timed_out`
  /// (another thread's export took more than a minute), `driver_error` (no descriptor is left), `out_of_resources`.
  [[nodiscard]] result<std::optional<dma_buf_position>> position(const range& memory) noexcept;

  /// Returns a function that calls `position`, for `verbs_registrar_options::dma_buf_from`. Throws `std::bad_alloc`.
  template <class Position>
  [[nodiscard]] std::function<result<std::optional<Position>>(const range&)> provider() const {
    return [own = *this](const range& memory) mutable -> result<std::optional<Position>> {
      const auto found = own.position(memory);
      if (!found) return tl::unexpected(found.error());
      if (!*found) return std::optional<Position>{};
      return std::optional<Position>(Position{(*found)->descriptor, (*found)->offset});
    };
  }

  /// Returns the counts.
  [[nodiscard]] dma_buf_counts counts() const noexcept;

 private:
  std::shared_ptr<state> state_;
};

}  // namespace pinfold
