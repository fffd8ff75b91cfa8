// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Starts the threads of the library that other threads wait for.
#pragma once

#include <pthread.h>

namespace pinfold::os {

/// Starts a thread as pthread_create(3) does, with every signal blocked from the first instruction on. A program may
/// bind a real-time thread to a CPU and poll a device there for ever: if such a thread is the caller, the new one may
/// run on every CPU, for it inherits the policy. It does not inherit SCHED_IDLE. `attributes` may be null; they are
/// changed. Returns 0 or the error's number.
[[nodiscard]] int start_service_thread(pthread_t& made, pthread_attr_t* attributes, void* (*body)(void*),
                                       void* argument) noexcept;

}  // namespace pinfold::os
