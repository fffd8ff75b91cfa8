// SPDX-License-Identifier: BSD-3-Clause
// Refused with: importer.close\(registration\)
// What is opened must be closable.
#include "importer.hpp"

struct one_way : good_importer {
#ifndef FIXED
  void close() = delete;  // hides the good one
#endif
};

using cache = pinfold::import_cache<one_way>;
std::size_t size() { return sizeof(cache); }
