// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface through which a test uses a cache: C. C++ is in fixtures/interface.hpp.
#pragma once

#include "support/doubles/c_cache.hpp"
#include "support/doubles/c_import_cache.hpp"

namespace pinfold::testing {

struct through_c {
  template <registrar R>
  using cache = c_cache<R>;
  template <importer I>
  using import_cache = c_import_cache<I>;
};

}  // namespace pinfold::testing
