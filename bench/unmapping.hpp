// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that is mapped and unmapped, and its cost in a process without a cache.
#pragma once

#include "parameters.hpp"
#include "sampling_windows.hpp"
#include "worker_group.hpp"
#include "workload.hpp"

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace bench {

/// Mapped but untouched memory, apart from all other memory: regions of its own, with room around them.
class mapped_area {
 public:
  explicit mapped_area(std::size_t regions) : bytes_(regions * region_bytes) {
    const auto all = bytes_ + 3 * region_bytes;
    around_ = ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (around_ == MAP_FAILED) throw std::runtime_error("the address space is too small for this number of regions");
    const auto first = reinterpret_cast<std::uintptr_t>(around_) + region_bytes;
    begin_ = reinterpret_cast<void*>((first + region_bytes - 1) / region_bytes * region_bytes);
    if (::mprotect(begin_, bytes_, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("no memory for the regions");
  }
  mapped_area(const mapped_area&) = delete;
  mapped_area& operator=(const mapped_area&) = delete;
  /// Unmaps what is left: after `unmap`, other memory of the process may be where the regions were.
  ~mapped_area() {
    auto* const first = static_cast<std::byte*>(around_);
    auto* const hole = static_cast<std::byte*>(begin_);
    auto* const last = first + bytes_ + 3 * region_bytes;
    if (is_mapped_) {
      ::munmap(first, static_cast<std::size_t>(last - first));
    } else {
      ::munmap(first, static_cast<std::size_t>(hole - first));
      ::munmap(hole + bytes_, static_cast<std::size_t>(last - hole) - bytes_);
    }
  }

  [[nodiscard]] region_set regions() const noexcept {
    return region_set(bytes_ / region_bytes, layout::aligned, reinterpret_cast<std::uintptr_t>(begin_));
  }
  [[nodiscard]] void* begin() const noexcept { return begin_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  void unmap() noexcept {
    ::munmap(begin_, bytes_);
    is_mapped_ = false;
  }
  /// Maps again at the same place, after `unmap`, and touches one page.
  void map_again() noexcept {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (::mmap(begin_, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0) != begin_) return;
    is_mapped_ = true;
    *static_cast<volatile char*>(begin_) = 1;
  }

 private:
  std::size_t bytes_;
  void* around_;
  void* begin_ = nullptr;
  bool is_mapped_ = true;
};

/// The regions of a measurement: mapped where monitors watch them, else addresses without memory.
class region_memory {
 public:
  region_memory(const parameters& how, std::size_t count) : regions_(count) {
    if (how.watched()) regions_ = area_.emplace(count).regions();
  }

  [[nodiscard]] const region_set& regions() const noexcept { return regions_; }

 private:
  std::optional<mapped_area> area_;
  region_set regions_;
};

/// Maps and unmaps unregistered memory.
[[gnu::noinline]] inline void map_and_unmap(std::uint64_t pairs) noexcept {
  for (std::uint64_t i = 0; i < pairs; ++i) {
    void* const fresh = ::mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    asm volatile("" : : "r"(fresh) : "memory");
    ::munmap(fresh, region_bytes);
  }
}

#if defined(__x86_64__)
/// The two functions of the C library again, with its instructions and out of line as there, but never patched.
[[gnu::noinline]] inline void* unpatched_mmap(std::size_t bytes) noexcept {
  auto answer = static_cast<long>(SYS_mmap);
  register long flags asm("r10") = MAP_PRIVATE | MAP_ANONYMOUS;
  register long file asm("r8") = -1;
  register long offset asm("r9") = 0;
  asm volatile("syscall"
               : "+a"(answer)
               : "D"(0L), "S"(bytes), "d"(long{PROT_READ | PROT_WRITE}), "r"(flags), "r"(file), "r"(offset)
               : "rcx", "r11", "memory");
  return answer < 0 ? MAP_FAILED : reinterpret_cast<void*>(answer);
}
[[gnu::noinline]] inline int unpatched_munmap(void* at, std::size_t bytes) noexcept {
  auto answer = static_cast<long>(SYS_munmap);
  asm volatile("syscall" : "+a"(answer) : "D"(at), "S"(bytes) : "rcx", "r11", "memory");
  return answer < 0 ? -1 : 0;
}
#endif

/// Does the same past the C library, and so past the libraries that patched it. Returns false on unsupported
/// architectures.
[[gnu::noinline]] inline bool map_and_unmap_unseen(std::uint64_t pairs) noexcept {
#if defined(__x86_64__)
  for (std::uint64_t i = 0; i < pairs; ++i) unpatched_munmap(unpatched_mmap(region_bytes), region_bytes);
  return true;
#else
  return pairs == 0;
#endif
}

/// Returns the CPUs of this process at the first call, which comes before it pins any thread.
[[nodiscard]] inline const std::vector<std::size_t>& cpus_at_start() {
  static const auto all = usable_cpus();
  return all;
}

/// A second process, made before there is any cache and before any library is patched. It repeats this process's
/// measurements in turn with it on the same CPU, so that the difference is the cache's.
class process_without_cache {
 public:
  process_without_cache() {
    static_cast<void>(cpus_at_start());
    int questions[2];
    int answers[2];
    if (::pipe(questions) != 0 || ::pipe(answers) != 0)
      throw std::runtime_error("cannot create a pipe to another process");
    const auto parent = ::getpid();
    child_ = ::fork();
    if (child_ < 0) throw std::runtime_error("cannot fork a process to compare with");
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);  // it ended before
      ::close(questions[1]);
      ::close(answers[0]);
      work(questions[0], answers[1]);
      ::_exit(0);
    }
    ::close(questions[0]);
    ::close(answers[1]);
    ask_ = questions[1];
    hear_ = answers[0];
  }
  process_without_cache(const process_without_cache&) = delete;
  process_without_cache& operator=(const process_without_cache&) = delete;
  ~process_without_cache() {
    ::close(ask_);
    ::close(hear_);
    ::waitpid(child_, nullptr, 0);
  }

  [[nodiscard]] window unmapping(std::size_t regions) const { return ask({what::unmapping, regions}); }
  [[nodiscard]] window rounds(std::uint64_t operations) const { return ask({what::rounds, operations}); }

 private:
  enum class what : std::uint64_t { unmapping, rounds };
  struct question {
    what kind;
    std::uint64_t number;
  };

  static window answer(const question& asked) {
    mapped_area area(asked.kind == what::unmapping ? asked.number : 1);
    if (asked.kind == what::unmapping) return watch(1, [&] { area.unmap(); });
    area.unmap();
    area.map_again();
    return watch(asked.number, [&] {
      for (std::uint64_t i = 0; i < asked.number; ++i) area.unmap(), area.map_again();
    });
  }

  static void work(int questions, int answers) noexcept try {
    if (const auto& cpus = cpus_at_start(); !cpus.empty()) stay_on(cpus.front());
    for (question asked{}; ::read(questions, &asked, sizeof asked) == sizeof asked;) {
      const window seen = answer(asked);
      if (::write(answers, &seen, sizeof seen) != sizeof seen) return;
    }
  } catch (...) {
    return;  // the asking process reads end of file
  }

  [[nodiscard]] window ask(const question& asked) const {
    window seen;
    if (::write(ask_, &asked, sizeof asked) != sizeof asked || ::read(hear_, &seen, sizeof seen) != sizeof seen)
      throw std::runtime_error("the process without a cache has failed");
    return seen;
  }

  pid_t child_ = -1;
  int ask_ = -1;
  int hear_ = -1;
};

/// Keeps this thread on one CPU for a while; threads that it makes meanwhile begin there.
class pinned_here {
 public:
  explicit pinned_here(std::size_t number) {
    const auto& cpus = cpus_at_start();
    ::sched_getaffinity(0, sizeof before_, &before_);
    if (!cpus.empty()) stay_on(cpus[number % cpus.size()]);
  }
  pinned_here(const pinned_here&) = delete;
  pinned_here& operator=(const pinned_here&) = delete;
  ~pinned_here() { ::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

}  // namespace bench
