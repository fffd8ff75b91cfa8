/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda/driver.h"

#include "common/report.h"
#include "cuda/patch.h"

#include <dlfcn.h>
#include <string.h>

struct cuda_driver driver;

static int find(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  memcpy(function, &found, sizeof found); /* ISO C has no conversion */
  return found != NULL;
}

static void *address_of(const void *function) {
  void *address;
  memcpy(&address, function, sizeof address);
  return address;
}

static int find_all(void *library) {
  find(library, "cuIpcOpenMemHandle", &driver.open);
  find(library, "cuMemHostRegister", &driver.host_register);
  find(library, "cuMemHostRegister_v2", &driver.host_register_v2);
  find(library, "cuMemFree_v2", &driver.free);
  find(library, "cuMemFreeAsync", &driver.free_async);
  find(library, "cuMemFreeAsync_ptsz", &driver.free_async_ptsz);
  find(library, "cuMemUnmap", &driver.unmap);
  find(library, "cuThreadExchangeStreamCaptureMode", &driver.exchange_capture_mode);
  return find(library, "cuIpcOpenMemHandle_v2", &driver.open_v2) &&
         find(library, "cuIpcCloseMemHandle", &driver.close) &&
         find(library, "cuCtxGetCurrent", &driver.ctx_get_current) && find(library, "cuCtxGetId", &driver.ctx_get_id) &&
         find(library, "cuCtxPushCurrent_v2", &driver.ctx_push_current) &&
         find(library, "cuCtxPopCurrent_v2", &driver.ctx_pop_current) &&
         find(library, "cuMemGetAddressRange_v2", &driver.mem_get_address_range);
}

static struct entry_patch patch_of(void *original, const void *replacement) {
  return (struct entry_patch){address_of(original), address_of(replacement), original};
}

/* Closes come first: a close that the adapter does not see, of memory that it keeps, would make the cache stale. */
static const char *patch_all(void) {
  const close_function close = replaced_close;
  const open_function open_v2 = replaced_open_v2, open = replaced_open;
  const struct entry_patch patches[] = {patch_of(&driver.close, &close), patch_of(&driver.open_v2, &open_v2),
                                        patch_of(&driver.open, &open)};
  return patch_entries(patches, driver.open != NULL ? 3 : 2);
}

/* Changes those that the driver has: the others have no original. */
static const char *patch_present(const struct entry_patch *all, size_t count) {
  enum { most = 4 };
  struct entry_patch present[most];
  size_t found = 0;
  for (size_t i = 0; i < count; ++i)
    if (all[i].entry != NULL) present[found++] = all[i];
  return found == 0 ? NULL : patch_entries(present, found);
}

static const char *patch_host_registers(void) {
  const host_register_function now = replaced_host_register, v2 = replaced_host_register_v2;
  const struct entry_patch patches[] = {patch_of(&driver.host_register_v2, &v2), patch_of(&driver.host_register, &now)};
  return patch_present(patches, 2);
}

static const char *patch_frees(void) {
  const free_function now = replaced_free;
  const free_async_function later = replaced_free_async, ptsz = replaced_free_async_ptsz;
  const unmap_function unmap = replaced_unmap;
  const struct entry_patch patches[] = {patch_of(&driver.free, &now), patch_of(&driver.free_async, &later),
                                        patch_of(&driver.free_async_ptsz, &ptsz), patch_of(&driver.unmap, &unmap)};
  return patch_present(patches, 4);
}

const char *take_over_driver(void *library) {
  find_pinfold();
  const char *why = find_all(library) ? patch_all() : "the CUDA driver is older than CUDA 12";
  driver.is_taken_over = why == NULL;
  const char *host = why == NULL ? patch_host_registers() : NULL;
  if (host != NULL) report("cuda", "%s, so idle registrations of host memory stay", host);
  const char *frees = why == NULL ? patch_frees() : NULL;
  if (frees != NULL) report("cuda", "%s, so exporters do not announce what is freed", frees);
  return why;
}
