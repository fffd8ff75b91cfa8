// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Excludes functions from the sanitizers: those that write to text, of which the sanitizers keep no record. (Code that
/// runs in a hook is compiled without sanitizers, see `src/CMakeLists.txt`.)
#pragma once

#if defined(__clang__)
#define PINFOLD_PLAIN __attribute__((disable_sanitizer_instrumentation))
#else
#define PINFOLD_PLAIN __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))
#endif
