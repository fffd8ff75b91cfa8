// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/verbs/refusal.hpp"

#include "registrars/verbs/memlock.hpp"

#include <cerrno>

namespace pinfold::verbs {

namespace {

constexpr const char* device_gone = "the RDMA device was removed, or failed";

// One errno stands for three limits, and closing other regions helps against each. The message names the limit.
const char* what_ran_out(std::size_t pinned, bool full) noexcept {
  if (exceeds_memlock(pinned)) return "the locked-memory limit is reached (RLIMIT_MEMLOCK)";
  if (full) return "the device's limit on memory regions is reached (max_mr)";
  return "no memory for the registration, or other processes hold all memory regions of the device";
}

}  // namespace

error refused_open(int native, std::size_t pinned, bool full) noexcept {
  switch (native) {
    case ENOMEM:
    case EAGAIN:
    case ENOSPC: return {errc::out_of_resources, native_kind::posix, native, what_ran_out(pinned, full)};
    case EFAULT:
      return {errc::invalid_range, native_kind::posix, native, "the kernel cannot pin this memory with this access"};
    case EOPNOTSUPP: return {errc::unsupported, native_kind::posix, native, "the device cannot register such memory"};
    case EPERM:
    case EACCES:
      return {errc::not_permitted, native_kind::posix, native, "this process may not register memory with the device"};
    case EIO:
    case ENODEV: return {errc::driver_error, native_kind::posix, native, device_gone};
    default: return {errc::driver_error, native_kind::posix, native, "the device refused to register the memory"};
  }
}

error refused_close(int native, bool windows) noexcept {
  if (native == EBUSY || (native == EINVAL && windows))  // soft-RoCE returns EINVAL
    return {errc::in_use_conflict, native_kind::posix, native, "a memory window is bound to the memory region"};
  return {errc::driver_error, native_kind::posix, native, "the device refused to deregister the memory"};
}

}  // namespace pinfold::verbs
