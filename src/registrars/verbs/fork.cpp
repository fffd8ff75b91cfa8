// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/verbs.hpp>

#include <cerrno>
#include <infiniband/verbs.h>

namespace pinfold {

result<verbs_fork> make_verbs_fork_safe() noexcept {
  const int refused = ::ibv_is_fork_initialized() == IBV_FORK_DISABLED ? ::ibv_fork_init() : 0;
  switch (refused) {
    case 0: break;
    case EINVAL: return fail_errno(errc::unsupported, refused, "memory was registered before this call");
    case ENOSYS: return fail_errno(errc::unsupported, refused, "the kernel has no MADV_DONTFORK");
    case ENOMEM: return fail_errno(errc::out_of_resources, refused, "no memory to track registered pages");
    default: return fail_errno(errc::driver_error, refused, "ibv_fork_init failed");
  }
  return ::ibv_is_fork_initialized() == IBV_FORK_UNNEEDED ? verbs_fork::kernel_copies : verbs_fork::not_inherited;
}

}  // namespace pinfold
