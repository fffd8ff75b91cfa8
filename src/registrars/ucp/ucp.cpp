// SPDX-License-Identifier: BSD-3-Clause
#include "os/page_bytes.hpp"
#include "registrars/ucp/access.hpp"

#include <pinfold/registrars/ucp.hpp>

#include <ucp/api/ucp.h>

namespace pinfold {

static_assert(registrar<ucp_registrar>);

namespace {

constexpr access_flags all_access =
    local_access | access_flags::remote_read | access_flags::remote_write | access_flags::remote_atomic;

tl::unexpected<error> refused(ucs_status_t status) noexcept {
  const auto because = [status](errc code, const char* message) {
    return tl::unexpected(error{code, native_kind::none, status, message});
  };
  switch (status) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE: return because(errc::out_of_resources, "UCX has no memory or resources left");
    case UCS_ERR_INVALID_ADDR: return because(errc::invalid_range, "UCX cannot register memory at this address");
    case UCS_ERR_UNSUPPORTED: return because(errc::unsupported, "UCX cannot register such memory");
    default: return because(errc::driver_error, "UCX refused; UCX_LOG_LEVEL=debug says why");
  }
}

}  // namespace

result<ucp_registrar> ucp_registrar::create(::ucp_context* context) noexcept {
  if (context == nullptr) return fail(errc::invalid_argument, "the UCP context must not be null");
  return ucp_registrar(context);
}

registrar_limits ucp_registrar::limits() const noexcept {
  return {.granularity = os::page_bytes(), .supported = all_access};
}

result<ucp_registrar::registration_type> ucp_registrar::open(range memory, access_flags access) noexcept {
  if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
  ucp_mem_map_params_t wanted{};
  wanted.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT;
  wanted.address = reinterpret_cast<void*>(memory.begin);
  wanted.length = memory.size();
  wanted.prot = ucp::protection(access);
  registration_type made{};
  if (const auto status = ::ucp_mem_map(context_, &wanted, &made.memory); status != UCS_OK) return refused(status);
  void* key = nullptr;
  if (const auto status = ::ucp_rkey_pack(context_, made.memory, &key, &made.key_bytes); status != UCS_OK) {
    ::ucp_mem_unmap(context_, made.memory);
    return refused(status);
  }
  made.key = key;
  return made;
}

result<void> ucp_registrar::close(const registration_type& registration) noexcept {
  if (registration.memory == nullptr) return fail(errc::invalid_argument, "the registration has no memory");
  if (const auto status = ::ucp_mem_unmap(context_, registration.memory); status != UCS_OK) return refused(status);
  ::ucp_rkey_buffer_release(const_cast<void*>(registration.key));
  return {};
}

}  // namespace pinfold
