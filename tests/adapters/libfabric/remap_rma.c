/* SPDX-License-Identifier: BSD-3-Clause */
/* remap_rma <provider> <rounds> [<address> [<way>]]: writes a buffer to another by RMA, over an endpoint connected with
 * itself, and compares every byte. Registers both buffers for each transfer, in turn by each of the three calls, and
 * puts other pages behind them every third round: by mmap, madvise, mremap, or by syscall(2) with the number of madvise
 * (`syscall`), mmap, munmap, or mremap. Exits with 77 where the provider is missing, with 1 after a wrong byte. */
#define _GNU_SOURCE
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { bytes = 1 << 20, all_access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE };

static void must(int answer, const char *what) {
  if (answer == 0) return;
  fprintf(stderr, "%s: %s\n", what, fi_strerror(-answer));
  exit(EXIT_FAILURE);
}

static struct fi_info *offer_of(const char *provider, const char *address) {
  struct fi_info *hints = fi_allocinfo();
  struct fi_info *found = NULL;
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = FI_MR_BASIC; /* providers in software choose keys only with this */
  if (strncmp(provider, "verbs", 5) == 0)
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  hints->fabric_attr->prov_name = strdup(provider);
  const int refused = fi_getinfo(FI_VERSION(1, 15), address, NULL, FI_SOURCE, hints, &found);
  fi_freeinfo(hints);
  if (refused != 0) {
    printf("libfabric has no provider %s here\n", provider);
    exit(77);
  }
  return found;
}

struct connection {
  struct fi_info *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *addresses;
  struct fid_cq *completions;
  struct fid_ep *endpoint;
  fi_addr_t self;
};

static void open_connection(struct connection *to, const char *provider, const char *address) {
  struct fi_av_attr table = {.type = FI_AV_UNSPEC};
  struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_CONTEXT};
  char name[256];
  size_t length = sizeof name;
  to->info = offer_of(provider, address);
  must(fi_fabric(to->info->fabric_attr, &to->fabric, NULL), "fi_fabric");
  must(fi_domain(to->fabric, to->info, &to->domain, NULL), "fi_domain");
  must(fi_av_open(to->domain, &table, &to->addresses, NULL), "fi_av_open");
  must(fi_cq_open(to->domain, &queue, &to->completions, NULL), "fi_cq_open");
  must(fi_endpoint(to->domain, to->info, &to->endpoint, NULL), "fi_endpoint");
  must(fi_ep_bind(to->endpoint, &to->addresses->fid, 0), "fi_ep_bind");
  must(fi_ep_bind(to->endpoint, &to->completions->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  must(fi_enable(to->endpoint), "fi_enable");
  must(fi_getname(&to->endpoint->fid, name, &length), "fi_getname");
  if (fi_av_insert(to->addresses, name, 1, &to->self, 0, NULL) != 1) must(-FI_EINVAL, "fi_av_insert");
}

static void close_connection(struct connection *to) {
  must(fi_close(&to->endpoint->fid), "fi_close of the endpoint");
  must(fi_close(&to->completions->fid), "fi_close of the queue");
  must(fi_close(&to->addresses->fid), "fi_close of the addresses");
  must(fi_close(&to->domain->fid), "fi_close of the domain");
  must(fi_close(&to->fabric->fid), "fi_close of the fabric");
  fi_freeinfo(to->info);
}

static struct fid_mr *registered(struct connection *at, void *memory, unsigned way) {
  const struct iovec where = {memory, bytes};
  const struct fi_mr_attr what = {.mr_iov = &where, .iov_count = 1, .access = all_access, .context = memory};
  struct fid_mr *region = NULL;
  switch (way % 3) {
    case 0: must(fi_mr_reg(at->domain, memory, bytes, all_access, 0, 0, 0, &region, memory), "fi_mr_reg"); break;
    case 1: must(fi_mr_regv(at->domain, &where, 1, all_access, 0, 0, 0, &region, memory), "fi_mr_regv"); break;
    default: must(fi_mr_regattr(at->domain, &what, 0, &region), "fi_mr_regattr");
  }
  if (region->fid.context != memory) must(-FI_EINVAL, "the context of the region");
  return region;
}

static void transfer(struct connection *over, char *source, struct fid_mr *from, char *target, struct fid_mr *to) {
  struct fi_cq_entry done;
  struct fi_context2 context;
  ssize_t answer;
  do
    answer = fi_write(over->endpoint, source, bytes, fi_mr_desc(from), over->self, (uintptr_t)target, fi_mr_key(to),
                      &context);
  while (answer == -FI_EAGAIN && fi_cq_read(over->completions, &done, 0) <= 0);
  must((int)answer, "fi_write");
  do answer = fi_cq_read(over->completions, &done, 1);
  while (answer == -FI_EAGAIN);
  must(answer == 1 ? 0 : (int)answer, "fi_cq_read");
}

static void *mapped(void *at) {
  void *memory =
      mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0), -1, 0);
  if (memory == MAP_FAILED) must(-FI_ENOMEM, "mmap");
  return memory;
}

