// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Internal invariants. A breach is a defect of pinfold, never of its caller, and continuing could move wrong bytes.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace pinfold::os {

[[noreturn]] inline void broken(const char* what, const char* file, int line) noexcept {
  std::fprintf(stderr, "pinfold: broken invariant: %s (%s:%d)\n", what, file, line);
  std::abort();
}

}  // namespace pinfold::os

/// Checked in every build: it costs a predicted branch on the slow path only.
#define PINFOLD_INVARIANT(condition, sentence) \
  ((condition) ? static_cast<void>(0) : ::pinfold::os::broken(sentence, __FILE__, __LINE__))

/// Checked in debug and sanitizer builds (PINFOLD_ASSERTIONS), free in others.
#if defined(PINFOLD_ASSERTIONS)
#define PINFOLD_ASSERT(condition, sentence) PINFOLD_INVARIANT(condition, sentence)
#else
#define PINFOLD_ASSERT(condition, sentence) static_cast<void>(0)
#endif
