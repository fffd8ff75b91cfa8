/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices the CUDA driver's library. It is loaded with the program, or later by dlopen(3); but all that is loaded later
 * looks for functions next. A replaced dlsym(3) that jumps to libc's leaves it the caller that it depends on, which a
 * replaced dlopen(3) could not. */
#include "common/report.h"
#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

typedef void *(*dlsym_function)(void *library, const char *name);

enum { waiting, looking, found }; /* for the driver's library */
static int state;                 /* atomic */

static void take_over(void *library) {
  int cancellable;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellable); /* dlsym is no point of cancellation */
  const char *why = take_over_driver(library);
  if (why != NULL) report("cuda", "%s, so handles pass through", why);
  pthread_setcancelstate(cancellable, &cancellable);
}

/* Takes no lock but the loader's own of dlopen(3), which dlsym(3) takes as well, and fork(2) resets in the child. */
static void look_for_driver(void) {
  int expected = waiting;
  if (!__atomic_compare_exchange_n(&state, &expected, looking, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return; /* another thread is at it, or this one; or it is done */
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* never unloaded */
  __atomic_store_n(&state, library != NULL ? found : waiting, __ATOMIC_RELEASE);
  if (library != NULL) take_over(library);
}

/* The thread that was looking is not in the child. What was found is there. */
static void look_again_in_child(void) {
  if (__atomic_load_n(&state, __ATOMIC_RELAXED) == looking) __atomic_store_n(&state, waiting, __ATOMIC_RELAXED);
}

/* Whether the driver may have been loaded since the last look: its own functions are looked up, or a function of a
 * library that is not known yet, and at times in any case, as a library may lie where another was. A look costs much
 * more than dlsym(3) if the driver is not there. */
static int may_be_there(const void *library, const char *name) {
  enum { places = 64, at_least_once_in = 256 };
  static const void *known[places]; /* atomic */
  static unsigned calls;            /* atomic */
  const void **place = &known[(uintptr_t)library / 64 % places];
  const int is_new = __atomic_exchange_n(place, library, __ATOMIC_RELAXED) != library;
  const int is_drivers = name != NULL && strncmp(name, "cu", 2) == 0;
  return is_new || is_drivers || __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % at_least_once_in == 0;
}

static dlsym_function find_dlsym(void) {
  void *symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (symbol == NULL) symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  dlsym_function function;
  memcpy(&function, &symbol, sizeof function); /* ISO C has no conversion */
  return function;
}

__attribute__((used, visibility("hidden"))) dlsym_function before_dlsym(void *library, const char *name);
dlsym_function before_dlsym(void *library, const char *name) {
  static dlsym_function libcs; /* atomic */
  dlsym_function function = __atomic_load_n(&libcs, __ATOMIC_RELAXED);
  if (function == NULL) {
    function = find_dlsym();
    __atomic_store_n(&libcs, function, __ATOMIC_RELAXED);
  }
  if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == waiting && may_be_there(library, name)) look_for_driver();
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

__attribute__((constructor)) static void look_at_start(void) {
  pthread_atfork(NULL, NULL, look_again_in_child);
  look_for_driver();
}
