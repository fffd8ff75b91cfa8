/* SPDX-License-Identifier: BSD-3-Clause */
/* What callers of the driver get instead of its functions. */
#include "common/report.h"
#include "cuda/contexts.h"
#include "cuda/driver.h"
#include "cuda/pointers.h"

#include <pinfold/release.h>

#include <link.h>
#include <string.h>

/* The code of libpinfold, whose own calls go to the driver: its importers keep mappings open themselves, and its caches
 * make each other close what is idle, when they have no lock. */
static uintptr_t pinfold_begin, pinfold_end;

static int note_code(struct dl_phdr_info *library, size_t bytes, void *inside) {
  (void)bytes;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr) *segment = &library->dlpi_phdr[i];
    const uintptr_t begin = library->dlpi_addr + segment->p_vaddr;
    if (segment->p_type != PT_LOAD || (uintptr_t)inside - begin >= segment->p_memsz) continue;
    pinfold_begin = begin;
    pinfold_end = begin + segment->p_memsz;
    return 1;
  }
  return 0;
}

void find_pinfold(void) {
  void *inside;
  int (*const function)(const void *) = pinfold_release_registration;
  memcpy(&inside, &function, sizeof inside); /* ISO C has no conversion */
  dl_iterate_phdr(note_code, inside);
}

static int is_pinfolds(const void *caller) { return (uintptr_t)caller - pinfold_begin < pinfold_end - pinfold_begin; }

/* Whether the cache's failure is the program's. Whatever else went wrong, the driver is asked, and says why. */
static int is_final(const pinfold_error *failure, const struct context_cache *cache, cuda_result *result) {
  *result = failure->native;
  if (failure->native_kind == PINFOLD_NATIVE_CUDA) return 1;
  const int is_limit = failure->code == PINFOLD_E_OVER_BUDGET || failure->code == PINFOLD_E_LARGER_THAN_BUDGET;
  *result = cuda_out_of_memory;
  return is_limit && cache->options.full != PINFOLD_FULL_BYPASS;
}

/* Returns whether the call is answered, with `result`. */
static int open_cached(const struct context_cache *cache, device_pointer *mapped, const ipc_handle *handle,
                       cuda_result *result) {
  struct pointer *memory = new_pointer();
  if (memory == NULL) return 0;
  const pinfold_lease lease = open_in(cache, handle);
  if (lease.pin == 0) {
    const int final = is_final(pinfold_last_error(), cache, result);
    free_pointer(memory);
    return final;
  }
  *mapped = (uintptr_t)lease.data;
  *result = cuda_success;
  add_pointer(memory, *mapped, lease, cache);
  pinfold_progress(cache->cache); /* a hit does not look for mappings that are idle too long */
  return 1;
}

static cuda_result open_now(const struct context_cache *cache, open_function original, device_pointer *mapped,
                            const ipc_handle *handle, unsigned flags) {
  cuda_result result = cuda_success;
  if (cache != NULL && open_cached(cache, mapped, handle, &result)) return result;
  count_passed_through();
  return original(mapped, *handle, flags);
}

/* Without the cache, nothing that the program has closed would be in the way of an open, such as memory that a peer has
 * freed, whose addresses are those of its new memory. */
static cuda_result open_by(open_function original, device_pointer *mapped, ipc_handle handle, unsigned flags,
                           const void *caller) {
  if (is_called_by_cache() || is_pinfolds(caller)) return original(mapped, handle, flags);
  const struct context_cache *cache =
      mapped != NULL && flags == cuda_lazy_peer_access ? cache_of_current(original) : NULL;
  const size_t closes = closes_so_far();
  const cuda_result result = open_now(cache, original, mapped, &handle, flags);
  if (result == cuda_success || cache == NULL) return result;
  close_idle();
  if (closes_so_far() == closes) return result;
  return open_now(cache, original, mapped, &handle, flags);
}

cuda_result replaced_open(device_pointer *mapped, ipc_handle handle, unsigned flags) {
  return open_by(driver.open, mapped, handle, flags, __builtin_return_address(0));
}

cuda_result replaced_open_v2(device_pointer *mapped, ipc_handle handle, unsigned flags) {
  return open_by(driver.open_v2, mapped, handle, flags, __builtin_return_address(0));
}

cuda_result replaced_close(device_pointer mapped) {
  const int own = is_called_by_cache() || is_pinfolds(__builtin_return_address(0));
  const void *registration = own ? NULL : take_pointer(mapped);
  if (registration == NULL) return driver.close(mapped);
  pinfold_release_registration(registration); /* a close that fails is the cache's to retry */
  return cuda_success;
}

/* ---- Host memory ---- */

/* Without the caches of host memory, nothing but the program's own registrations would be in the way. */
static cuda_result register_by(host_register_function original, void *memory, size_t bytes, unsigned flags,
                               const void *caller) {
  const cuda_result result = original(memory, bytes, flags);
  if (result != cuda_host_memory_already_registered || is_pinfolds(caller)) return result;
  return pinfold_close_idle_in_process("cuda_host", memory, bytes) ? original(memory, bytes, flags) : result;
}

cuda_result replaced_host_register(void *memory, size_t bytes, unsigned flags) {
  return register_by(driver.host_register, memory, bytes, flags, __builtin_return_address(0));
}

cuda_result replaced_host_register_v2(void *memory, size_t bytes, unsigned flags) {
  return register_by(driver.host_register_v2, memory, bytes, flags, __builtin_return_address(0));
}

/* ---- Device memory that goes ---- */

/* What importers of this process's exporters have open is closed there first. Without exporters, a look into a list. */
static void announce(device_pointer memory, size_t bytes) {
  enum { longest_wait_ms = 100 }; /* for an importer that is stopped, or busy in the driver */
  const int done = pinfold_cuda_announce_free(memory, bytes, longest_wait_ms, NULL);
  if (done != PINFOLD_OK && done != PINFOLD_E_INVALID_RANGE) /* the driver says what is wrong with the range */
    report("cuda", "a free is not announced to importers: %s", pinfold_last_error()->message);
}

cuda_result replaced_free(device_pointer memory) {
  if (memory != 0) announce(memory, 1);
  return driver.free(memory);
}

cuda_result replaced_free_async(device_pointer memory, void *stream) {
  if (memory != 0) announce(memory, 1);
  return driver.free_async(memory, stream);
}

cuda_result replaced_free_async_ptsz(device_pointer memory, void *stream) {
  if (memory != 0) announce(memory, 1);
  return driver.free_async_ptsz(memory, stream);
}

cuda_result replaced_unmap(device_pointer memory, size_t bytes) {
  if (bytes != 0) announce(memory, bytes);
  return driver.unmap(memory, bytes);
}
