// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
// Records memory that goes away in an address space in that address space's ring: before it goes, or, if another
// process takes it, before that process's system call returns, or, if a request of an io_uring takes it, before its
// completion can be read. programs.cpp loads and attaches these programs. x86-64.
//
// No vmlinux.h: the structures below declare only the members in use, and the loader finds their offsets in the running
// kernel.
#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "monitors/bpf/layout.h"

#define KERNEL __attribute__((preserve_access_index))
#define INLINE static inline __attribute__((always_inline))

typedef _Bool bool;
typedef __u64 u64;
typedef __u32 u32;

struct rb_node;
struct rb_root {
  struct rb_node* rb_node;
} KERNEL;
struct rb_root_cached {
  struct rb_root rb_root;
} KERNEL;
struct inode;
struct address_space {
  struct inode* host;
  struct rb_root_cached i_mmap;
} KERNEL;
struct super_block {
  unsigned long s_magic;
} KERNEL;
struct inode {
  struct super_block* i_sb;
  struct address_space* i_mapping;
} KERNEL;
struct folio {
  struct address_space* mapping;
} KERNEL;
struct file {
  struct address_space* f_mapping;
  struct inode* f_inode;
} KERNEL;
struct fdtable {
  unsigned int max_fds;
  struct file** fd;
} KERNEL;
struct files_struct {
  struct fdtable* fdt;
} KERNEL;
struct mm_struct {
  unsigned long brk;
} KERNEL;
struct thread_info {
  u32 status;
} KERNEL;
struct task_struct {
  struct thread_info thread_info;
  unsigned int flags;
  struct mm_struct* mm;
  struct files_struct* files;
  void* worker_private;
} KERNEL;
struct pt_regs {
  unsigned long di, si, dx, r10, r8, orig_ax;
} KERNEL;
struct io_wq_work {
  int cancel_seq;
} KERNEL;
struct io_worker {
  struct io_wq_work* cur_work;
} KERNEL;
struct io_kiocb {
  __u8 opcode;
  struct io_wq_work work;
} KERNEL;
struct io_madvise {
  u64 addr, len;
  u32 advice;
} KERNEL;
struct open_how {
  u64 flags;
} KERNEL;
struct io_open {
  struct open_how how;
} KERNEL;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct ring_map {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(u32));
  __uint(value_size, sizeof(struct pinfold_area));
};

/// The ring of each slot, closed or not, until the slot gets another: each change of this map waits for a grace period.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, pinfold_slots);
  __type(key, u32);
  __array(values, struct ring_map);
} rings SEC(".maps");

/// The owner of each slot: 0, a reservation, or the address space. The loader changes it, too, by compare-and-swap.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, u64[pinfold_slots]);
} slots SEC(".maps");

/// The slot of each address space. Changed only by the address space's own system calls and by its end, so always
/// correct.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, pinfold_slots);
  __type(key, u64);
  __type(value, u32);
} users SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, pinfold_slots);
  __type(key, struct pinfold_secret);
  __type(value, struct pinfold_invitation);
} invitations SEC(".maps");

#define page_mask 4095UL
#define the_end (~0UL)

INLINE void record(struct pinfold_area* area, u64 begin, u64 end) {
  const u64 number = __sync_fetch_and_add(&area->generation, 1);
  volatile struct pinfold_record* at = &area->records[number & (pinfold_records - 1)];
  at->begin = begin;
  at->end = end;
  at->check = pinfold_check(number, begin, end);
}

INLINE struct pinfold_area* area_of(u32 slot) {
  const u32 only = 0;
  void* ring = bpf_map_lookup_elem(&rings, &slot);
  return ring == 0 ? 0 : bpf_map_lookup_elem(ring, &only);
}

static __attribute__((noinline)) int record_in(u64 mm, u64 begin, u64 end) {
  const u32* slot = bpf_map_lookup_elem(&users, &mm);
  if (slot == 0) return 0;
  struct pinfold_area* area = area_of(*slot);
  if (area != 0) record(area, begin, end);
  return 0;
}

INLINE u64* owner_of(u32 slot) {
  const u32 only = 0;
  u64* all = bpf_map_lookup_elem(&slots, &only);
  return all == 0 || slot >= pinfold_slots ? 0 : &all[slot];
}

/// Gives the address space this slot, unless it has another whose ring is still in use. Returns false in that case.
INLINE bool assign_slot(u64 mm, u32 slot) {
  if (bpf_map_update_elem(&users, &mm, &slot, BPF_NOEXIST) == 0) return 1;
  const u32* old = bpf_map_lookup_elem(&users, &mm);
  if (old == 0) return 0;
  const volatile struct pinfold_area* area = area_of(*old);
  if (area != 0 && area->closed == 0) return 0;
  u64* owner = owner_of(*old);
  if (owner == 0 || __sync_val_compare_and_swap(owner, mm, 0) != mm) return 0;
  return bpf_map_update_elem(&users, &mm, &slot, BPF_ANY) == 0;
}

