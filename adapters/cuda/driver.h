/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the CUDA driver's binary interface that the adapter uses, declared here so that it builds without CUDA.
 */
#ifndef PINFOLD_ADAPTERS_CUDA_DRIVER_H
#define PINFOLD_ADAPTERS_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* CUresult; the driver may return others. */
typedef int cuda_result;
enum {
  cuda_success = 0,
  cuda_invalid_value = 1,
  cuda_out_of_memory = 2,
  cuda_deinitialized = 4,
  cuda_invalid_context = 201,
  cuda_context_is_destroyed = 709,
  cuda_host_memory_already_registered = 712
};

/* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: the only flag that there is. */
enum { cuda_lazy_peer_access = 1 };

/* CU_STREAM_CAPTURE_MODE_RELAXED */
enum { cuda_capture_relaxed = 2 };

typedef uint64_t device_pointer;                  /* CUdeviceptr */
typedef struct cuda_context_object *cuda_context; /* CUcontext */
typedef struct ipc_handle {
  uint64_t words[8];
} ipc_handle; /* CUipcMemHandle: 64 bytes, passed by value */

typedef cuda_result (*open_function)(device_pointer *mapped, ipc_handle handle, unsigned flags);
typedef cuda_result (*close_function)(device_pointer mapped);
typedef cuda_result (*host_register_function)(void *memory, size_t bytes, unsigned flags);
typedef cuda_result (*free_function)(device_pointer memory);
typedef cuda_result (*free_async_function)(device_pointer memory, void *stream);
typedef cuda_result (*unmap_function)(device_pointer memory, size_t bytes);

/* The driver's functions as they are without the adapter. */
struct cuda_driver {
  open_function open;                      /* cuIpcOpenMemHandle; null where the driver has none */
  open_function open_v2;                   /* cuIpcOpenMemHandle_v2 */
  close_function close;                    /* cuIpcCloseMemHandle */
  host_register_function host_register;    /* cuMemHostRegister; null where the driver has none */
  host_register_function host_register_v2; /* cuMemHostRegister_v2; the same */
  free_function free;                      /* cuMemFree_v2 */
  free_async_function free_async;          /* cuMemFreeAsync; null where the driver has none */
  free_async_function free_async_ptsz;     /* the same of programs with a default stream for each thread */
  unmap_function unmap;                    /* cuMemUnmap; null where the driver has none */
  cuda_result (*ctx_get_current)(cuda_context *current);
  cuda_result (*ctx_get_id)(cuda_context context, unsigned long long *id); /* since CUDA 12 */
  cuda_result (*ctx_push_current)(cuda_context context);
  cuda_result (*ctx_pop_current)(cuda_context *popped);
  cuda_result (*mem_get_address_range)(device_pointer *base, size_t *bytes, device_pointer inside);
  cuda_result (*exchange_capture_mode)(int *mode); /* of this thread; null where the driver has none */
  int is_taken_over;
};

/* Constant once the driver is taken over. */
extern struct cuda_driver driver;

/* Finds the functions in the driver's library and leads callers of the first nine to the replacements. Returns null, or
 * why calls stay as they are. Reports if only those that register host memory do, or those that free memory. */
const char *take_over_driver(void *library);

/* Finds the callers for which the replacements do nothing. */
void find_pinfold(void);

/* The replacements. */
cuda_result replaced_open(device_pointer *mapped, ipc_handle handle, unsigned flags);
cuda_result replaced_open_v2(device_pointer *mapped, ipc_handle handle, unsigned flags);
cuda_result replaced_close(device_pointer mapped);
cuda_result replaced_host_register(void *memory, size_t bytes, unsigned flags);
cuda_result replaced_host_register_v2(void *memory, size_t bytes, unsigned flags);
cuda_result replaced_free(device_pointer memory);
cuda_result replaced_free_async(device_pointer memory, void *stream);
cuda_result replaced_free_async_ptsz(device_pointer memory, void *stream);
cuda_result replaced_unmap(device_pointer memory, size_t bytes);

#endif
