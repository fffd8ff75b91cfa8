// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A sealed and mapped memfd, which an exporter shares.
#pragma once

#include "importers/memfd/handle.hpp"
#include "os/file.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace pinfold::memfd {

/// What may already be mapped at the chosen address.
enum class placing : std::uint8_t {
  free_only,    ///< nothing
  reservation,  ///< a reservation of the caller, whose part is replaced in one step
};

/// Owns file and mapping, or nothing. Move-only, not thread-safe.
class exported_memory {
 public:
  exported_memory() noexcept = default;
  exported_memory(exported_memory&& other) noexcept
      : file_(std::move(other.file_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        inode_(other.inode_) {}
  exported_memory& operator=(exported_memory&& other) noexcept {
    exported_memory taken(std::move(other));
    std::swap(file_, taken.file_);
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(inode_, taken.inode_);
    return *this;
  }
  ~exported_memory();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t inode() const noexcept { return inode_; }
  [[nodiscard]] int descriptor() const noexcept { return file_.number(); }

  /// Leaves the addresses to the reservation, which maps something else there or unmaps them.
  void leave_mapping() noexcept { data_ = nullptr; }

 private:
  friend result<exported_memory> make_memory(std::size_t, void*, memfd_access, placing) noexcept;

  os::file file_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t inode_ = 0;
};

/// Returns an empty memfd that can be sealed; nothing, with `errno` set, on failure.
[[nodiscard]] os::file new_memfd() noexcept;

/// Makes zeroed memory of `bytes` bytes, rounded up to pages, exactly at `where` if that is not null. On an error, a
/// reservation at `where` is unchanged. The size is sealed, and so are the seals; with `read_only`, no other mapping
/// can ever write. `invalid_range`, `in_use_conflict`, `out_of_resources`, `unsupported`.
[[nodiscard]] result<exported_memory> make_memory(std::size_t bytes, void* where, memfd_access access,
                                                  placing how = placing::free_only) noexcept;

}  // namespace pinfold::memfd
