// SPDX-License-Identifier: BSD-3-Clause
// Refused with: importer.open\(peer, handle\)
// No exception may come out of an importer: failures are results.
#include "importer.hpp"

struct throwing : good_importer {
#ifndef FIXED
  pinfold::result<pinfold::imported<good_registration>> open(pinfold::peer_id, const good_handle&);
#endif
};

using cache = pinfold::import_cache<throwing>;
std::size_t size() { return sizeof(cache); }
