/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX that the process has loaded, and whether its registration cache can be replaced. */
#ifndef PINFOLD_UCX_UCX_H
#define PINFOLD_UCX_UCX_H

#include <stddef.h>
#include <stdint.h>
#include <ucm/api/ucm.h>
#include <ucs/type/status.h>

/* UCX's own cache. `get` takes the longest list of arguments that any version has. */
struct ucx_cache {
  ucs_status_t (*create)(const void *params, const char *name, void *stats, void *made);
  void (*destroy)(void *cache);
  ucs_status_t (*get)(void *cache, void *address, size_t length, uintptr_t fourth, uintptr_t fifth, uintptr_t sixth,
                      uintptr_t seventh);
  void (*put)(void *cache, void *region);
  void (*hold)(void *cache, void *region);
  void (*invalidate)(void *cache, void *region, void (*done)(void *), void *arg);
};

struct ucx {
  int replaceable; /* the version's caches have the structures that this adapter knows */
  struct ucx_cache own;
  ucs_status_t (*set_event_handler)(int events, int priority, ucm_event_callback_t handler, void *arg);
  void (*unset_event_handler)(int events, ucm_event_callback_t handler, void *arg);
};

/* Finds UCX, once, and reports why its caches are not replaced. */
const struct ucx *ucx(void);

#endif
