// SPDX-License-Identifier: BSD-3-Clause
#include "os/reservation.hpp"

#include "os/file.hpp"

#include <sys/mman.h>

namespace pinfold::os {

namespace {

void* map_nothing(void* where, std::size_t bytes, int placing) noexcept {
  return ::mmap(where, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | placing, -1, 0);
}

}  // namespace

result<void> reserve_again(void* address, std::size_t bytes) noexcept {
  if (map_nothing(address, bytes, MAP_FIXED) != MAP_FAILED) return {};
  auto failed = fail_system("cannot unmap a part of a reserved range");
  mend_reservation(address, bytes);
  return failed;
}

void mend_reservation(void* address, std::size_t bytes) noexcept {
  const int before = errno;
  void* const at = map_nothing(address, bytes, MAP_FIXED_NOREPLACE);
  if (at != MAP_FAILED && at != address) ::munmap(at, bytes);  // a kernel before 4.17 treated the address as a hint
  errno = before;
}

result<reservation> reservation::of(std::size_t bytes) noexcept {
  void* const at = map_nothing(nullptr, bytes, 0);
  if (at == MAP_FAILED) return fail_system("cannot reserve addresses");
  reservation made;
  made.data_ = static_cast<std::byte*>(at);
  made.size_ = bytes;
  return made;
}

reservation::~reservation() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace pinfold::os
