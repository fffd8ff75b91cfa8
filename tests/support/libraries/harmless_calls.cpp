// SPDX-License-Identifier: BSD-3-Clause
// A library that enters the kernel by an instruction of its own, for calls that do not affect memory.
#include "support/host/raw_calls.hpp"

extern "C" long own_thread_id() { return pinfold::testing::raw_call(SYS_gettid, nullptr, 0); }
