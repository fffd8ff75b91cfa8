// SPDX-License-Identifier: BSD-3-Clause
#include "c/built_in.hpp"
#include "c/structure.hpp"

#include <pinfold/registrars/verbs.hpp>
#include <pinfold/verbs.h>

#include <cstddef>

namespace {

using pinfold::verbs_paging;
using registration = pinfold::verbs_registrar::registration_type;

static_assert(sizeof(pinfold_verbs_registration) == sizeof(registration) &&
              offsetof(pinfold_verbs_registration, lkey) == offsetof(registration, lkey) &&
              offsetof(pinfold_verbs_registration, rkey) == offsetof(registration, rkey));
static_assert(static_cast<int>(verbs_paging::on_demand) == PINFOLD_VERBS_ON_DEMAND &&
              static_cast<int>(verbs_paging::implicit) == PINFOLD_VERBS_IMPLICIT);

}  // namespace

int pinfold_create_verbs(struct ibv_pd* domain, const pinfold_verbs_options* how, const pinfold_options* options,
                         pinfold_cache** cache) {
  using namespace pinfold;
  pinfold_verbs_options known{};
  if (cache != nullptr) *cache = nullptr;
  if ((how != nullptr && !c::read(how, known, offsetof(pinfold_verbs_options, windows))) ||
      known.paging > PINFOLD_VERBS_IMPLICIT)
    return c::refuse(errc::invalid_argument, "the registrar's options have a wrong size or unknown values");
  verbs_registrar_options converted;
  converted.paging = static_cast<verbs_paging>(known.paging);
  converted.relaxed_ordering = known.relaxed_ordering != 0;
  converted.windows = known.windows != 0;
  converted.prefetch_on_open = known.prefetch_on_open != 0;
  return c::create_local(options, cache, [&] { return verbs_registrar::create(domain, converted); });
}
