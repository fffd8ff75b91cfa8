/* SPDX-License-Identifier: BSD-3-Clause */
#include "ucx/ucx.h"

#include "common/report.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct ucx found;
static void *libucs; /* null: among the libraries that the program is linked with */

static int find(const char *name, void *function) {
  /* dlsym(3): a pointer to a function is stored as one to an object */
  return (*(void **)function = dlsym(libucs != NULL ? libucs : RTLD_NEXT, name)) != NULL;
}

static int find_all(void) {
  if (dlsym(RTLD_NEXT, "ucs_rcache_create") == NULL) { /* a plug-in has loaded it for itself */
    libucs = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (libucs == NULL) return 0;
  }
  return find("ucs_rcache_create", &found.own.create) && find("ucs_rcache_destroy", &found.own.destroy) &&
         find("ucs_rcache_get", &found.own.get) && find("ucs_rcache_region_put", &found.own.put) &&
         find("ucs_rcache_region_hold", &found.own.hold) &&
         find("ucs_rcache_region_invalidate", &found.own.invalidate) &&
         find("ucm_set_event_handler", &found.set_event_handler) &&
         find("ucm_unset_event_handler", &found.unset_event_handler);
}

/* Only libucp tells the version. Programs that use UCT alone have not loaded it: it lies beside libucs. */
static int version(unsigned *major, unsigned *minor, unsigned *release) {
  void *function;
  memcpy(&function, &found.own.create, sizeof function);
  Dl_info where;
  if (dladdr(function, &where) == 0) return 0;
  const char *slash = strrchr(where.dli_fname, '/');
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%.*slibucp.so.0", slash == NULL ? 0 : (int)(slash - where.dli_fname) + 1,
           where.dli_fname);
  void *libucp = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (libucp == NULL) return 0;
  void (*get_version)(unsigned *, unsigned *, unsigned *);
  *(void **)&get_version = dlsym(libucp, "ucp_get_version");
  if (get_version != NULL) get_version(major, minor, release);
  dlclose(libucp);
  return get_version != NULL;
}

static void find_ucx(void) {
  unsigned major, minor, release;
  if (!find_all())
    report("ucx", "passes through: this process has no libucs with the functions of UCX 1.12 and 1.13");
  else if (!version(&major, &minor, &release))
    report("ucx", "passes through: no libucp beside libucs tells the version");
  else if (major != 1 || minor < 12 || minor > 13)
    report("ucx", "passes through: works with UCX 1.12 and 1.13, and this is %u.%u.%u", major, minor, release);
  else
    found.replaceable = 1;
}

const struct ucx *ucx(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_ucx);
  return &found;
}
