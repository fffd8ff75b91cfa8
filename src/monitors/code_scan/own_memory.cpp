// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/own_memory.hpp"

#include "os/check.hpp"
#include "os/file.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace pinfold::monitors::code_scan {

namespace {

// Reads through the file where a seccomp filter refuses process_vm_readv.
bool read_from_file(std::uintptr_t at, void* into, std::size_t bytes) noexcept {
  const os::file memory(::open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC));
  return memory && ::pread(memory.number(), into, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
}

}  // namespace

bool read_memory(std::uintptr_t at, void* into, std::size_t bytes) noexcept {
  const iovec here{into, bytes};
  const iovec there{reinterpret_cast<void*>(at), bytes};
  const auto done = ::process_vm_readv(::gettid(), &here, 1, &there, 1, 0);
  return done == static_cast<ssize_t>(bytes) || read_from_file(at, into, bytes);
}

std::vector<std::uint8_t> read_bytes(const range& from) {
  PINFOLD_ASSERT(from.begin <= from.end, "the range does not wrap around");
  std::vector<std::uint8_t> bytes(from.size());
  if (!read_memory(from.begin, bytes.data(), bytes.size())) bytes.clear();
  return bytes;
}

}  // namespace pinfold::monitors::code_scan
