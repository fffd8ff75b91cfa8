// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ranges of exporters that an importer has open: ensures that nothing is mapped twice.
#pragma once

#include <pinfold/importers/memfd.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace pinfold::memfd {

/// Ranges by exporter and address; those of one exporter never overlap. A range is in the table from before its mmap
/// until after its munmap, so an open that meets a close in progress is refused, too. Thread-safe. Allocates and frees
/// no memory under the lock.
class open_mappings {
 public:
  using mapping = memfd_importer::registration_type;

  /// Takes the range for an open that is about to map. `already_mapped` when it overlaps a taken range.
  [[nodiscard]] result<void> reserve(std::uint64_t exporter, range wanted) noexcept;

  /// Marks the reserved range as mapped.
  void publish(const mapping& made) noexcept;

  /// Claims the mapping for one close. `invalid_argument` when it is not open, or is being closed.
  [[nodiscard]] result<void> begin_close(const mapping& closing) noexcept;

  /// Undoes `begin_close` after a failed close.
  void undo_close(const mapping& failed) noexcept;

  /// Gives the range back, after a close or a failed open.
  void remove(std::uint64_t exporter, std::uint64_t base) noexcept;

  [[nodiscard]] std::size_t size() const noexcept;

  /// Calls `use` with the address and size of every mapping. No other call may run.
  template <class Use>
  void for_each(Use&& use) const {
    for (const auto& [at, one] : ranges_) {
      if (one.now == state::open) use(one.address, one.end - at.base);
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

  [[nodiscard]] bool overlaps(const key& wanted, std::uint64_t end) const noexcept;

  mutable std::mutex mutex_;
  std::map<key, held> ranges_;
};

}  // namespace pinfold::memfd