static __attribute__((noinline)) int accept_invitation(u64 first, u64 second, u64 mm) {
  const struct pinfold_secret secret = {first, second};
  struct pinfold_invitation* invited = bpf_map_lookup_elem(&invitations, &secret);
  if (invited == 0) return 0;
  u64* owner = owner_of(invited->slot);
  const u64 reserved = invited->reservation;
  if (owner == 0 || __sync_val_compare_and_swap(owner, reserved, mm) != reserved) return 0;
  const bool assigned = assign_slot(mm, invited->slot);
  if (!assigned) __sync_val_compare_and_swap(owner, mm, reserved);
  invited->process = bpf_get_current_pid_tgid() >> 32;
  invited->user = bpf_get_current_uid_gid();
  if (assigned) record_in(mm, 0, the_end);
  *(volatile u32*)&invited->answer = assigned ? pinfold_accepted : pinfold_second;
  return 0;
}

/// Returns whether the advice is known to leave the pages unchanged. An unknown advice may do anything.
INLINE bool is_harmless(u64 advice) {
  const u64 harmless = 1UL << 0 | 1UL << 1 | 1UL << 2 | 1UL << 3 |  // NORMAL, RANDOM, SEQUENTIAL, WILLNEED
                       1UL << 10 | 1UL << 11 |                      // DONTFORK, DOFORK
                       1UL << 14 | 1UL << 15 |                      // HUGEPAGE, NOHUGEPAGE
                       1UL << 16 | 1UL << 17 |                      // DONTDUMP, DODUMP
                       1UL << 18 | 1UL << 19 |                      // WIPEONFORK, KEEPONFORK
                       1UL << 20 | 1UL << 22 | 1UL << 23;           // COLD, POPULATE_READ, POPULATE_WRITE
  return advice < 64 && (harmless >> advice & 1) != 0;
}

/// Returns whether the advice takes pages from the file that is mapped: REMOVE, HWPOISON and SOFT_OFFLINE. The file may
/// also be mapped elsewhere.
INLINE bool takes_from_file(u64 advice) { return advice == 9 || advice == 100 || advice == 101; }

enum { tmpfs_magic = 0x01021994, hugetlbfs_magic = 0x958458f6 };

/// False if no process maps the file. Known only for memory files, where the file itself holds the pages.
INLINE bool may_be_mapped(struct task_struct* task, u32 number) {
  struct fdtable* table = BPF_CORE_READ(task, files, fdt);
  if (number >= BPF_CORE_READ(table, max_fds)) return 0;
  struct file** at = BPF_CORE_READ(table, fd) + number;
  struct file* file = 0;
  bpf_probe_read_kernel(&file, sizeof file, at);
  if (file == 0) return 0;
  const unsigned long magic = BPF_CORE_READ(file, f_inode, i_sb, s_magic);
  if (magic != tmpfs_magic && magic != hugetlbfs_magic) return 1;
  return BPF_CORE_READ(file, f_mapping, i_mmap.rb_root.rb_node) != 0;
}

// System-call numbers of x86-64.
enum {
  sys_open = 2,
  sys_mmap = 9,
  sys_munmap = 11,
  sys_brk = 12,
  sys_ioctl = 16,
  sys_mremap = 25,
  sys_madvise = 28,
  sys_shmat = 30,
  sys_shmdt = 67,
  sys_truncate = 76,
  sys_ftruncate = 77,
  sys_creat = 85,
  sys_prctl = 157,
  sys_remap_file_pages = 216,
  sys_openat = 257,
  sys_fallocate = 285,
  sys_open_by_handle_at = 304,
  sys_copy_file_range = 326,
  sys_openat2 = 437,
  sys_process_madvise = 440,
  x32_bit = 0x40000000,
  ts_compat = 2,
  map_fixed = 0x10,
  map_anonymous = 0x20,
  map_hugetlb = 0x40000,
  mremap_maymove = 1,
  mremap_fixed = 2,
  shm_remap = 040000,
  falloc_keep_size = 1,
  o_trunc = 01000,
};

/// Returns whether an ioctl with this request takes pages of a file away, or puts others in their place.
INLINE bool changes_a_file(u32 request) {
  switch (request) {
    case 0x40305829:  // FS_IOC_UNRESVSP
    case 0x4030582b:  // FS_IOC_UNRESVSP64
    case 0x40305839:  // FS_IOC_ZERO_RANGE
    case 0x40049409:  // FICLONE
    case 0x4020940d:  // FICLONERANGE
    case 0xc0189436:  // FIDEDUPERANGE
    case 0x1277:      // BLKDISCARD
    case 0x127d:      // BLKSECDISCARD
    case 0x127f:      // BLKZEROOUT
      return 1;
    default: return 0;
  }
}

