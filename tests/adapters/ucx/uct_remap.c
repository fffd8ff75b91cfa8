/* SPDX-License-Identifier: BSD-3-Clause */
/* A program of UCT: registers memory and puts it, twice, and replaces its pages; in each round, over the device that is
 * named. UCX's cache keeps the registration between the rounds; if it does not learn of the replacement, the device
 * puts the bytes of the old pages.
 *   uct_remap <device, such as rxe0:1> <rounds> mmap|syscall
 * Exits with 0 if every byte was right, with 1 if not, and with 2 if a call failed. */
#include <uct/api/uct.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { bytes = 64 << 10 };

static void check_at(ucs_status_t status, const char *what) {
  if (status == UCS_OK) return;
  fprintf(stderr, "uct_remap: %s: %s\n", what, ucs_status_string(status));
  exit(2);
}
#define check(call) check_at(call, #call)

static void need(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "uct_remap: %s\n", what);
  exit(2);
}

struct transport {
  uct_component_h component;
  uct_md_h md;
  ucs_async_context_t *async;
  uct_worker_h worker;
  uct_iface_h iface;
  uct_ep_h ends[2]; /* connected to each other */
};

static int has_device(uct_md_h md, const char *device) {
  uct_tl_resource_desc_t *found;
  unsigned count, i;
  int has = 0;
  check(uct_md_query_tl_resources(md, &found, &count));
  for (i = 0; i < count; ++i)
    has |= strcmp(found[i].tl_name, "rc_verbs") == 0 && strcmp(found[i].dev_name, device) == 0;
  uct_release_tl_resource_list(found);
  return has;
}

static int open_md(struct transport *made, uct_component_h component, const char *name, const char *device) {
  uct_md_config_t *config;
  check(uct_md_config_read(component, NULL, NULL, &config));
  check(uct_md_open(component, name, config, &made->md));
  uct_config_release(config);
  made->component = component;
  if (has_device(made->md, device)) return 1;
  uct_md_close(made->md);
  return 0;
}

static int open_component(struct transport *made, uct_component_h component, const char *device) {
  uct_component_attr_t attributes = {.field_mask =
                                         UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
  check(uct_component_query(component, &attributes));
  if (strcmp(attributes.name, "ib") != 0) return 0;
  uct_md_resource_desc_t *resources = calloc(attributes.md_resource_count, sizeof *resources);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = resources;
  check(uct_component_query(component, &attributes));
  int found = 0;
  for (unsigned i = 0; i < attributes.md_resource_count && !found; ++i)
    found = open_md(made, component, resources[i].md_name, device);
  free(resources);
  return found;
}

static void find_device(struct transport *made, const char *device) {
  uct_component_h *components;
  unsigned count, i;
  int found = 0;
  check(uct_query_components(&components, &count));
  for (i = 0; i < count && !found; ++i) found = open_component(made, components[i], device);
  uct_release_component_list(components);
  need(found, "there is no such device with rc_verbs");
}

static void open_iface(struct transport *made, const char *device) {
  uct_iface_config_t *config;
  uct_iface_params_t params = {.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
                               .open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
                               .mode.device = {.tl_name = "rc_verbs", .dev_name = device}};
  check(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &made->async));
  check(uct_worker_create(made->async, UCS_THREAD_MODE_SINGLE, &made->worker));
  check(uct_md_iface_config_read(made->md, "rc_verbs", NULL, NULL, &config));
  check(uct_iface_open(made->md, made->worker, &params, config, &made->iface));
  uct_config_release(config);
  uct_iface_progress_enable(made->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
}

static void connect_ends(struct transport *made) {
  uct_iface_attr_t attributes;
  check(uct_iface_query(made->iface, &attributes));
  need((attributes.cap.flags & UCT_IFACE_FLAG_PUT_ZCOPY) != 0, "rc_verbs has no put without a copy");
  uct_device_addr_t *device = malloc(attributes.device_addr_len);
  check(uct_iface_get_device_address(made->iface, device));
  uct_ep_addr_t *addresses[2];
  for (int i = 0; i < 2; ++i) {
    const uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE, .iface = made->iface};
    check(uct_ep_create(&params, &made->ends[i]));
    addresses[i] = malloc(attributes.ep_addr_len);
    check(uct_ep_get_address(made->ends[i], addresses[i]));
  }
  for (int i = 0; i < 2; ++i) {
    check(uct_ep_connect_to_ep(made->ends[i], device, addresses[1 - i]));
  }
  for (int i = 0; i < 2; ++i) free(addresses[i]);
  free(device);
}

