// SPDX-License-Identifier: BSD-3-Clause
#include "os/probes.hpp"

#ifdef PINFOLD_PROBES

extern "C" {

[[gnu::section(".probes"), gnu::visibility("hidden")]] volatile unsigned short pinfold_miss_semaphore = 0;

#define PINFOLD_SEMAPHORE(name)                             \
  extern volatile unsigned short pinfold_##name##_semaphore \
      __attribute__((alias("pinfold_miss_semaphore"), visibility("hidden")))
PINFOLD_SEMAPHORE(open);
PINFOLD_SEMAPHORE(close);
PINFOLD_SEMAPHORE(evict);
PINFOLD_SEMAPHORE(invalidate);
PINFOLD_SEMAPHORE(stale);
PINFOLD_SEMAPHORE(quarantine);
PINFOLD_SEMAPHORE(monitor);
PINFOLD_SEMAPHORE(gone);

}  // extern "C"

#endif
