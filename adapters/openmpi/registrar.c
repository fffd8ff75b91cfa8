/* SPDX-License-Identifier: BSD-3-Clause */
#include "registrar.h"

#include <stdlib.h>
#include <string.h>

#define LINE 64 /* BTLs may expect their objects on lines of their own */

/* In front of Open MPI's registration, whose size is the BTL's. */
struct header {
  const void *detached; /* each user of the registration stores the same */
} __attribute__((aligned(LINE)));

static struct header *header_of(const mca_rcache_base_registration_t *registration) {
  return (struct header *)registration - 1;
}

static mca_rcache_base_registration_t *made_by_open(const pinfold_registration *made) {
  return (mca_rcache_base_registration_t *)(uintptr_t)made->words[0]; /* NOLINT(performance-no-int-to-ptr) */
}

uint32_t pinfold_openmpi_access(int32_t of_opal) {
  uint32_t access = PINFOLD_LOCAL_READ;
  if (of_opal & MCA_RCACHE_ACCESS_LOCAL_WRITE) access |= PINFOLD_LOCAL_WRITE;
  if (of_opal & MCA_RCACHE_ACCESS_REMOTE_READ) access |= PINFOLD_REMOTE_READ;
  if (of_opal & MCA_RCACHE_ACCESS_REMOTE_WRITE) access |= PINFOLD_REMOTE_WRITE;
  if (of_opal & MCA_RCACHE_ACCESS_REMOTE_ATOMIC) access |= PINFOLD_REMOTE_ATOMIC;
  return access;
}

int32_t pinfold_openmpi_opal_access(uint32_t of_pinfold) {
  int32_t access = 0;
  if (of_pinfold & PINFOLD_LOCAL_WRITE) access |= MCA_RCACHE_ACCESS_LOCAL_WRITE;
  if (of_pinfold & PINFOLD_REMOTE_READ) access |= MCA_RCACHE_ACCESS_REMOTE_READ;
  if (of_pinfold & PINFOLD_REMOTE_WRITE) access |= MCA_RCACHE_ACCESS_REMOTE_WRITE;
  if (of_pinfold & PINFOLD_REMOTE_ATOMIC) access |= MCA_RCACHE_ACCESS_REMOTE_ATOMIC;
  return access;
}

static mca_rcache_base_registration_t *allocate(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, LINE, sizeof(struct header) + bytes) != 0) return NULL;
  memset(memory, 0, sizeof(struct header) + bytes);
  mca_rcache_base_registration_t *made = (mca_rcache_base_registration_t *)((struct header *)memory + 1);
  OBJ_CONSTRUCT(made, mca_rcache_base_registration_t);
  return made;
}

static void destroy(mca_rcache_base_registration_t *registration) {
  OBJ_DESTRUCT(registration);
  free(header_of(registration));
}

static int refused(pinfold_error *failure, int of_btl, const char *message) {
  failure->native = of_btl;
  failure->message = message;
  switch (of_btl) {
    case OPAL_ERR_OUT_OF_RESOURCE:
    case OPAL_ERR_TEMP_OUT_OF_RESOURCE: return PINFOLD_E_OUT_OF_RESOURCES;
    case OPAL_ERR_PERM: return PINFOLD_E_NOT_PERMITTED;
    default: return PINFOLD_E_DRIVER_ERROR;
  }
}

int pinfold_openmpi_open(void *self, const pinfold_open_request *what, pinfold_registration *made,
                         pinfold_error *failure) {
  const struct pinfold_openmpi_btl *btl = self;
  mca_rcache_base_registration_t *registration = allocate(btl->calls.sizeof_reg);
  if (registration == NULL) return PINFOLD_E_OUT_OF_RESOURCES;
  registration->rcache = btl->module;
  registration->base = what->address;
  registration->bound = registration->base + what->bytes - 1;
  registration->ref_count = 1;
  registration->flags = what->argument == NULL ? 0 : *(const uint32_t *)what->argument;
  registration->access_flags = pinfold_openmpi_opal_access(what->access);
  const int code = btl->calls.register_mem(btl->calls.reg_data, what->address, what->bytes, registration);
  if (code != OPAL_SUCCESS) {
    destroy(registration);
    return refused(failure, code, "the BTL cannot register the memory");
  }
  made->words[0] = (uintptr_t)registration;
  return PINFOLD_OK;
}

int pinfold_openmpi_close(void *self, const pinfold_registration *made, pinfold_error *failure) {
  const struct pinfold_openmpi_btl *btl = self;
  mca_rcache_base_registration_t *registration = made_by_open(made);
  const int code = btl->calls.deregister_mem(btl->calls.reg_data, registration);
  if (code != OPAL_SUCCESS) return refused(failure, code, "the BTL cannot deregister the memory");
  destroy(registration);
  return PINFOLD_OK;
}

mca_rcache_base_registration_t *pinfold_openmpi_of_detached(const void *detached) {
  mca_rcache_base_registration_t *registration = made_by_open(detached);
  const void **const known = &header_of(registration)->detached;
  if (__atomic_load_n(known, __ATOMIC_RELAXED) == NULL) /* threads that hit do not write */
    __atomic_store_n(known, detached, __ATOMIC_RELAXED);
  return registration;
}

const void *pinfold_openmpi_detached_of(const mca_rcache_base_registration_t *registration) {
  return __atomic_load_n(&header_of(registration)->detached, __ATOMIC_RELAXED);
}
