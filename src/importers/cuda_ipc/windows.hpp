// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Address ranges in which an importer maps the segments of an exporter side by side.
#pragma once

#include "cuda/context.hpp"

#include <pinfold/importer.hpp>
#include <pinfold/range.hpp>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace pinfold::cuda_ipc {

/// Reserved addresses, and the parts of them that a mapping has taken. Thread-safe. Taken parts never overlap, and a
/// window with a taken part is not removed, so no other mapping comes into a taken place.
class window {
 public:
  window(const range& remote, cuda::device_pointer local) noexcept : where_(remote), at_(local) {}

  [[nodiscard]] cuda::device_pointer at() const noexcept { return at_; }
  [[nodiscard]] const range& where() const noexcept { return where_; }

  /// Takes the place of a range of the exporter, and returns it. `already_mapped` if it overlaps a taken place,
  /// `unsupported` if the window was removed. Throws std::bad_alloc.
  [[nodiscard]] result<cuda::device_pointer> take(const range& wanted);

  void give_back(cuda::device_pointer place) noexcept;

  /// Frees the addresses. `in_use_conflict` if a place is taken. A failure leaves the window unchanged.
  [[nodiscard]] result<void> free(const cuda::driver_table& calls) noexcept;

 private:
  const range where_;
  const cuda::device_pointer at_;
  std::mutex mutex_;
  std::map<cuda::device_pointer, cuda::device_pointer> taken_;  ///< ends by begin
  bool removed_ = false;
};

/// The windows of one importer. Thread-safe.
class window_table {
 public:
  /// Returns the address of the window, after reserving its addresses if it is new. Errors as
  /// `cuda_ipc_importer::add_window`.
  [[nodiscard]] result<cuda::device_pointer> add(const cuda::primary_context& in, const memory_window& wanted) noexcept;

  /// Removes the window. Errors as `cuda_ipc_importer::remove_window`.
  [[nodiscard]] result<void> remove(const cuda::driver_table& calls, const memory_window& gone) noexcept;

  /// Returns the window that contains the whole range of the exporter; null if none does.
  [[nodiscard]] std::shared_ptr<window> find(std::uint64_t exporter, const range& wanted) const noexcept;

  /// Frees all windows in which nothing is mapped.
  void free_all(const cuda::driver_table& calls) noexcept;

 private:
  struct key {
    std::uint64_t exporter;
    std::uint64_t base;
    friend auto operator<=>(const key&, const key&) noexcept = default;
  };
  using windows = std::map<key, std::shared_ptr<window>>;

  [[nodiscard]] bool meets(const memory_window& wanted) const noexcept;

  mutable std::mutex mutex_;
  windows all_;
};

}  // namespace pinfold::cuda_ipc
