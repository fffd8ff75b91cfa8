// SPDX-License-Identifier: BSD-3-Clause
#include "c/built_in.hpp"

#include <pinfold/registrars/ucp.hpp>
#include <pinfold/ucp.h>

#include <cstddef>

namespace {

using registration = pinfold::ucp_registrar::registration_type;

static_assert(sizeof(pinfold_ucp_registration) == sizeof(registration) &&
              offsetof(pinfold_ucp_registration, key) == offsetof(registration, key) &&
              offsetof(pinfold_ucp_registration, key_bytes) == offsetof(registration, key_bytes));

}  // namespace

int pinfold_create_ucp(struct ucp_context* context, const pinfold_options* options, pinfold_cache** cache) {
  if (cache != nullptr) *cache = nullptr;
  return pinfold::c::create_local(options, cache, [&] { return pinfold::ucp_registrar::create(context); });
}
