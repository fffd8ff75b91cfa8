// SPDX-License-Identifier: BSD-3-Clause
// Refused with: deleted
// A lease has one owner.
#include "importer.hpp"

#include <utility>

using lease = pinfold::import_cache<good_importer>::lease;

lease second(lease& first) {
#ifdef FIXED
  return std::move(first);
#else
  return first;
#endif
}
