/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts with UCX, of any version, over registrations that pinfold
 * keeps: a registrar over ucp_mem_map. Every put acquires its two
 * buffers anew. One worker puts into the other's memory; a real peer
 * would send its worker's address, and with each buffer the address
 * and the packed key. */
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

enum { bytes = 1 << 20, rounds = 100 };

static int fail(const char *what, ucs_status_t status) {
  fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
  return EXIT_FAILURE;
}

static int fail_of_pinfold(const char *what) {
  char text[256];
  pinfold_describe_error(pinfold_last_error(), text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  return EXIT_FAILURE;
}

/* ---- The registrar: a registration is handle and packed key ----
 */

static int refused(pinfold_error *failure, const char *call,
                   ucs_status_t status) {
  failure->native = status;
  failure->message = call;
  return status == UCS_ERR_NO_MEMORY ? PINFOLD_E_OUT_OF_RESOURCES
                                     : PINFOLD_E_DRIVER_ERROR;
}

static unsigned prot_of(uint32_t access) {
  unsigned prot = 0;
  if (access & PINFOLD_LOCAL_READ)
    prot |= UCP_MEM_MAP_PROT_LOCAL_READ;
  if (access & PINFOLD_LOCAL_WRITE)
    prot |= UCP_MEM_MAP_PROT_LOCAL_WRITE;
  if (access & (PINFOLD_REMOTE_READ | PINFOLD_REMOTE_ATOMIC))
    prot |= UCP_MEM_MAP_PROT_REMOTE_READ;
  if (access & (PINFOLD_REMOTE_WRITE | PINFOLD_REMOTE_ATOMIC))
    prot |= UCP_MEM_MAP_PROT_REMOTE_WRITE;
  return prot;
}

static int map(void *context, const pinfold_open_request *what,
               pinfold_registration *made, pinfold_error *failure) {
  const ucp_mem_map_params_t params = {
      .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                    UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                    UCP_MEM_MAP_PARAM_FIELD_PROT,
      .address = what->address,
      .length = what->bytes,
      .prot = prot_of(what->access)};
  ucp_mem_h memory;
  ucs_status_t status = ucp_mem_map(context, &params, &memory);
  if (status != UCS_OK)
    return refused(failure, "ucp_mem_map", status);
  void *key;
  size_t key_bytes;
  status = ucp_rkey_pack(context, memory, &key, &key_bytes);
  if (status != UCS_OK) {
    ucp_mem_unmap(context, memory);
    return refused(failure, "ucp_rkey_pack", status);
  }
  made->words[0] = (uintptr_t)memory;
  made->words[1] = (uintptr_t)key;
  made->words[2] = key_bytes;
  return PINFOLD_OK;
}

static int unmap(void *context, const pinfold_registration *made,
                 pinfold_error *failure) {
  const ucs_status_t status =
      ucp_mem_unmap(context, (ucp_mem_h)(uintptr_t)made->words[0]);
  if (status != UCS_OK)
    return refused(failure, "ucp_mem_unmap", status);
  ucp_rkey_buffer_release((void *)(uintptr_t)made->words[1]);
  return PINFOLD_OK;
}

/* ---- UCX ---- */

static ucs_status_t open_context(ucp_context_h *context) {
  const ucp_params_t params = {
      .field_mask = UCP_PARAM_FIELD_FEATURES,
      .features = UCP_FEATURE_RMA};
  ucp_config_t *config;
  ucs_status_t status = ucp_config_read(NULL, NULL, &config);
  if (status != UCS_OK) return status;
  /* so that pinfold's cache is the only one */
  status = ucp_config_modify(config, "RCACHE_ENABLE", "n");
  if (status == UCS_OK) status = ucp_init(&params, config, context);
  ucp_config_release(config);
  return status;
}

static ucs_status_t connect_workers(ucp_worker_h from,
                                    ucp_worker_h to,
                                    ucp_ep_h *endpoint) {
  ucp_address_t *address;
  size_t length;
  ucs_status_t status =
      ucp_worker_get_address(to, &address, &length);
  if (status != UCS_OK) return status;
  const ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
      .address = address};
  status = ucp_ep_create(from, &params, endpoint);
  ucp_worker_release_address(to, address);
  return status;
}

static ucs_status_t wait_for(ucp_worker_h workers[2],
                             ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request);
  ucs_status_t status;
  while ((status = ucp_request_check_status(request)) ==
         UCS_INPROGRESS) {
    ucp_worker_progress(workers[0]);
    ucp_worker_progress(workers[1]);
  }
  ucp_request_free(request);
  return status;
}

