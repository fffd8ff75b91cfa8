// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// For functions that a sanitizer must not add to: those that write to text, of which it keeps no record. (What runs
/// in a hook is compiled without any, see `src/CMakeLists.txt`.)
#pragma once

#if defined(__clang__)
#define PINFOLD_PLAIN __attribute__((disable_sanitizer_instrumentation))
#else
#define PINFOLD_PLAIN __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))
#endif