static void close_all(struct transport *open) {
  for (int i = 0; i < 2; ++i) uct_ep_destroy(open->ends[i]);
  uct_iface_close(open->iface);
  uct_worker_destroy(open->worker);
  ucs_async_context_destroy(open->async);
  uct_md_close(open->md);
}

static void count_completed(uct_completion_t *self) { (void)self; }

/* One put of all bytes, with a registration of its own, which the cache may have kept. */
static void put(struct transport *over, void *from, void *to, const uct_rkey_bundle_t *key) {
  uct_mem_h registered;
  check(uct_md_mem_reg(over->md, from, bytes, UCT_MD_MEM_ACCESS_ALL, &registered));
  const uct_iov_t all = {.buffer = from, .length = bytes, .memh = registered, .stride = 0, .count = 1};
  uct_completion_t completion = {.func = count_completed, .count = 2, .status = UCS_OK};
  ucs_status_t status;
  while ((status = uct_ep_put_zcopy(over->ends[0], &all, 1, (uintptr_t)to, key->rkey, &completion)) ==
         UCS_ERR_NO_RESOURCE)
    uct_worker_progress(over->worker);
  if (status == UCS_INPROGRESS) {
    while (completion.count > 1) uct_worker_progress(over->worker);
  } else {
    check_at(status, "uct_ep_put_zcopy");
  }
  check_at(completion.status, "the put");
  check(uct_md_mem_dereg(over->md, registered));
}

static void replace(void *memory, const char *how) {
  const long protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  void *mapped;
  if (strcmp(how, "mmap") == 0)
    mapped = mmap(memory, bytes, (int)protection, (int)flags, -1, 0);
  else
    mapped = (void *)syscall(SYS_mmap, memory, (size_t)bytes, protection, flags, -1L, 0L);
  need(mapped == memory, "the memory cannot be replaced");
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "uct_remap <device> <rounds> mmap|syscall\n");
    return 2;
  }
  struct transport over;
  find_device(&over, argv[1]);
  open_iface(&over, argv[1]);
  connect_ends(&over);
  unsigned char *from = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned char *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  need(from != MAP_FAILED && to != MAP_FAILED, "no memory");
  uct_md_attr_t attributes;
  uct_mem_h exposed;
  uct_rkey_bundle_t key;
  check(uct_md_query(over.md, &attributes));
  void *packed = malloc(attributes.rkey_packed_size);
  check(uct_md_mem_reg(over.md, to, bytes, UCT_MD_MEM_ACCESS_ALL, &exposed));
  check(uct_md_mkey_pack(over.md, exposed, packed));
  check(uct_rkey_unpack(over.component, packed, &key));
  const int rounds = atoi(argv[2]);
  long wrong = 0;
  for (int round = 1; round <= rounds; ++round) {
    for (int time = 0; time < 2; ++time) { /* the second finds the registration of the first */
      memset(from, 2 * round + time, bytes);
      put(&over, from, to, &key);
      for (int i = 0; i < bytes; ++i) wrong += to[i] != (unsigned char)(2 * round + time);
    }
    replace(from, argv[3]);
  }
  printf("rounds=%d wrong=%ld\n", rounds, wrong);
  check(uct_rkey_release(over.component, &key));
  check(uct_md_mem_dereg(over.md, exposed));
  free(packed);
  close_all(&over);
  return wrong == 0 ? 0 : 1;
}
