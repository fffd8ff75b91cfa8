// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Ways to take the pages away from under a registration, and a check of the device's bytes afterwards.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <liburing.h>
#include <linux/mman.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {

struct target {
  std::byte* data;
  std::size_t bytes;

  [[nodiscard]] std::byte* middle() const { return data + bytes / 2; }
};

/// An attack. Returns true when the kernel knows this kind of attack at all. Afterwards the target may be unmapped.
using attack_function = std::function<bool(const target&)>;

struct attack {
  const char* name;
  bool bites;  ///< makes the registration of some unsealed memory stale
  attack_function run;
};

namespace attacks {

inline constexpr int readable_writable = PROT_READ | PROT_WRITE;
inline constexpr int private_memory = MAP_PRIVATE | MAP_ANONYMOUS;

inline bool known(long outcome) { return outcome >= 0 || (errno != EINVAL && errno != ENOSYS); }

inline attack_function advise(int advice) {
  return [advice](const target& at) { return known(::madvise(at.data, at.bytes, advice)); };
}

inline void* elsewhere(std::size_t bytes) {
  return ::mmap(nullptr, bytes, readable_writable, private_memory | MAP_POPULATE, -1, 0);
}

inline bool unmap(const target& at) { return known(::syscall(SYS_munmap, at.data, at.bytes)); }

inline bool map_over(const target& at) {
  return ::mmap(at.data, at.bytes, readable_writable, private_memory | MAP_FIXED, -1, 0) != MAP_FAILED || known(-1);
}

inline attack_function move_away(int flags) {
  return [flags](const target& at) {
    void* const to = elsewhere(at.bytes);
    void* const moved = ::mremap(at.data, at.bytes, at.bytes, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to);
    const bool knows = moved != MAP_FAILED || known(-1);
    ::munmap(to, at.bytes);
    return knows;
  };
}

inline bool move_onto(const target& at) {
  void* const from = elsewhere(at.bytes);
  const bool moved = ::mremap(from, at.bytes, at.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at.data) != MAP_FAILED;
  const bool knows = moved || known(-1);
  if (!moved) ::munmap(from, at.bytes);
  return knows;
}

inline bool shrink_and_grow(const target& at) {
  const bool shrunk = ::mremap(at.data, at.bytes, at.bytes / 2, 0) != MAP_FAILED;
  if (shrunk) static_cast<void>(::mremap(at.data, at.bytes / 2, at.bytes, 0));  // if this fails, `mend` maps the rest
  return shrunk || known(-1);
}

inline bool guard_pages(const target& at) {
  constexpr int install = 102, remove = 103;  // Linux 6.13
  const bool knows = known(::madvise(at.data, at.bytes, install));
  ::madvise(at.data, at.bytes, remove);
  return knows;
}

inline bool other_pages_of_the_file(const target& at) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return known(::syscall(SYS_remap_file_pages, at.data, at.bytes / 2, 0, at.bytes / 2 / page, 0));
}

inline bool attach_over(const target& at) {
  const int segment = ::shmget(IPC_PRIVATE, at.bytes, 0600);
  static_cast<void>(::shmat(segment, at.data, SHM_REMAP));
  return ::shmctl(segment, IPC_RMID, nullptr) == 0;
}

inline bool detach(const target& at) { return known(::shmdt(at.data)); }

inline bool change_protection(const target& at) {
  const bool knows = known(::mprotect(at.data, at.bytes, PROT_NONE));
  ::mprotect(at.data, at.bytes, readable_writable);
  return knows;
}

inline bool advise_from_the_ring(const target& at) {
  io_uring ring{};
  if (::io_uring_queue_init(2, &ring, 0) != 0) return false;
  io_uring_prep_madvise(::io_uring_get_sqe(&ring), at.data, static_cast<off_t>(at.bytes), MADV_DONTNEED);
  ::io_uring_submit_and_wait(&ring, 1);
  ::io_uring_queue_exit(&ring);
  return true;
}

/// Opens the file behind the mapping anew. Needs privileges; returns -1 for memory without a file.
inline int reopened(const target& at) {
  std::array<char, 64> path{};
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  unsigned long begin = 0, end = 0;
  std::array<char, 512> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), maps) != nullptr) {
    if (std::sscanf(line.data(), "%lx-%lx", &begin, &end) != 2) continue;
    if (begin <= reinterpret_cast<unsigned long>(at.data) && reinterpret_cast<unsigned long>(at.data) < end) break;
  }
  std::fclose(maps);
  std::snprintf(path.data(), path.size(), "/proc/self/map_files/%lx-%lx", begin, end);
  return ::open(path.data(), O_RDWR | O_CLOEXEC);
}

inline attack_function on_file(std::function<long(int, const target&)> what) {
  return [what = std::move(what)](const target& at) {
    const int file = reopened(at);
    if (file < 0) return false;
    what(file, at);
    ::close(file);
    return true;
  };
}