static void move_away(void *at) {
  void *elsewhere = mapped(NULL);
  if (mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) != elsewhere) must(-FI_ENOMEM, "mremap");
  mapped(at);
  munmap(elsewhere, bytes);
}

static void map_by_syscall(void *at) {
  const long access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if ((void *)syscall(SYS_mmap, at, (size_t)bytes, access, kind, -1L, 0L) != at) must(-FI_ENOMEM, "mmap");
}

static void move_away_by_syscall(void *at) {
  void *elsewhere = mapped(NULL);
  const long kind = MREMAP_MAYMOVE | MREMAP_FIXED;
  if ((void *)syscall(SYS_mremap, at, (size_t)bytes, (size_t)bytes, kind, elsewhere) != elsewhere)
    must(-FI_ENOMEM, "mremap");
  map_by_syscall(at);
  munmap(elsewhere, bytes);
}

static void put_other_pages_behind(void *at, const char *way) {
  if (strcmp(way, "mmap") == 0)
    mapped(at);
  else if (strcmp(way, "madvise") == 0)
    madvise(at, bytes, MADV_DONTNEED);
  else if (strcmp(way, "mremap") == 0)
    move_away(at);
  else if (strcmp(way, "syscall") == 0)
    syscall(SYS_madvise, at, (size_t)bytes, MADV_DONTNEED);
  else if (strcmp(way, "syscall-mmap") == 0)
    map_by_syscall(at);
  else if (strcmp(way, "syscall-munmap") == 0)
    syscall(SYS_munmap, at, (size_t)bytes), map_by_syscall(at);
  else if (strcmp(way, "syscall-mremap") == 0)
    move_away_by_syscall(at);
  else
    exit(2);
}

static size_t differing(const char *one, const char *other) {
  size_t count = 0;
  for (size_t at = 0; at < bytes; ++at) count += one[at] != other[at];
  return count;
}

static size_t one_round(struct connection *over, char *source, char *target, unsigned round) {
  memset(source, (int)round + 1, bytes);
  memset(target, 0, bytes);
  struct fid_mr *from = registered(over, source, round);
  struct fid_mr *to = registered(over, target, round + 1);
  struct fid_mr *again = registered(over, target, round + 2);
  must(fi_close(&again->fid), "fi_close of a second region"); /* the first still works */
  transfer(over, source, from, target, to);
  must(fi_close(&from->fid), "fi_close of a region");
  must(fi_close(&to->fid), "fi_close of a region");
  return differing(source, target);
}

/* Passes through, where the provider can: a region of two pieces. */
static void register_pieces(struct connection *at, char *memory) {
  const struct iovec pieces[] = {{memory, bytes / 4}, {memory + bytes / 2, bytes / 4}};
  struct fid_mr *region = NULL;
  if (at->info->domain_attr->mr_iov_limit >= 2 &&
      fi_mr_regv(at->domain, pieces, 2, FI_SEND, 0, 0, 0, &region, NULL) == 0)
    must(fi_close(&region->fid), "fi_close of a region of two pieces");
}

int main(int count, char **words) {
  if (count < 3) return 2;
  struct connection to_self = {0};
  open_connection(&to_self, words[1], count > 3 ? words[3] : "127.0.0.1");
  char *source = mapped(NULL);
  char *target = mapped(NULL);
  const unsigned rounds = (unsigned)atoi(words[2]);
  size_t wrong = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    wrong += one_round(&to_self, source, target, round);
    if (round % 3 == 2) put_other_pages_behind(round % 2 == 0 ? source : target, count > 4 ? words[4] : "mmap");
  }
  register_pieces(&to_self, source);
  close_connection(&to_self);
  printf("rounds=%u wrong=%zu\n", rounds, wrong);
  return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
