// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a child of fork(2) does with caches.
#pragma once

#include "world.hpp"

namespace pinfold::explore {

/// Checks that a cache that this child made works.
void check_own_cache();

/// Checks that a cache that this child inherited does nothing.
void check_refused(cache<truthful_registrar>& inherited);

}  // namespace pinfold::explore
