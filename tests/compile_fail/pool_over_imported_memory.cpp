// SPDX-License-Identifier: BSD-3-Clause
// Refused with: constraint
// R52: a pool over imported memory is no pool: that memory is the exporter's to free.
#include "importer.hpp"

#include <pinfold/pools/registered_pool.hpp>

struct good_registrar {
  static constexpr const char* name = "test";
  struct registration_type {
    int key;
  };
  pinfold::registrar_limits limits() const noexcept;
  pinfold::result<registration_type> open(pinfold::range, pinfold::access_flags) noexcept;
  pinfold::result<void> close(const registration_type&) noexcept;
};

#ifdef FIXED
using pool = pinfold::registered_pool<good_registrar>;
#else
using pool = pinfold::registered_pool<good_importer>;
#endif
std::size_t size() { return sizeof(pool); }
