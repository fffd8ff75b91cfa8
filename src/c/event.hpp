// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Events for sinks of the C interface.
#pragma once

#include <pinfold/events.hpp>
#include <pinfold/pinfold.h>

namespace pinfold::c {

/// Calls the sink with the event.
void send(const event& what, void (*sink)(void* self, const pinfold_event* event), void* self);

}  // namespace pinfold::c
