// SPDX-License-Identifier: BSD-3-Clause
// A library that unmaps memory by an instruction of its own, as Go, liburing and static code do.
#include "support/host/raw_calls.hpp"

#include <cstddef>

extern "C" long unmap_inline(void* at, std::size_t bytes) { return pinfold::testing::raw_call(SYS_munmap, at, bytes); }
