// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Static probes (USDT) for bpftrace, perf and SystemTap: each is a nop until one of these attaches to it.
/// `docs/operate/probes.md` lists them with their arguments.
#pragma once

#ifdef PINFOLD_PROBES

#define _SDT_HAS_SEMAPHORES 1  // NOLINT(bugprone-reserved-identifier): the name is that of sys/sdt.h
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

// The kernel counts attachments here. One counter for all probes, under the name that sys/sdt.h gives it for each.
extern "C" {
#define PINFOLD_SEMAPHORE(name) \
  extern volatile unsigned short pinfold_##name##_semaphore __attribute__((visibility("hidden")))
PINFOLD_SEMAPHORE(miss);
PINFOLD_SEMAPHORE(open);
PINFOLD_SEMAPHORE(close);
PINFOLD_SEMAPHORE(evict);
PINFOLD_SEMAPHORE(invalidate);
PINFOLD_SEMAPHORE(stale);
PINFOLD_SEMAPHORE(quarantine);
PINFOLD_SEMAPHORE(monitor);
PINFOLD_SEMAPHORE(gone);
#undef PINFOLD_SEMAPHORE
}

/// Fires a probe. Always evaluates the arguments.
#define PINFOLD_PROBE(name, ...) STAP_PROBEV(pinfold, name, __VA_ARGS__)

namespace pinfold::os {

/// Returns the number of attachments to probes of this copy of the library: if any, it is worth measuring their
/// arguments.
[[nodiscard]] inline int probes_attached() noexcept { return pinfold_miss_semaphore; }

}  // namespace pinfold::os

#else

#define PINFOLD_PROBE(name, ...) ::pinfold::os::without_probes(__VA_ARGS__)

namespace pinfold::os {

template <class... Values>
constexpr void without_probes(const Values&... /*arguments*/) noexcept {}
[[nodiscard]] constexpr int probes_attached() noexcept { return 0; }

}  // namespace pinfold::os

#endif