/// Records [address, address + bytes) in whole pages, as the kernel rounds it. A length that overflows means
/// everything.
INLINE int goes(u64 mm, u64 address, u64 bytes) {
  if (bytes == 0) return 0;
  const u64 begin = address & ~page_mask;
  const u64 end = (address + bytes + page_mask) & ~page_mask;
  return end > begin ? record_in(mm, begin, end) : record_in(mm, 0, the_end);
}

INLINE int advised(u64 mm, u64 advice, u64 address, u64 bytes) {
  if (is_harmless(advice)) return 0;
  return takes_from_file(advice) ? record_in(mm, 0, the_end) : goes(mm, address, bytes);
}

/// Returns how many bytes a call takes that rounds a length up to the mapping's own huge page, whose size is unknown
/// here. Such a mapping begins at a multiple of its page.
INLINE u64 in_any_size(u64 address, u64 bytes) {
  const u64 mebibytes_2 = (1UL << 21) - 1, gibibyte = (1UL << 30) - 1;
  if (bytes == 0) return 0;
  if ((address & mebibytes_2) == 0) bytes = (bytes + mebibytes_2) & ~mebibytes_2;
  if ((address & gibibyte) == 0) bytes = (bytes + gibibyte) & ~gibibyte;
  return bytes != 0 ? bytes : ~0UL;  // a length that overflows
}

INLINE int mapped_over(u64 mm, const struct pt_regs* regs) {
  const u64 address = regs->di, bytes = regs->si, flags = regs->r10;
  if ((flags & map_fixed) == 0) return 0;
  const bool huge = (flags & map_hugetlb) != 0 || (flags & map_anonymous) == 0;
  return goes(mm, address, huge ? in_any_size(address, bytes) : bytes);
}

INLINE int remapped(u64 mm, const struct pt_regs* regs) {
  const u64 address = regs->di, new_bytes = regs->dx, flags = regs->r10;
  const u64 old_bytes = in_any_size(address, regs->si);
  if ((flags & mremap_fixed) != 0) goes(mm, regs->r8, in_any_size(regs->r8, new_bytes));
  if (flags > mremap_maymove) return goes(mm, address, old_bytes);
  if (new_bytes < regs->si) return goes(mm, address + new_bytes, old_bytes - new_bytes);
  return flags == 0 ? 0 : goes(mm, address, old_bytes);
}

INLINE int broke(struct mm_struct* mm, u64 to) {
  const u64 now = mm->brk;
  return to != 0 && to < now ? goes((u64)mm, to, now - to) : 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_system_call, struct pt_regs* regs, long number) {
  struct task_struct* task = bpf_get_current_task_btf();
  struct mm_struct* space = task->mm;
  const u64 mm = (u64)space;
  // The 32-bit calls have other numbers, and any process may make them.
  if ((task->thread_info.status & ts_compat) != 0) return record_in(mm, 0, the_end);
  switch ((u32)number & ~x32_bit) {
    case sys_munmap: return goes(mm, regs->di, regs->si);
    case sys_mmap: return mapped_over(mm, regs);
    case sys_mremap: return remapped(mm, regs);
    case sys_madvise: return advised(mm, (u32)regs->dx, regs->di, regs->si);
    case sys_brk: return broke(space, regs->di);
    case sys_shmdt: return record_in(mm, regs->di & ~page_mask, the_end);
    case sys_shmat: return (regs->dx & shm_remap) != 0 ? record_in(mm, regs->si & ~page_mask, the_end) : 0;
    case sys_remap_file_pages: return goes(mm, regs->di & ~page_mask, regs->si);
    case sys_process_madvise: return is_harmless(regs->r10) ? 0 : record_in(mm, 0, the_end);
    case sys_truncate: return record_in(mm, 0, the_end);
    case sys_ftruncate: return may_be_mapped(task, regs->di) ? record_in(mm, 0, the_end) : 0;
    case sys_fallocate:
      if (((u32)regs->si & ~falloc_keep_size) == 0) return 0;
      return may_be_mapped(task, regs->di) ? record_in(mm, 0, the_end) : 0;
    case sys_ioctl:
      return changes_a_file(regs->si) && may_be_mapped(task, regs->di) ? record_in(mm, 0, the_end) : 0;
    case sys_prctl: return (u32)regs->di == pinfold_prctl ? accept_invitation(regs->si, regs->dx, mm) : 0;
    default: return 0;
  }
}

/// Opening for writing empties a file, too. That is too frequent to record the loss of everything each time: only pages
/// of this process that go away during the call count.
INLINE bool empties_a_file(struct task_struct* task) {
  const struct pt_regs* regs = (const struct pt_regs*)bpf_task_pt_regs(task);
  switch (regs->orig_ax) {
    case sys_open:
    case sys_creat:
    case sys_openat:
    case sys_openat2:
    case sys_open_by_handle_at:
    case sys_copy_file_range: return 1;
    default: return 0;
  }
}

