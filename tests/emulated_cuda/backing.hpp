// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Physical device memory: an anonymous file that other processes open through /proc while its owner lives, or receive
/// as a descriptor.
///
/// Behind the data there is a page with the label. It tells any process that has the file which allocations in it still
/// exist.
#pragma once

#include "cuda/api.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <sys/types.h>
#include <utility>

namespace emulated_cuda {

inline constexpr std::uint64_t page = 4096;
inline constexpr std::uint64_t smallest = 512;  ///< every allocation is a multiple of it

/// A descriptor with one owner.
class descriptor {
 public:
  descriptor() noexcept = default;
  explicit descriptor(int owned) noexcept : number_(owned) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor();
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

struct label {
  static constexpr std::uint64_t right_magic = 0x656d756c63756461;

  std::uint64_t magic = right_magic;
  std::uint64_t data_bytes = 0;
  std::uint64_t block_id = 0;
  std::uint64_t pool = 0;  ///< the inode of the pool; 0: no pool
  std::int32_t device = 0;
  std::uint32_t handle_types = 0;
  std::uint64_t base = 0;  ///< where the maker has it mapped for cuMemAlloc; 0: not so
  std::int32_t maker = 0;  ///< the process
  /// The serials of the allocations that begin in each 512 bytes of the first page; 0 where no live allocation begins.
  std::array<std::uint64_t, page / smallest> serials{};
};

struct backing {
  descriptor file;
  ino_t inode = 0;
  label about;

  /// Records for all processes that the allocation at the offset begins, or ends when serial is 0.
  void set_serial(std::uint64_t offset, std::uint64_t serial) noexcept;
};

/// Makes the memory; `about.data_bytes` is a multiple of a page. Returns nothing when memory, descriptors or the like
/// run out.
std::optional<backing> make_backing(const label& about) noexcept;

/// Takes the file over. Returns nothing when the emulation did not make the file.
std::optional<backing> backing_of(descriptor file) noexcept;

/// Maps the data at a fixed place, with the given access. Returns false when the system refuses.
bool map_backing(const backing& memory, std::uint64_t offset, std::uint64_t bytes, pinfold::cuda::device_pointer at,
                 pinfold::cuda::access_rights rights) noexcept;
int protection_of(pinfold::cuda::access_rights rights) noexcept;

/// The address by which another process finds a file of this one.
struct file_address {
  std::int32_t process = 0;
  std::int32_t number = -1;
  std::uint64_t start_time = 0;  ///< of the process, since its number may come to mean another process
  std::uint64_t inode = 0;

  friend bool operator==(const file_address&, const file_address&) = default;
};
file_address address_of(const descriptor& file, ino_t inode) noexcept;
bool of_this_process(const file_address& there) noexcept;
/// Returns 0 when there is no such process, or when it has ended and waits for its parent.
std::uint64_t start_time_of(pid_t process) noexcept;
bool alive(const file_address& there) noexcept;

/// Returns the memory that the process has at the address by cuMemAlloc now; nothing where it has none.
std::optional<backing> backing_at(std::int32_t process, std::uint64_t address) noexcept;

/// Opens a file that another process of this user (for root: of any user) has open. On failure errno is EMFILE, ENFILE,
/// ESTALE (the number now means another file), ESRCH (the process ended), or an error of open.
descriptor open_there(const file_address& there) noexcept;

}  // namespace emulated_cuda
