/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

static struct real_verbs functions;
static pthread_once_t looked_up = PTHREAD_ONCE_INIT;

/* The next library has the symbol if libibverbs is the program's own. A plug-in's is found by its name. */
static void *find(const char *name, const char *version) {
  void *found = dlvsym(RTLD_NEXT, name, version);
  if (found != NULL) return found;
  void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return NULL;
  found = dlvsym(library, name, version);
  dlclose(library); /* it stays loaded: a caller of it is on the stack */
  return found;
}

static void set(void *function, const char *name, const char *version) {
  void *found = find(name, version);
  memcpy(function, &found, sizeof found); /* ISO C has no conversion */
}

static void look_up(void) {
  set(&functions.reg_mr, "ibv_reg_mr", "IBVERBS_1.1");
  set(&functions.reg_mr_iova, "ibv_reg_mr_iova", "IBVERBS_1.7");
  set(&functions.reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8");
  set(&functions.rereg_mr, "ibv_rereg_mr", "IBVERBS_1.1");
  set(&functions.dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1");
  set(&functions.dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1");
  set(&functions.close_device, "ibv_close_device", "IBVERBS_1.1");
  set(&functions.is_fork_initialized, "ibv_is_fork_initialized", "IBVERBS_1.13");
}

const struct real_verbs *real(void) {
  pthread_once(&looked_up, look_up);
  return &functions;
}

struct ibv_mr *real_register(struct ibv_pd *pd, void *address, size_t bytes, unsigned access) {
  if (real()->reg_mr_iova2 != NULL) return real()->reg_mr_iova2(pd, address, bytes, (uintptr_t)address, access);
  if (real()->reg_mr != NULL) return real()->reg_mr(pd, address, bytes, (int)access);
  errno = ENOSYS;
  return NULL;
}
