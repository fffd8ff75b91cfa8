/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes functions of a loaded library at their entries: every caller is led to a replacement, however it found the
 * function. */
#ifndef PINFOLD_ADAPTERS_CUDA_PATCH_H
#define PINFOLD_ADAPTERS_CUDA_PATCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct entry_patch {
  void *entry;
  void *replacement;
  void **original; /* written before the entry is changed: calls the function as it was */
};

/* Changes the entries, which are all in one library, in their order. Returns null; or why it did not, and then none is
 * changed. To be called before threads call the functions: a thread must not be
 * inside the first instructions of one. The changes stay for ever. */
const char *patch_entries(const struct entry_patch *patches, size_t count);

#ifdef __cplusplus
}
#endif

#endif
