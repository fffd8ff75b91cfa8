/* SPDX-License-Identifier: BSD-3-Clause */
/* A libcuda.so.1 whose entries cannot be changed, as cuIpcCloseMemHandle is too short for a jump; with OLDER, one that
 * lacks a function that the adapter needs. */
#define API __attribute__((visibility("default")))

/* Returns 77. */
__asm__(
    ".text\n"
    ".globl cuIpcCloseMemHandle\n"
    ".type cuIpcCloseMemHandle, @function\n"
    ".balign 16\n"
    "cuIpcCloseMemHandle:\n"
    "  push $77\n"
    "  pop %rax\n"
    "  ret\n"
    ".balign 16\n"
    ".size cuIpcCloseMemHandle, . - cuIpcCloseMemHandle\n");

struct handle {
  char bytes[64];
};

API int cuIpcOpenMemHandle_v2(unsigned long *at, struct handle handle, unsigned flags) {
  *at = (unsigned long)handle.bytes[0];
  return (int)flags;
}
API int cuCtxGetCurrent(void **context) {
  *context = context;
  return 0;
}
API int cuCtxPushCurrent_v2(void *context) { return context == 0; }
API int cuCtxPopCurrent_v2(void **context) { return context == 0; }
API int cuMemGetAddressRange_v2(unsigned long *base, unsigned long *bytes, unsigned long at) {
  *base = *bytes = at;
  return 0;
}
#ifndef OLDER
API int cuCtxGetId(void *context, unsigned long long *id) {
  *id = 1;
  return context == 0;
}
#endif
