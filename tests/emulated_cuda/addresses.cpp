// SPDX-License-Identifier: BSD-3-Clause
#include "addresses.hpp"

#include <algorithm>
#include <iterator>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emulated_cuda {

using pinfold::cuda::device_pointer;

namespace {

constexpr std::uint64_t granule = std::uint64_t{2} << 20;
constexpr int nowhere = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

address_space::address_space(std::uint64_t bytes) noexcept {
  // A raw call bypasses the sanitizers, which would go through their shadow of all these bytes.
  const long made = ::syscall(SYS_mmap, nullptr, bytes + granule, PROT_NONE, nowhere, -1, 0L);
  if (made == -1) return;
  begin_ = up_to(static_cast<std::uint64_t>(made), granule);
  end_ = begin_ + bytes;
  first_free_ = begin_;
}

bool address_space::is_free(std::uint64_t begin, std::uint64_t end) const noexcept {
  if (begin < begin_ || end > end_ || end < begin) return false;
  const auto after = taken_.lower_bound(end);
  return after == taken_.begin() || std::prev(after)->second <= begin;
}

device_pointer address_space::lowest(std::uint64_t bytes, std::uint64_t alignment) const noexcept {
  if (bytes > end_ - begin_) return 0;
  std::uint64_t at = up_to(first_free_, alignment);
  for (auto next = taken_.lower_bound(first_free_); next != taken_.end(); ++next) {
    if (at + bytes <= next->first) return at;
    at = up_to(std::max(at, next->second), alignment);
  }
  return at <= end_ - bytes ? at : 0;
}

device_pointer address_space::take(std::uint64_t bytes, std::uint64_t alignment, device_pointer hint) {
  const bool as_hinted = hint != 0 && hint % alignment == 0 && is_free(hint, hint + bytes);
  const device_pointer at = as_hinted ? hint : lowest(bytes, alignment);
  if (at == 0) return 0;
  auto made = taken_.emplace(at, at + bytes).first;
  while (made != taken_.end() && made->first == first_free_) first_free_ = made++->second;
  return at;
}

void address_space::give_back(device_pointer base) noexcept {
  const auto found = taken_.find(base);
  if (found == taken_.end()) return;
  forget_memory(found->first, found->second - found->first);
  first_free_ = std::min(first_free_, found->first);
  taken_.erase(found);
}

void forget_memory(device_pointer base, std::uint64_t bytes) noexcept {
  void* const wanted = reinterpret_cast<void*>(base);
  // When the system has no more mappings, the memory stays until its addresses are used again.
  static_cast<void>(::mmap(wanted, bytes, PROT_NONE, nowhere | MAP_FIXED, -1, 0) == wanted);
}

}  // namespace emulated_cuda
