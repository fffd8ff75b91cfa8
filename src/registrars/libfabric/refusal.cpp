// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/libfabric/refusal.hpp"

#include <rdma/fi_errno.h>

namespace pinfold::libfabric {

namespace {

// FI_ENOMR, which headers before libfabric 1.20 lack.
constexpr int no_region_left = 270;

error make(errc code, int native, const char* message) noexcept {
  return {code, native_kind::libfabric, native, message};
}

}  // namespace

error refused_open(int native, bool many) noexcept {
  switch (native) {
    case FI_ENOMEM:
    case FI_ENOSPC:
    case FI_EAGAIN:
    case no_region_left:
      return make(errc::out_of_resources, native,
                  many ? "the domain's limit on memory regions is reached (mr_cnt)"
                       : "no memory for the registration, or the limit on memory regions or locked memory is reached");
    case FI_EFAULT: return make(errc::invalid_range, native, "the memory cannot be registered with this access");
    case FI_EPERM:
    case FI_EACCES: return make(errc::not_permitted, native, "this process may not register memory with the domain");
    case FI_ENOSYS:
    case FI_EOPNOTSUPP:
    case FI_EBADFLAGS: return make(errc::unsupported, native, "the provider cannot register such memory");
    case FI_EKEYREJECTED: return make(errc::unsupported, native, "the provider rejects the keys of its domain");
    case FI_ENOKEY: return make(errc::in_use_conflict, native, "other users of the domain hold the keys (FI_ENOKEY)");
    case FI_EIO:
    case FI_ENODEV: return make(errc::driver_error, native, "the fabric's device was removed, or failed");
    default: return make(errc::driver_error, native, "the provider refused to register the memory");
  }
}

error refused_close(int native) noexcept {
  if (native == FI_EBUSY)
    return make(errc::in_use_conflict, native, "an endpoint or a counter is bound to the memory region");
  return make(errc::in_use_conflict, native, "the provider cannot close the memory region yet");
}

}  // namespace pinfold::libfabric