inline long punch(int file, const target& at) {
  return ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(at.bytes));
}

inline long truncate_and_grow(int file, const target& at) {
  return ::ftruncate(file, 0) == 0 ? ::ftruncate(file, static_cast<off_t>(at.bytes)) : -1;
}

inline long write_through_the_file(int file, const target& at) {
  const std::vector<char> old(at.bytes / 2, 'A');
  return ::pwrite(file, old.data(), old.size(), 0);
}

inline bool child_discards(const target& at) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::madvise(at.data, at.bytes, MADV_REMOVE);
    ::madvise(at.data, at.bytes, MADV_DONTNEED);
    ::munmap(at.data, at.bytes);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  return child > 0;
}

inline const std::vector<attack>& all() {
  static const std::vector<attack> list{
      {"munmap", true, unmap},
      {"mmap MAP_FIXED over it", true, map_over},
      {"mremap away", true, move_away(0)},
      {"mremap away, DONTUNMAP", true, move_away(MREMAP_DONTUNMAP)},
      {"mremap onto it", true, move_onto},
      {"mremap shrink and grow", true, shrink_and_grow},
      {"madvise DONTNEED", true, advise(MADV_DONTNEED)},
      {"madvise DONTNEED_LOCKED", true, advise(24)},
      {"madvise FREE", false, advise(MADV_FREE)},
      {"madvise REMOVE", true, advise(MADV_REMOVE)},
      {"madvise PAGEOUT", false, advise(MADV_PAGEOUT)},
      {"madvise COLLAPSE", false, advise(25)},
      {"madvise GUARD_INSTALL", true, guard_pages},
      {"io_uring madvise DONTNEED", true, advise_from_the_ring},
      {"remap_file_pages", true, other_pages_of_the_file},
      {"shmat SHM_REMAP", true, attach_over},
      {"shmdt", false, detach},
      {"mprotect", false, change_protection},
      {"punch a hole", true, on_file(punch)},
      {"truncate", true, on_file(truncate_and_grow)},
      {"write through the reopened file", false, on_file(write_through_the_file)},
      {"discard in a child", true, child_discards},
  };
  return list;
}

}  // namespace attacks

/// Maps the missing memory again, as the next allocation at this address would.
inline void mend(const target& at) {
  constexpr int flags = attacks::private_memory | MAP_FIXED_NOREPLACE;
  if (::mmap(at.data, at.bytes, attacks::readable_writable, flags, -1, 0) == MAP_FAILED)
    static_cast<void>(::mmap(at.middle(), at.bytes / 2, attacks::readable_writable, flags, -1, 0));
}

/// Counts the old bytes that a registered buffer still sends after an attack. Throws when there is no io_uring.
class device_view {
 public:
  explicit device_view(const target& at) : at_(at), file_(::memfd_create("received", MFD_CLOEXEC)) {
    if (::io_uring_queue_init(2, &ring_, 0) != 0) throw std::runtime_error("no io_uring");
    const iovec buffer{at.data, at.bytes};
    if (::io_uring_register_buffers(&ring_, &buffer, 1) != 0) throw std::runtime_error("cannot register a buffer");
  }
  device_view(const device_view&) = delete;
  device_view& operator=(const device_view&) = delete;
  ~device_view() {
    ::io_uring_queue_exit(&ring_);
    ::close(file_);
  }

  [[nodiscard]] std::size_t stale_bytes() {
    std::memset(at_.data, 'B', at_.bytes);
    std::vector<char> received(at_.bytes);
    io_uring_prep_write_fixed(::io_uring_get_sqe(&ring_), file_, at_.data, static_cast<unsigned>(at_.bytes), 0, 0);
    ::io_uring_submit_and_wait(&ring_, 1);
    io_uring_cqe* done = nullptr;
    if (::io_uring_peek_cqe(&ring_, &done) != 0 || done->res != static_cast<int>(at_.bytes))
      throw std::runtime_error("the device wrote " + std::to_string(done == nullptr ? -1 : done->res) + " bytes");
    if (::pread(file_, received.data(), received.size(), 0) != static_cast<ssize_t>(received.size()))
      throw std::runtime_error("cannot read what the device wrote");
    return at_.bytes - static_cast<std::size_t>(std::count(received.begin(), received.end(), 'B'));
  }

 private:
  target at_;
  int file_;
  io_uring ring_{};
};

/// Registers the target, attacks it, and asks the device. Returns -1 when the kernel does not know the attack.
inline long stale_after(const attack& what, const target& at) {
  std::memset(at.data, 'A', at.bytes);
  device_view device(at);
  const bool knows = what.run(at);
  mend(at);
  const auto stale = static_cast<long>(device.stale_bytes());
  return knows ? stale : -1;
}

}  // namespace pinfold::testing
