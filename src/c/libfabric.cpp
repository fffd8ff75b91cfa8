// SPDX-License-Identifier: BSD-3-Clause
#include "c/built_in.hpp"
#include "c/structure.hpp"

#include <pinfold/libfabric.h>
#include <pinfold/registrars/libfabric.hpp>

#include <cstddef>

namespace {

using registration = pinfold::libfabric_registrar::registration_type;

static_assert(sizeof(pinfold_libfabric_registration) == sizeof(registration) &&
              offsetof(pinfold_libfabric_registration, desc) == offsetof(registration, desc) &&
              offsetof(pinfold_libfabric_registration, key) == offsetof(registration, key) &&
              offsetof(pinfold_libfabric_registration, origin) == offsetof(registration, origin));

}  // namespace

int pinfold_create_libfabric(struct fid_domain* domain, const struct fi_info* info,
                             const pinfold_libfabric_options* how, const pinfold_options* options,
                             pinfold_cache** cache) {
  using namespace pinfold;
  pinfold_libfabric_options known{};
  if (cache != nullptr) *cache = nullptr;
  if (how != nullptr && (!c::read(how, known) || known.reserved != 0))
    return c::refuse(errc::invalid_argument, "the registrar's options have a wrong size or unknown members");
  libfabric_registrar_options converted;
  converted.endpoint = known.endpoint;
  if (known.max_bytes != 0) converted.max_bytes = known.max_bytes;
  converted.accept_second_cache = known.accept_second_cache != 0;
  return c::create_local(options, cache, [&] { return libfabric_registrar::create(domain, info, converted); });
}
