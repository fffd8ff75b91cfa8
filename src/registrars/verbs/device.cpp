// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/verbs/device.hpp"

#include <pinfold/registrars/verbs.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <infiniband/verbs.h>

namespace pinfold {

namespace {

// Older providers support the older query only. Returns 0, or an errno value.
int query_device(::ibv_context* context, ibv_device_attr_ex& answer) noexcept {
  const int refused = ::ibv_query_device_ex(context, nullptr, &answer);
  if (refused != EOPNOTSUPP && refused != ENOSYS) return refused;
  answer = {};
  return ::ibv_query_device(context, &answer.orig_attr);
}

}  // namespace

bool verbs::is_gone(::ibv_context* context) noexcept {
  ibv_device_attr_ex unused{};
  const int refused = query_device(context, unused);
  return refused == EIO || refused == ENODEV;
}

result<verbs_capabilities> verbs_capabilities_of(::ibv_context* context) noexcept {
  if (context == nullptr) return fail(errc::invalid_argument, "the device context must not be null");
  ibv_device_attr_ex answer{};
  if (const int refused = query_device(context, answer); refused != 0)
    return fail_errno(errc::driver_error, refused, "cannot query the limits of the device");
  const auto& basic = answer.orig_attr;
  const auto paging = answer.odp_caps.general_caps;
  return verbs_capabilities{
      .max_mr_bytes = static_cast<std::size_t>(std::min<std::uint64_t>(basic.max_mr_size, SIZE_MAX)),
      .max_mr = static_cast<std::uint32_t>(std::max(basic.max_mr, 0)),
      .atomics = basic.atomic_cap != IBV_ATOMIC_NONE,
      .on_demand_paging = (paging & IBV_ODP_SUPPORT) != 0,
      .implicit_on_demand_paging = (paging & IBV_ODP_SUPPORT_IMPLICIT) != 0,
  };
}

}  // namespace pinfold
