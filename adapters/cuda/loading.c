/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices the CUDA driver's library. It is loaded with the program, or later by dlopen(3); but all that is loaded later
 * looks for functions next. A replaced dlsym(3) that jumps to libc's leaves it the caller that it depends on, which a
 * replaced dlopen(3) could not. */
#include "common/report.h"
#include "cuda/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

typedef void *(*dlsym_function)(void *library, const char *name);

static int read_count(struct dl_phdr_info *first, size_t size, void *count) {
  if (size >= offsetof(struct dl_phdr_info, dlpi_subs)) *(unsigned long long *)count = first->dlpi_adds;
  return 1;
}

/* Returns how many libraries have been loaded so far. */
static unsigned long long loaded_libraries(void) {
  unsigned long long count = 0;
  dl_iterate_phdr(read_count, &count);
  return count;
}

static void take_over(void *library) {
  const char *why = take_over_driver(library);
  if (why != NULL) report("cuda", "%s, so handles pass through", why);
}

static void look_for_driver(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static unsigned long long seen;
  static int found; /* atomic */
  if (__atomic_load_n(&found, __ATOMIC_ACQUIRE) || pthread_mutex_trylock(&mutex) != 0)
    return; /* another thread is at it, or this one */
  const unsigned long long now = loaded_libraries();
  void *library = now != seen ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL; /* never unloaded */
  seen = now;
  if (library != NULL) {
    take_over(library);
    __atomic_store_n(&found, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mutex);
}

static dlsym_function find_dlsym(void) {
  void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (found == NULL) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  dlsym_function function;
  memcpy(&function, &found, sizeof function); /* ISO C has no conversion */
  return function;
}

__attribute__((used, visibility("hidden"))) dlsym_function before_dlsym(void);
dlsym_function before_dlsym(void) {
  static dlsym_function libcs; /* atomic */
  dlsym_function function = __atomic_load_n(&libcs, __ATOMIC_RELAXED);
  if (function == NULL) {
    function = find_dlsym();
    __atomic_store_n(&libcs, function, __ATOMIC_RELAXED);
  }
  look_for_driver();
  return function;
}

__asm__(
    ".text\n"
    ".globl dlsym\n"
    ".type dlsym, @function\n"
    "dlsym:\n"
    ".cfi_startproc\n"
    "  endbr64\n"
    "  push %rdi\n"
    ".cfi_adjust_cfa_offset 8\n"
    "  push %rsi\n"
    ".cfi_adjust_cfa_offset 8\n"
    "  sub $8, %rsp\n"
    ".cfi_adjust_cfa_offset 8\n"
    "  call before_dlsym\n"
    "  add $8, %rsp\n"
    ".cfi_adjust_cfa_offset -8\n"
    "  pop %rsi\n"
    ".cfi_adjust_cfa_offset -8\n"
    "  pop %rdi\n"
    ".cfi_adjust_cfa_offset -8\n"
    "  jmp *%rax\n"
    ".cfi_endproc\n"
    ".size dlsym, . - dlsym\n");

__attribute__((constructor)) static void look_at_start(void) { look_for_driver(); }