enum { pf_io_worker = 0x10, pf_memalloc = 0x800 };
enum { op_fallocate = 17, op_openat = 18, op_madvise = 25, op_openat2 = 28, op_ftruncate = 55 };

/// Returns whether the task is a worker of an io_uring that executes a request of those that take pages away. The kernel
/// executes all of these in workers.
INLINE bool executes_a_request(struct task_struct* task) {
  if ((task->flags & pf_io_worker) == 0 || task->worker_private == 0) return 0;
  const char* work = (const char*)BPF_CORE_READ((struct io_worker*)task->worker_private, cur_work);
  if (work == 0) return 0;
  const struct io_kiocb* request = (const struct io_kiocb*)(work - bpf_core_field_offset(struct io_kiocb, work));
  switch (BPF_CORE_READ(request, opcode)) {
    case op_fallocate:
    case op_openat:
    case op_madvise:
    case op_openat2:
    case op_ftruncate: return 1;
    default: return 0;
  }
}

/// Returns whether the task frees memory because it found too little, and so unmaps any pages.
INLINE bool reclaims(struct task_struct* task) { return (task->flags & pf_memalloc) != 0; }

/// Records a change of the page count by another process, which truncates a file or punches a hole into it, or by a
/// request of this process's io_uring: it may have waited for another since it was submitted. A page that was reclaimed
/// is counted no more, so it may leave its file without another event.
SEC("tp_btf/rss_stat")
int BPF_PROG(on_page_count, struct mm_struct* mm) {
  struct task_struct* task = bpf_get_current_task_btf();
  if (task->mm == mm && !empties_a_file(task) && !executes_a_request(task) && !reclaims(task)) return 0;
  return record_in((u64)mm, 0, the_end);
}

INLINE int record_request(struct io_kiocb* request, __u8 operation) {
  const u64 mm = (u64)bpf_get_current_task_btf()->mm;
  if (operation == op_fallocate || operation == op_ftruncate) return record_in(mm, 0, the_end);
  if (operation == op_openat || operation == op_openat2) {
    const u64 flags = BPF_CORE_READ((struct io_open*)request, how.flags);
    return (flags & o_trunc) != 0 ? record_in(mm, 0, the_end) : 0;
  }
  if (operation != op_madvise) return 0;
  struct io_madvise* asked = (struct io_madvise*)request;
  return advised(mm, BPF_CORE_READ(asked, advice), BPF_CORE_READ(asked, addr), BPF_CORE_READ(asked, len));
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(on_ring_request, struct io_kiocb* request) { return record_request(request, request->opcode); }

/// Again, because huge pages are not in the page count. Runs before the completion can be read.
SEC("tp_btf/io_uring_complete")
int BPF_PROG(on_ring_completion, void* ring, struct io_kiocb* request) {
  return record_request(request, BPF_CORE_READ(request, opcode));
}

static long record_in_each(void* map, const u64* mm, u32* slot, void* context) {
  struct pinfold_area* area = area_of(*slot);
  if (area != 0) record(area, 0, the_end);
  return 0;
}

INLINE int record_if_mapped(struct inode* inode) {
  if (BPF_CORE_READ(inode, i_mapping, i_mmap.rb_root.rb_node) != 0) bpf_for_each_map_elem(&users, record_in_each, 0, 0);
  return 0;
}

// Huge pages are not in the page count. This program runs after the hole was made.
SEC("tp_btf/hugetlbfs_fallocate")
int BPF_PROG(on_huge_allocate, struct inode* inode, int mode) {
  return (mode & ~falloc_keep_size) != 0 ? record_if_mapped(inode) : 0;
}

// Runs for each page of a file that becomes shorter, after the page was unmapped. Until then it may be registered again,
// although the file's size has changed and other pages have gone.
SEC("tp_btf/mm_filemap_delete_from_page_cache")
int BPF_PROG(on_page_removed, struct folio* page) {
  struct inode* file = page->mapping->host;
  return file->i_sb->s_magic == hugetlbfs_magic ? record_if_mapped(file) : 0;
}

/// Runs at exec, too. Afterwards another process's address space may lie at this address.
SEC("tp_btf/exit_mmap")
int BPF_PROG(on_end, struct mm_struct* space) {
  const u64 mm = (u64)space;
  const u32* slot = bpf_map_lookup_elem(&users, &mm);
  if (slot == 0) return 0;
  u64* owner = owner_of(*slot);
  bpf_map_delete_elem(&users, &mm);
  if (owner != 0) __sync_val_compare_and_swap(owner, mm, 0);
  return 0;
}
