// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ranges of exporters that an importer has open, and the windows in which it maps them. Ensures that nothing is
/// mapped twice, and that no two mappings share a place in a window.
#pragma once

#include <pinfold/importers/memfd.hpp>

#include "os/reservation.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace pinfold::memfd {

/// Ranges by exporter and address; those of one exporter never overlap, and neither do its windows. A range that is in
/// a window when it is reserved is mapped there until it is removed: no window is added or removed around an open
/// range. So two mappings in a window never overlap. A range is in the table from before its mmap until after its
/// munmap, so an open that meets a close in progress is refused, too. Thread-safe. Allocates and frees no memory under
/// the lock.
class open_mappings {
 public:
  using mapping = memfd_importer::registration_type;

  /// Takes the range for an open that is about to map, and returns its place in a window; null if it has none.
  /// `already_mapped` if it overlaps a taken range.
  [[nodiscard]] result<void*> reserve(std::uint64_t exporter, range wanted) noexcept;

  /// Marks the reserved range as mapped.
  void publish(const mapping& made) noexcept;

  /// Claims the mapping for one close, and returns whether it is in a window. `invalid_argument` if it is not open, or
  /// is being closed.
  [[nodiscard]] result<bool> begin_close(const mapping& closing) noexcept;

  /// Undoes `begin_close` after a failed close.
  void undo_close(const mapping& failed) noexcept;

  /// Gives the range back, after a close or a failed open.
  void remove(std::uint64_t exporter, std::uint64_t base) noexcept;

  [[nodiscard]] std::size_t size() const noexcept;

  /// Adds a window over reserved addresses, and returns its address; for a window that exists already, that of the
  /// existing one. `in_use_conflict` if it overlaps a taken range or another window.
  [[nodiscard]] result<void*> add_window(const memory_window& window, os::reservation place) noexcept;

  /// Removes the window. `in_use_conflict` if a taken range is in it, `invalid_argument` if it does not exist.
  [[nodiscard]] result<void> remove_window(const memory_window& window) noexcept;

  /// Returns whether the address is in a window, which unmaps it.
  [[nodiscard]] bool is_in_window(const void* address) const noexcept;

  /// Calls `use` with the address and size of every mapping outside of windows. No other call may run.
  template <class Use>
  void for_each(Use&& use) const {
    for (const auto& [at, one] : ranges_) {
      if (one.now == state::open && !is_in_window(one.address)) use(one.address, one.end - at.base);
    }
  }

 private:
  enum class state : std::uint8_t { opening, open, closing };
  struct key {
    std::uint64_t exporter;
    std::uint64_t base;
    friend auto operator<=>(const key&, const key&) noexcept = default;
  };
  struct held {
    std::uint64_t end;
    void* address;
    state now;
  };

  using windows = std::map<key, os::reservation>;

  [[nodiscard]] bool overlaps(const key& wanted, std::uint64_t end) const noexcept;
  [[nodiscard]] bool meets_window(const key& wanted, std::uint64_t end) const noexcept;
  [[nodiscard]] void* place_of(const key& wanted, std::uint64_t end) const noexcept;

  mutable std::mutex mutex_;
  std::map<key, held> ranges_;
  windows windows_;
};

}  // namespace pinfold::memfd
