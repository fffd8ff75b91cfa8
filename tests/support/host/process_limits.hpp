// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What this process has open, and its limits: for tests of leaks and of exhaustion.
#pragma once

#include "support/host/sanitized.hpp"

#include <cstdint>
#include <dirent.h>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace pinfold::testing {

/// An address around which neither the loader, an allocator nor a sanitizer maps anything by itself, so that memory
/// freed there stays free.
inline constexpr std::uintptr_t quiet_address = 0x7e90'0000'0000;

/// Counts the open descriptors. Opens one meanwhile.
inline int open_descriptors() {
  DIR* list = ::opendir("/proc/self/fd");
  if (list == nullptr) throw std::runtime_error("cannot list /proc/self/fd");
  int count = 0;
  while (::readdir(list) != nullptr) ++count;
  ::closedir(list);
  return count - 3;  // ".", ".." and the list itself
}

/// Returns the number that the next descriptor would get.
inline rlim_t lowest_free_descriptor() {
  const int number = ::dup(0);
  if (number < 0) throw std::runtime_error("cannot duplicate standard input");
  ::close(number);
  return static_cast<rlim_t>(number);
}

/// Returns how many bytes of this process's address space are mapped.
inline rlim_t address_space_used() {
  rlim_t pages = 0;
  if (!(std::ifstream("/proc/self/statm") >> pages)) throw std::runtime_error("cannot read /proc/self/statm");
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

/// Counts this process's mappings of memfds.
inline int memfd_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string one; std::getline(maps, one);) count += one.find("/memfd:") != std::string::npos ? 1 : 0;
  return count;
}

/// Returns the bytes that the kernel counts for this process under that name in /proc/self/status: "VmLck", "VmPin".
inline std::size_t counted_by_kernel(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != name + ":") continue;
    std::size_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  throw std::runtime_error("no " + name + " in /proc/self/status");
}

/// Lowers a limit for a scope.
class lowered_limit {
 public:
  lowered_limit(int which, rlim_t value) : which_(static_cast<__rlimit_resource>(which)) {
    if (::getrlimit(which_, &before_) != 0) throw std::runtime_error("cannot read a limit");
    const rlimit lower{value, before_.rlim_max};
    if (::setrlimit(which_, &lower) != 0) throw std::runtime_error("cannot lower a limit");
  }
  lowered_limit(const lowered_limit&) = delete;
  lowered_limit& operator=(const lowered_limit&) = delete;
  ~lowered_limit() { ::setrlimit(which_, &before_); }

 private:
  __rlimit_resource which_;
  rlimit before_{};
};

}  // namespace pinfold::testing
