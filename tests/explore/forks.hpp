// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Forks under the scheduler.
#pragma once

#include <functional>

namespace pinfold::explore {

/// Forks as a step of the calling thread. The child, which has no other thread, runs `act` and ends; the thread waits
/// for it meanwhile without a scheduling point. The schedule fails if the child fails, waits for a thread that it does
/// not have, or does not end.
void fork_here(const std::function<void()>& act);

}  // namespace pinfold::explore