static ucs_status_t put(ucp_worker_h workers[2], ucp_ep_h endpoint,
                        pinfold_lease source, pinfold_lease target) {
  const pinfold_registration *own = pinfold_registration_of(source);
  const pinfold_registration *peers =
      pinfold_registration_of(target);
  const ucp_request_param_t with_handle = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_MEMH,
      .memh = (ucp_mem_h)(uintptr_t)own->words[0]};
  const ucp_request_param_t none = {.op_attr_mask = 0};
  ucp_rkey_h key;
  ucs_status_t status = ucp_ep_rkey_unpack(
      endpoint, (void *)(uintptr_t)peers->words[1], &key);
  if (status != UCS_OK) return status;
  status =
      wait_for(workers, ucp_put_nbx(endpoint, source.data, bytes,
                                    (uintptr_t)target.data, key,
                                    &with_handle));
  if (status == UCS_OK) /* after it, the peer has the bytes */
    status = wait_for(workers, ucp_ep_flush_nbx(endpoint, &none));
  ucp_rkey_destroy(key);
  return status;
}

/* ---- The program ---- */

static int put_once(ucp_worker_h workers[2], ucp_ep_h endpoint,
                    pinfold_cache *cache, char *from, char *to) {
  const pinfold_lease source =
      pinfold_acquire(cache, from, bytes, PINFOLD_LOCAL_READ);
  if (source.pin == 0) return fail_of_pinfold("source");
  const pinfold_lease target = pinfold_acquire(
      cache, to, bytes, PINFOLD_LOCAL_WRITE | PINFOLD_REMOTE_WRITE);
  if (target.pin == 0) {
    pinfold_release(source);
    return fail_of_pinfold("target");
  }
  const ucs_status_t status = put(workers, endpoint, source, target);
  pinfold_release(source);
  pinfold_release(target);
  return status == UCS_OK ? EXIT_SUCCESS : fail("put", status);
}

static int put_and_compare(ucp_worker_h workers[2],
                           ucp_ep_h endpoint, pinfold_cache *cache) {
  char *from = malloc(bytes), *to = calloc(1, bytes);
  if (from == NULL || to == NULL) return EXIT_FAILURE;
  size_t wrong = 0;
  int result = EXIT_SUCCESS;
  for (int round = 0; round < rounds && result == EXIT_SUCCESS;
       ++round) {
    for (int i = 0; i < bytes; ++i)
      from[i] = (char)(i * 7 + i / 256 + round);
    result = put_once(workers, endpoint, cache, from, to);
    for (int i = 0; i < bytes; ++i) wrong += to[i] != from[i];
  }
  free(from);
  free(to);
  printf("%d puts of %d bytes: %zu bytes are wrong\n", rounds, bytes,
         wrong);
  return wrong == 0 ? result : EXIT_FAILURE;
}

static int run(ucp_context_h context, ucp_worker_h workers[2],
               ucp_ep_h endpoint) {
  const pinfold_registrar registrar = {.size = sizeof registrar,
                                       .name = "ucp",
                                       .granularity = 1,
                                       .open = map,
                                       .close = unmap};
  pinfold_cache *cache;
  if (pinfold_create(&registrar, context, NULL, &cache) !=
      PINFOLD_OK)
    return fail_of_pinfold("pinfold_create");
  int result = put_and_compare(workers, endpoint, cache);
  char text[1024];
  pinfold_describe(cache, text, sizeof text);
  puts(text);
  if (pinfold_destroy(cache) != PINFOLD_OK)
    result = fail_of_pinfold("pinfold_destroy");
  return result;
}

int main(void) {
  ucp_context_h context;
  ucs_status_t status = open_context(&context);
  if (status != UCS_OK) return fail("UCX", status);
  const ucp_worker_params_t params = {.field_mask = 0};
  ucp_worker_h workers[2];
  ucp_ep_h endpoint;
  status = ucp_worker_create(context, &params, &workers[0]);
  if (status == UCS_OK)
    status = ucp_worker_create(context, &params, &workers[1]);
  if (status == UCS_OK)
    status = connect_workers(workers[0], workers[1], &endpoint);
  if (status != UCS_OK) return fail("connect", status);
  const int result = run(context, workers, endpoint);
  const ucp_request_param_t none = {.op_attr_mask = 0};
  wait_for(workers, ucp_ep_close_nbx(endpoint, &none));
  ucp_worker_destroy(workers[0]);
  ucp_worker_destroy(workers[1]);
  ucp_cleanup(context);
  return result;
}
