/* SPDX-License-Identifier: BSD-3-Clause */
/* A registration cache of UCX over a driver that counts, and the cases that expect the same of any such cache. */
#ifndef RIG_H
#define RIG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucs/memory/rcache.h>

enum { page = 4096 };
enum { read_only = PROT_READ, read_write = PROT_READ | PROT_WRITE };

struct region {
  ucs_rcache_region_t super;
  unsigned id;                /* of the registration: never repeats */
  unsigned alive;             /* `alive_mark` between mem_reg and mem_dereg */
  ucs_rcache_region_t *below; /* of the cache below */
};
enum { alive_mark = 0x600d };

struct driver {
  unsigned registered, deregistered; /* calls; atomic */
  unsigned inside, most_inside;      /* calls at one time; atomic */
  unsigned hidden;                   /* calls of mem_reg that are to hide errors */
  ucs_rcache_t *below;               /* mem_reg gets a region there */
  int elsewhere;                     /* the memory is not this process's */
  ucs_status_t fails;                /* mem_reg returns this, unless it is UCS_OK */
};
extern struct driver driver;

/* Defaults of UCX, and the driver. */
ucs_rcache_params_t params(void);
/* Makes a cache over a driver that starts anew; a failure ends the program. */
ucs_rcache_t *make(const ucs_rcache_params_t *params);

/* ucs_rcache_get, whose failure ends the program. */
struct region *get(ucs_rcache_t *cache, void *address, size_t bytes, int prot);
void put(ucs_rcache_t *cache, struct region *region);
/* Gets and puts; returns the id. */
unsigned touch(ucs_rcache_t *cache, void *address, size_t bytes, int prot);

/* Anonymous memory, present; ends the program when there is none. */
char *map(size_t bytes);
/* Replaces memory, at its address. */
void remap(void *address, size_t bytes);

int is_alive(const struct region *region);
/* Whether the region covers exactly these bytes. */
int is_exactly(const struct region *region, const void *address, size_t bytes);
/* Registrations that are open. */
unsigned open_now(void);

/* Notes a failure of the running case. */
void expect_at(int holds, const char *what, const char *file, int line);
#define expect(condition) expect_at((condition) != 0, #condition, __FILE__, __LINE__)

struct test_case {
  const char *name;
  void (*run)(void);
};
/* Each file has some, ended by one without a name. */
extern const struct test_case requests[], merging[], limits[], invalidations[], failures[], threads[], beyond[];

#endif
