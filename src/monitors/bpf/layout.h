/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* \file
 * The layout shared by the kernel programs of monitors/bpf and the processes that use them. Read by both compilers: C.
 */
#pragma once

#include <linux/types.h>

enum {
  pinfold_records = 4096, /* in one ring; a power of two */
  pinfold_slots = 1024,  /* how many processes one set of programs can serve */
  pinfold_prctl = 0x70696e66,
};

/* Memory that goes away: [begin, end). `check` is pinfold_check() of the record's number, begin and end, so that no
 * reader accepts a record that is incomplete or partly overwritten. */
struct pinfold_record {
  __u64 begin;
  __u64 end;
  __u64 check;
};

/* One address space's ring, the only value of an array map that is mapped into its process. */
struct pinfold_area {
  __u64 generation; /* the number of the next record; starts with a number that no ring had before */
  __u64 closed;     /* not 0 once nothing more is recorded there */
  __u64 padding[6];
  struct pinfold_record records[pinfold_records];
};

static inline __u64 pinfold_check(__u64 number, __u64 begin, __u64 end) {
  return (number + 1) * 0x9e3779b97f4a7c15ULL ^ begin ^ (end << 17 | end >> 47);
}

/* An address space takes a slot by the system call prctl(pinfold_prctl, first, second, 0, 0), with a secret number
 * that the process that reserved the slot has put into the map of invitations. */
struct pinfold_secret {
  __u64 first;
  __u64 second;
};

enum pinfold_answer { pinfold_waiting = 0, pinfold_accepted = 1, pinfold_second = 2 };

struct pinfold_invitation {
  __u64 reservation; /* the value in `slots` until an address space has it: odd, so that it is no address */
  __u32 slot;
  __u32 answer; /* enum pinfold_answer */
  __u32 process; /* process and user of the caller, as numbers of the first namespaces */
  __u32 user;
};
