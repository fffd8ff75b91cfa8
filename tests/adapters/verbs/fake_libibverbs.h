/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests see of the pretended libibverbs. */
#ifndef PINFOLD_TESTS_FAKE_LIBIBVERBS_H
#define PINFOLD_TESTS_FAKE_LIBIBVERBS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Its counters and settings. Regions have the keys 1, 2, 3, ... */
struct fake_verbs {
  uint32_t opens; /* registrations that succeeded; the last key */
  uint32_t open;  /* regions not deregistered */
  uint32_t rereg_calls;
  unsigned last_access; /* of the last registration */
  int refusal;          /* errno that every registration fails with */
  int close_refusal;    /* errno that every deregistration fails with */
  unsigned no_access;   /* registrations with any of these flags fail with EFAULT */
  int fork_status;      /* what ibv_is_fork_initialized returns */
  int pds_closed;
  int devices_closed;
};
extern struct fake_verbs fake_verbs;

#ifdef __cplusplus
}
#endif

#endif
