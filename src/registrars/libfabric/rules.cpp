// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/libfabric.hpp>

#include <cstdint>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

namespace pinfold {

namespace {

// "The behavior of basic registration is equivalent to requiring FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, and FI_MR_PROV_KEY",
// and FI_MR_SCALABLE to none; "when FI_MR_LOCAL is set, FI_LOCAL_MR is ignored": fi_mr(3).
unsigned mode_of(const ::fi_info& info) noexcept {
  auto mode = static_cast<unsigned>(info.domain_attr->mr_mode);
  if (mode == FI_MR_BASIC) mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (mode == FI_MR_SCALABLE) mode = 0;
  if ((info.mode & FI_LOCAL_MR) != 0) mode |= FI_MR_LOCAL;
  return mode;
}

// "In the absence of any relevant flags, FI_RMA implies the ability to initiate and be the target": fi_getinfo(3).
std::uint64_t assumed(std::uint64_t capabilities) noexcept {
  constexpr std::uint64_t finer = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  const bool coarse = (capabilities & (FI_RMA | FI_ATOMIC)) != 0 && (capabilities & finer) == 0;
  return coarse ? capabilities | finer : capabilities;
}

access_flags access_with(std::uint64_t capabilities) noexcept {
  access_flags can = local_access;
  const bool reads = (capabilities & FI_REMOTE_READ) != 0;
  const bool writes = (capabilities & FI_REMOTE_WRITE) != 0;
  if (reads) can = can | access_flags::remote_read;
  if (writes) can = can | access_flags::remote_write;
  if (reads && writes && (capabilities & FI_ATOMIC) != 0) can = can | access_flags::remote_atomic;
  return can;
}

}  // namespace

result<libfabric_rules> libfabric_rules_of(const ::fi_info* info) noexcept {
  if (info == nullptr || info->domain_attr == nullptr)
    return fail(errc::invalid_argument, "the fi_info must be the one that the domain was opened with, not null");
  const auto& domain = *info->domain_attr;
  const unsigned mode = mode_of(*info);
  if ((mode & FI_MR_RAW) != 0 || domain.mr_key_size > sizeof(std::uint64_t))
    return fail(errc::unsupported, "the domain has raw keys (FI_MR_RAW), which peers must map");
  if ((mode & FI_MR_MMU_NOTIFY) != 0)
    return fail(errc::unsupported, "the domain needs notifications of new pages (FI_MR_MMU_NOTIFY)");
  return libfabric_rules{
      .local = (mode & FI_MR_LOCAL) != 0,
      .virtual_addresses = (mode & FI_MR_VIRT_ADDR) != 0,
      .provider_keys = (mode & FI_MR_PROV_KEY) != 0,
      .endpoint = (mode & FI_MR_ENDPOINT) != 0,
      .allocated = (mode & FI_MR_ALLOCATED) != 0,
      .collective = (mode & FI_MR_COLLECTIVE) != 0,
      .device_memory = (info->caps & FI_HMEM) != 0,
      .key_bytes = domain.mr_key_size == 0 ? sizeof(std::uint64_t) : domain.mr_key_size,
      .regions = domain.mr_cnt,
      .supported = access_with(assumed(info->caps)),
  };
}

}  // namespace pinfold
