/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface, for C99 and later and for C++.
 *
 * **Errors.** A function that returns `int` returns `PINFOLD_OK`, or a negative `PINFOLD_E_` code; the codes never
 * change. A function that returns a lease returns an empty one (`pin == 0`) on failure. After a failure,
 * `pinfold_last_error` has the driver's own code and a sentence. Bad input changes nothing.
 *
 * **Structures.** A structure that begins with `size` may grow. Set it to 0 as a whole, then `size` to its `sizeof`.
 * 0 is the default of every member, except in `pinfold_options`, which `pinfold_options_init` fills. The library
 * rejects a `size` of 0 or above 4 KiB, and a larger structure than its own whose unknown tail is not all zero.
 *
 * **Threads.** Every function may be called on any thread at any time, but an object must not be destroyed while
 * another call uses it. Do not acquire or release in a signal handler.
 *
 * **Callbacks** of a registrar, importer or sink run on the thread that caused them, without a lock. A callback may use
 * other caches. On its own cache it may only read (`pinfold_statistics_of`), invalidate, and release leases: any other
 * call that could wait returns `PINFOLD_E_IN_USE_CONFLICT`, except an acquire that is a hit. No callback may leave with
 * longjmp(3) or pthread_exit(3). A C++ exception counts as a failure.
 *
 * **Cancellation.** A thread that is cancelled (pthread_cancel(3), deferred) in a call finishes the call first.
 */
#ifndef PINFOLD_PINFOLD_H
#define PINFOLD_PINFOLD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Before a function: the library exports it. */
#define PINFOLD_API __attribute__((visibility("default")))

/** Before a function that returns a lease: the compiler warns if the lease is dropped, because nothing would release
 *  it. */
#define PINFOLD_USE_RESULT __attribute__((warn_unused_result))

/** The version of this header: major, minor, patch, in 16, 8 and 8 bits. */
#define PINFOLD_API_VERSION 0x000200U

/** Returns the library's version, as PINFOLD_API_VERSION. */
PINFOLD_API uint32_t pinfold_version(void);

/* ---- Errors ---- */

/** The result of a call. */
enum pinfold_error_code {
  PINFOLD_OK = 0,                    /**< success */
  PINFOLD_E_INVALID_RANGE = -1,      /**< empty, wraps around, or reaches outside the memory of its handle */
  PINFOLD_E_INVALID_HANDLE = -2,     /**< not a handle of this importer, or damaged */
  PINFOLD_E_INVALID_ARGUMENT = -3,   /**< null, an unknown bit, a wrong size, a call that this object does not have */
  PINFOLD_E_TOO_LARGE = -4,          /**< above what the registrar can register in one piece */
  PINFOLD_E_NOT_PERMITTED = -5,      /**< the system refuses this process the access */
  PINFOLD_E_OVER_BUDGET = -6,        /**< the budget is used up, and no idle entry is left to close */
  PINFOLD_E_LARGER_THAN_BUDGET = -7, /**< this one request exceeds the whole budget */
  PINFOLD_E_OUT_OF_RESOURCES = -8,   /**< no memory; or the driver has no room, though every idle entry is closed */
  PINFOLD_E_IN_USE_CONFLICT = -9,    /**< memory that the request needs is mapped by something still in use */
  PINFOLD_E_ALREADY_MAPPED = -10,    /**< from a callback to its cache: overlaps an open registration */
  PINFOLD_E_STALE_HANDLE = -11,      /**< the exporter has freed or replaced the memory behind this handle */
  PINFOLD_E_PEER_GONE = -12,         /**< the exporting process has ended */
  PINFOLD_E_UNSUPPORTED = -13,       /**< not possible on this host, or with this memory */
  PINFOLD_E_TIMED_OUT = -14,         /**< a deadline from the options passed */
  PINFOLD_E_DRIVER_ERROR = -15,      /**< any other failure of the driver; see the native code */
  PINFOLD_E_CLOSED = -16             /**< the cache is destroyed, or was made by the parent of this process */
};

/** The origin of a native code. */
enum pinfold_native_kind {
  PINFOLD_NATIVE_NONE = 0,     /**< there is none */
  PINFOLD_NATIVE_POSIX = 1,    /**< an errno value */
  PINFOLD_NATIVE_CUDA = 2,     /**< a CUresult */
  PINFOLD_NATIVE_LIBFABRIC = 3 /**< a fi_errno, positive */
};

/** One failure. `message` is static text, or null from a callback that has none; after a refused setting, text that is
 *  valid until the thread's next failure. */
typedef struct pinfold_error {
  int code;            /**< a PINFOLD_E_ code */
  int native_kind;     /**< a PINFOLD_NATIVE_ number */
  int native;          /**< the driver's own code; 0 where no driver was involved */
  const char *message; /**< a sentence */
} pinfold_error;

/** Returns the failure of this thread's last call that failed. Valid until the thread's next failure. */
PINFOLD_API const pinfold_error *pinfold_last_error(void);

/** Returns the code's name, such as "invalid_range"; "ok" for 0, and "unknown" for numbers that are no code. */
PINFOLD_API const char *pinfold_error_name(int code);

/**
 * Writes a line about the failure, for people, with the meaning of the native code. Like snprintf(3), writes at most
 * `room` bytes with the final 0, and returns the length of the whole line.
 */
PINFOLD_API size_t pinfold_describe_error(const pinfold_error *failure, char *text, size_t room);

/* ---- Options ---- */

/** No limit. */
#define PINFOLD_UNLIMITED SIZE_MAX

/** Access, combined with `|`. */
enum pinfold_access {
  PINFOLD_LOCAL_READ = 1,    /**< the device reads the memory on behalf of this process */
  PINFOLD_LOCAL_WRITE = 2,   /**< the device writes the memory on behalf of this process */
  PINFOLD_REMOTE_READ = 4,   /**< peers read it */
  PINFOLD_REMOTE_WRITE = 8,  /**< peers write it */
  PINFOLD_REMOTE_ATOMIC = 16 /**< peers do atomic operations on it */
};

/** Monitors that tell a cache that memory of this process is gone; combined with `|`. See docs/understand/monitors.md. */
enum pinfold_monitor {
  PINFOLD_MONITOR_AUTOMATIC = 0,   /**< hooks and userfaultfd, those that prove themselves here */
  PINFOLD_MONITOR_MANUAL = 1,      /**< the application calls pinfold_invalidate or pinfold_announce_gone */
  PINFOLD_MONITOR_HOOKS = 2,       /**< patches libc's functions; alone only if no other code unmaps */
  PINFOLD_MONITOR_USERFAULTFD = 4, /**< the kernel reports each registered range that goes */
  PINFOLD_MONITOR_BPF = 8,         /**< programs in the kernel; needs privileges, or pinfold-monitord(1) */
  PINFOLD_MONITOR_NONE = 128       /**< no monitor: the cache keeps nothing */
};

/** What an acquire does when the budget is used up and no entry is idle. */
enum pinfold_when_full {
  PINFOLD_FULL_FAIL = 0,  /**< fails with PINFOLD_E_OVER_BUDGET at once */
  PINFOLD_FULL_WAIT = 1,  /**< waits for room, at most `full_timeout_ms` */
  PINFOLD_FULL_BYPASS = 2 /**< registers outside the budget, until the last release */
};

/** What is registered for a request that overlaps registrations of local memory. */
enum pinfold_merge {
  PINFOLD_MERGE_NONE = 0,    /**< the requested range */
  PINFOLD_MERGE_RIGHTS = 1,  /**< with the registrations around it that lack access: their ranges, the access of all */
  PINFOLD_MERGE_OVERLAPS = 2 /**< also with all registrations that overlap */
};

/** Flags of a cache. */
enum pinfold_cache_flags {
  PINFOLD_NO_RETAIN = 1,            /**< close each registration with its last release */
  PINFOLD_STRICT = 2,               /**< with userfaultfd: also for addresses that another thread unmapped */
  PINFOLD_ALLOCATOR_HINTS = 4,      /**< make malloc return less memory to the system */
  PINFOLD_PROGRAM_DATA = 8,         /**< keep registrations of programs' and libraries' text and data */
  PINFOLD_DEFERRED_CLOSES = 16,     /**< close in the next miss, progress, flush, or reaper, not in a release */
  PINFOLD_REAPER = 32,              /**< run a thread that does the closes that are due */
  PINFOLD_ENTRY_STATISTICS = 64,    /**< count the hits of each entry exactly */
  PINFOLD_STATISTICS_AT_EXIT = 128, /**< send a PINFOLD_EVENT_STATISTICS at the end */
  PINFOLD_TRACE_REQUESTS = 256,     /**< send a PINFOLD_EVENT_REQUESTED for every acquire */
  PINFOLD_SERIAL = 512,             /**< open and close on one thread at a time; two caches over one driver do not wait
                                     *   for each other */
  PINFOLD_PUBLISH_STATISTICS = 1024 /**< publish counters and events on the process's statistics page, for other
                                     *   programs of this user */
};

struct pinfold_event;

/** Options of a cache, in the meaning of docs/operate/tuning.md. `pinfold_options_init` fills them. */
typedef struct pinfold_options {
  size_t size;                 /**< sizeof the structure */
  char name[64];               /**< shown in events and statistics; ends with a 0 */
  uint32_t flags;              /**< PINFOLD_NO_RETAIN and the following */
  uint32_t monitor;            /**< PINFOLD_MONITOR_ bits */
  uint32_t full;               /**< a PINFOLD_FULL_ number */
  uint32_t audit_one_in;       /**< compare the pages behind one hit in so many; 0: never */
  size_t max_bytes;            /**< most bytes registered at any time; PINFOLD_UNLIMITED */
  size_t max_count;            /**< most registrations open at any time; PINFOLD_UNLIMITED */
  uint64_t idle_timeout_ms;    /**< close imports that no lease used for this long; 0: never */
  uint64_t full_timeout_ms;    /**< longest wait for room, with PINFOLD_FULL_WAIT */
  uint64_t conflict_timeout_ms; /**< longest wait for a conflicting lease to end */
  uint64_t wait_timeout_ms;    /**< longest wait for another thread's open or close */
  uint64_t drain_timeout_ms;   /**< longest wait for leases and closes in pinfold_destroy */
  void (*sink)(void *self, const struct pinfold_event *event); /**< receives events; may be null */
  void *sink_self;             /**< passed to `sink` and `sink_finished` */
  void (*sink_finished)(void *self); /**< may be null: the sink of a cache that was made is not called any more */
  uint32_t merge;              /**< a PINFOLD_MERGE_ number */
  uint32_t shards;             /**< parts in which a cache of local memory is divided, at most 64; 0: by processors */
  size_t merge_limit;          /**< no registration grows beyond this by merging; PINFOLD_UNLIMITED */
  char node_budget[96];        /**< the account that processes share: its name, or name:maximum; ends with a 0; empty:
                                *   none. See <pinfold/node_budget.h> */
} pinfold_options;

/** Fills the options with the defaults. Options of 0 alone are not the defaults: their budget is 0. Errors:
 *  PINFOLD_E_INVALID_ARGUMENT (null; a size below that of 0.2, or above 4 KiB). */
PINFOLD_API int pinfold_options_init(pinfold_options *options, size_t size);

/**
 * Changes the options by the file that PINFOLD_CONFIG names, then by the PINFOLD_ variables of the environment. After
 * PINFOLD_E_INVALID_ARGUMENT (an unknown name, a wrong value) the options are unchanged.
 */
PINFOLD_API int pinfold_options_from_environment(pinfold_options *options);

/** Changes the options by the text: lines of `PINFOLD_NAME=value`. Errors: as above. */
PINFOLD_API int pinfold_options_from_text(pinfold_options *options, const char *text);

/* ---- Caches ---- */

/** A cache of registrations of local memory, or of imported memory. A call that the kind does not have returns
 *  PINFOLD_E_INVALID_ARGUMENT. */
typedef struct pinfold_cache pinfold_cache;

/** What a registrar's or importer's `open` made: keys, a pointer. */
typedef struct pinfold_registration {
  uint64_t words[4]; /**< whatever `close` and users of the lease need */
} pinfold_registration;

/** What a registrar or importer is asked to open. Valid during the call. */
typedef struct pinfold_open_request {
  size_t size;        /**< sizeof the structure */
  void *address;      /**< local memory: the first byte to register, exactly */
  size_t bytes;       /**< local memory: how many */
  uint32_t access;    /**< local memory: PINFOLD_LOCAL_READ and the following */
  uint64_t peer;      /**< imported memory: the exporter */
  const void *handle; /**< imported memory: the handle, `handle_bytes` long */
  void *argument;     /**< of the options of the request that caused the call; may be null */
} pinfold_open_request;

/**
 * A registrar of local memory. The cache calls it on many threads at once, and may register the same memory several
 * times. `open` and `close` return PINFOLD_OK or a PINFOLD_E_ code, and may describe the failure in `failure`, whose
 * `code` they need not set. PINFOLD_E_OUT_OF_RESOURCES means that closing another registration could help,
 * PINFOLD_E_ALREADY_MAPPED that an overlapping registration is in the way; all others are final. A failed open leaves
 * nothing behind; a failed close changes nothing, and the cache retries it. The `message` of a failure is handed to other
 * threads, so it must never be freed.
 */
typedef struct pinfold_registrar {
  size_t size;        /**< sizeof the structure */
  const char *name;   /**< copied */
  size_t granularity; /**< local access is rounded out to this power of two, at most a page; 0: a page */
  size_t max_bytes;   /**< largest registration; 0: any */
  uint32_t access;    /**< all that it can grant; 0: everything */
  /** Registers the memory, exactly, and writes what the driver made. */
  int (*open)(void *self, const pinfold_open_request *what, pinfold_registration *made, pinfold_error *failure);
  /** Closes what `open` made. */
  int (*close)(void *self, const pinfold_registration *made, pinfold_error *failure);
  /** May be null. Opens `count` ranges, each with its own result in `codes` and `failures`. */
  void (*open_many)(void *self, const pinfold_open_request *what, size_t count, pinfold_registration *made, int *codes,
                    pinfold_error *failures);
  /** May be null. For memory that no monitor sees: returns whether the address still holds what was registered. The
   *  cache then uses no monitor and asks on every hit. */
  int (*still_is)(void *self, const pinfold_registration *made, const void *address, size_t bytes);
  void (*finished)(void *self); /**< may be null: the cache does not need `self` any more */
} pinfold_registrar;

/** What an importer made of a handle. */
typedef struct pinfold_imported {
  size_t size;                       /**< sizeof the structure */
  uint64_t base;                     /**< first address that was opened, in the exporter */
  uint64_t bytes;                    /**< how many, at least the allocation that `check` returned */
  void *data;                        /**< where `base` is in this process */
  uint64_t budget_bytes;             /**< what counts against the budget, at least `bytes`; 0: `bytes` */
  pinfold_registration registration; /**< passed to `close` */
} pinfold_imported;

/**
 * An importer of remote memory. All bytes of a handle together identify one allocation for ever. `check` validates a
 * handle without calling the driver, and returns the allocation. `open` and `close` as in pinfold_registrar. The
 * handles that the functions get are aligned to 8 bytes.
 */
typedef struct pinfold_importer {
  size_t size;           /**< sizeof the structure */
  const char *name;      /**< copied */
  size_t handle_bytes;   /**< 1 to 896 */
  int allows_duplicates; /**< whether the driver opens a handle that it already has open */
  /** Validates a handle and writes the allocation that it names, or returns PINFOLD_E_INVALID_HANDLE. */
  int (*check)(void *self, const void *handle, uint64_t *base, uint64_t *bytes);
  /** Opens the handle, and writes what was opened. */
  int (*open)(void *self, const pinfold_open_request *what, pinfold_imported *made, pinfold_error *failure);
  /** Closes what `open` made. */
  int (*close)(void *self, const pinfold_registration *made, pinfold_error *failure);
  void (*finished)(void *self); /**< may be null: the cache does not need `self` any more */
} pinfold_importer;

/**
 * Makes a cache over a registrar's table of functions, which is copied. `options` may be null: the defaults. On
 * failure, `finished` is not called. Errors: PINFOLD_E_INVALID_ARGUMENT, PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_create(const pinfold_registrar *registrar, void *self, const pinfold_options *options,
                               pinfold_cache **cache);
/** Makes a cache over an importer's table of functions. As pinfold_create. */
PINFOLD_API int pinfold_create_import(const pinfold_importer *importer, void *self, const pinfold_options *options,
                                      pinfold_cache **cache);

/** Makes a cache that locks memory with mlock2(2). */
PINFOLD_API int pinfold_create_mlock(const pinfold_options *options, pinfold_cache **cache);

struct io_uring;
/** The registration of an io_uring cache. */
typedef struct pinfold_io_uring_registration {
  uint32_t index; /**< the buffer index, for io_uring_prep_write_fixed(3) and its relatives */
} pinfold_io_uring_registration;
/** Makes a cache over the buffer table of a ring, of `slots` registrations (0: 1024). The ring must outlive the cache. */
PINFOLD_API int pinfold_create_io_uring(struct io_uring *ring, unsigned slots, const pinfold_options *options,
                                        pinfold_cache **cache);

/** The registration of a cache of CUDA host memory. */
typedef struct pinfold_cuda_host_registration {
  uint64_t device_address; /**< of the first registered byte, as GPU kernels see it */
  uint64_t number;         /**< of this registration, never reused; 0: the application's own */
} pinfold_cuda_host_registration;
/** Makes a cache that registers host memory with the CUDA driver, in the primary context of a device. The driver is
 *  called by the first acquire. */
PINFOLD_API int pinfold_create_cuda_host(int device, const pinfold_options *options, pinfold_cache **cache);

/** Flags of an importer of memory files. */
enum pinfold_memfd_import_flags {
  PINFOLD_MEMFD_READ_WRITE = 1, /**< map for writing too */
  PINFOLD_MEMFD_UNSEALED = 2,   /**< also open memory that a peer could truncate */
  PINFOLD_MEMFD_POPULATE = 4    /**< fault in all pages at the open */
};
/** Makes a cache that imports the memory of memfd exporters. `flags`: PINFOLD_MEMFD_ bits. */
PINFOLD_API int pinfold_create_memfd(uint32_t flags, const pinfold_options *options, pinfold_cache **cache);
/** Makes a cache that imports GPU memory of CUDA exporters, mapped on the device. The driver is called by the first
 *  import. */
PINFOLD_API int pinfold_create_cuda_ipc(int device, const pinfold_options *options, pinfold_cache **cache);

/**
 * Destroys a cache and closes its registrations. Waits for leases at most `drain_timeout_ms`; leases that are still out
 * then read as closed, and their release does nothing. Other threads may release leases meanwhile, and must make no
 * other call. The sink gets closes that fail, and leases that are still out, which is no failure. The library remembers
 * the last 256 destroyed caches: calls on one of them return PINFOLD_E_CLOSED. Other errors: PINFOLD_E_IN_USE_CONFLICT
 * (a stream of chunks has not ended; nothing happened), PINFOLD_E_TIMED_OUT (the cache is destroyed, but a thread is
 * still in the driver: `finished` is called when it has left, and what a built-in registrar uses, such as a ring, must
 * not be freed before).
 */
PINFOLD_API int pinfold_destroy(pinfold_cache *cache);

/* ---- Leases ---- */

/** A lease: two words, passed by value. Release it exactly once, whatever copies there are. `pin == 0`: no lease. */
typedef struct pinfold_lease {
  uintptr_t pin; /**< 0: no lease */
  void *data;    /**< the local address of the acquired memory */
} pinfold_lease;

/** Flags of an acquire. */
enum pinfold_acquire_flags {
  PINFOLD_PERSISTENT = 1, /**< neither evicted nor flushed until pinfold_unpersist or an invalidation */
  PINFOLD_BYPASS = 2,     /**< register for this lease only: not looked up, not kept, outside the budget */
  PINFOLD_FILE = 4        /**< `file` is the descriptor of the file that is mapped there */
};

/** Options of one acquire. */
typedef struct pinfold_acquire_options {
  size_t size;    /**< sizeof the structure */
  uint32_t flags; /**< PINFOLD_PERSISTENT and the following */
  int file;       /**< see PINFOLD_FILE */
  void *argument; /**< passed to the registrar's open, if this call opens */
} pinfold_acquire_options;

/** Returns a lease on local memory, registered with at least `access` (PINFOLD_LOCAL_READ and the following, of
 *  pinfold_options); an empty lease on failure. A hit takes no lock.
 *  The caller keeps the memory mapped until the release. */
PINFOLD_API PINFOLD_USE_RESULT pinfold_lease pinfold_acquire(pinfold_cache *cache, const void *address, size_t bytes,
                                                             uint32_t access);
/** As pinfold_acquire, with options; null: none. */
PINFOLD_API PINFOLD_USE_RESULT pinfold_lease pinfold_acquire_with(pinfold_cache *cache, const void *address,
                                                                  size_t bytes, uint32_t access,
                                                                  const pinfold_acquire_options *options);
/** Returns a lease only if the memory is already registered. Never opens and never waits. An empty lease is no failure:
 *  it leaves pinfold_last_error as it was, unless the arguments are wrong. */
PINFOLD_API PINFOLD_USE_RESULT pinfold_lease pinfold_find(pinfold_cache *cache, const void *address, size_t bytes,
                                                          uint32_t access);

/** Returns a lease on a peer's memory: `bytes` bytes at the peer's `address`, inside the allocation of the handle. */
PINFOLD_API PINFOLD_USE_RESULT pinfold_lease pinfold_import(pinfold_cache *cache, uint64_t peer, const void *handle,
                                                            size_t handle_bytes, uint64_t address, size_t bytes);
/** As pinfold_import, with options, whose flags must be 0; null: none. */
PINFOLD_API PINFOLD_USE_RESULT pinfold_lease pinfold_import_with(pinfold_cache *cache, uint64_t peer,
                                                                 const void *handle, size_t handle_bytes,
                                                                 uint64_t address, size_t bytes,
                                                                 const pinfold_acquire_options *options);
/** As pinfold_find, for a peer's memory. */
PINFOLD_API PINFOLD_USE_RESULT pinfold_lease pinfold_find_import(pinfold_cache *cache, uint64_t peer,
                                                                 const void *handle, size_t handle_bytes,
                                                                 uint64_t address, size_t bytes);
/** Returns the length of the handles of an import cache; 0 for other caches. */
PINFOLD_API size_t pinfold_handle_bytes(const pinfold_cache *cache);

/** Releases a lease. If that closes the registration, returns the driver's result. An empty lease: PINFOLD_OK. Never
 *  release a lease twice: the library detects that only for a hit, and only until the place of its pin is used again
 *  (PINFOLD_E_INVALID_ARGUMENT); otherwise the registration loses another lease's pin. */
PINFOLD_API int pinfold_release(pinfold_lease lease);
/** Returns 1 once the cache has noticed that the memory was replaced or invalidated after the acquire. The cache checks
 *  in every request, and in pinfold_progress: call that first. The registration is still open. */
PINFOLD_API int pinfold_is_stale(pinfold_lease lease);
/** Returns 1 if the lease is empty, or its cache was destroyed and has closed the registration. */
PINFOLD_API int pinfold_is_closed(pinfold_lease lease);
/** Returns another lease on the same registration and address. Takes the cache's lock. */
PINFOLD_API PINFOLD_USE_RESULT pinfold_lease pinfold_share(pinfold_lease lease);
/** Writes the addresses that the registration covers: of this process, or of the exporter. */
PINFOLD_API int pinfold_covered(pinfold_lease lease, uint64_t *base, uint64_t *bytes);
/** Returns what the driver made: a pinfold_registration, or the structure beside the pinfold_create_ function. Caches
 *  that have none (mlock, imports of the library) return a pointer to bytes without a documented form. Constant until
 *  the release. Null for an empty lease. */
PINFOLD_API const void *pinfold_registration_of(pinfold_lease lease);

/** Turns a lease into one that is given back by its registration, for callers that have nothing else at hand. Returns
 *  pinfold_registration_of. Takes the cache's lock. Null for an empty lease. */
PINFOLD_API const void *pinfold_detach(pinfold_lease lease);
/** Releases one lease that pinfold_detach turned into `registration`, which must be the very pointer, not a copy of the
 *  structure: as with free(3), another address is noticed by chance only. Errors: as pinfold_release. */
PINFOLD_API int pinfold_release_registration(const void *registration);

/* ---- Many ranges ---- */

/** A piece of memory. */
typedef struct pinfold_range {
  uint64_t base;  /**< the first address */
  uint64_t bytes; /**< how many */
} pinfold_range;

/** Options of one batch. */
typedef struct pinfold_batch_options {
  size_t size;      /**< sizeof the structure */
  uint32_t workers; /**< threads that register, the caller's included; 0: 4 */
  void *argument;   /**< passed to each open of the registrar */
} pinfold_batch_options;

/**
 * Acquires `count` ranges of local memory, and writes a lease on each into `leases`. Merges duplicates and neighbours.
 * All or nothing: on an error no lease is held, and all of `leases` are empty. `options` may be null.
 */
PINFOLD_API int pinfold_acquire_batch(pinfold_cache *cache, const pinfold_range *ranges, size_t count, uint32_t access,
                                      const pinfold_batch_options *options, pinfold_lease *leases);
/** Releases `count` leases. Returns the first error of a close. */
PINFOLD_API int pinfold_release_batch(const pinfold_lease *leases, size_t count);

/** A stream of leases on the pieces of one range, registered ahead of the reader. One thread at a time may use it. */
typedef struct pinfold_chunks pinfold_chunks;
/** Options of one stream. */
typedef struct pinfold_chunk_options {
  size_t size;        /**< sizeof the structure */
  size_t chunk_bytes; /**< largest piece; 0: 2 MiB */
  uint32_t depth;     /**< pieces registered ahead of the reader; 0: 4 */
  uint32_t workers;   /**< threads that register; 0: 1 */
  void *argument;     /**< passed to each open of the registrar */
} pinfold_chunk_options;

/** Begins to register the range in pieces, at most 4 194 304. The registrar's largest registration does not limit it.
 *  `options` may be null. */
PINFOLD_API int pinfold_acquire_chunks(pinfold_cache *cache, const void *address, size_t bytes, uint32_t access,
                                       const pinfold_chunk_options *options, pinfold_chunks **chunks);
/** Waits for the next piece, and writes its range and a lease on it. PINFOLD_E_CLOSED after the last, and after a
 *  failure. */
PINFOLD_API int pinfold_next_chunk(pinfold_chunks *chunks, pinfold_range *where, pinfold_lease *lease);
/** Ends the stream. Leases that were read stay valid. Null: PINFOLD_OK. From a callback of the cache:
 *  PINFOLD_E_IN_USE_CONFLICT, and the stream goes on. */
PINFOLD_API int pinfold_end_chunks(pinfold_chunks *chunks);

/* ---- Memory that goes ---- */

/** Tells all caches of the process that memory is about to go. For any thread, allocators and signal handlers. */
PINFOLD_API void pinfold_announce_gone(const void *address, size_t bytes);
/** Closes the registrations without a lease that touch the memory, in all caches of this process over the built-in
 *  registrar of that name, if its driver refuses memory that another cache has registered ("cuda_host"). For code that
 *  calls that driver itself and was refused. Returns 1 if anything was closed, else 0. */
PINFOLD_API int pinfold_close_idle_in_process(const char *registrar, const void *address, size_t bytes);
/** Tells one cache that local memory is about to go. Only marks. */
PINFOLD_API int pinfold_invalidate(pinfold_cache *cache, const void *address, size_t bytes);
/** Tells an import cache that a peer's memory is gone. Only marks. */
PINFOLD_API int pinfold_invalidate_peer(pinfold_cache *cache, uint64_t peer, uint64_t address, size_t bytes);
/** Tells an import cache that a peer has ended. Closes its idle entries; returns the first error of a close. */
PINFOLD_API int pinfold_drop_peer(pinfold_cache *cache, uint64_t peer);
/** Makes registrations that touch local memory no longer persistent. */
PINFOLD_API int pinfold_unpersist(pinfold_cache *cache, const void *address, size_t bytes);
/** Writes the names of the cache's monitors, or why it keeps nothing. Returns the length, like snprintf(3). */
PINFOLD_API size_t pinfold_monitors(const pinfold_cache *cache, char *text, size_t room);

/* ---- Upkeep ---- */

/** Closes every registration that has no lease and is not persistent. Returns the first error of a close. */
PINFOLD_API int pinfold_flush(pinfold_cache *cache);
/** Closes every registration, persistent ones included, and remembers them for pinfold_restore. Returns
 *  PINFOLD_E_IN_USE_CONFLICT and closes nothing while a lease is out. */
PINFOLD_API int pinfold_quiesce(pinfold_cache *cache);

/** A restoration that goes on in the background. It may outlive its cache. */
typedef struct pinfold_restoration pinfold_restoration;
/** How far a restoration is. */
typedef struct pinfold_restore_progress {
  size_t size;       /**< sizeof the structure */
  uint64_t total;    /**< registrations that the cache remembered when the restoration began */
  uint64_t restored; /**< of those, registered again; also those that a request had registered meanwhile */
  uint64_t skipped;  /**< not registered: the budget has no room left for them */
  uint64_t failed;   /**< not registered: the driver refused, or the memory was unmapped or invalidated */
  uint64_t bytes;    /**< bytes of the restored ones */
} pinfold_restore_progress;

/** Begins to register again, on `workers` threads (0: 4; at most 64), what pinfold_quiesce closed: those with the most
 *  hits first, into free room of the budget only. Requests may go on meanwhile. A registrar's `argument` is null. */
PINFOLD_API int pinfold_restore(pinfold_cache *cache, uint32_t workers, pinfold_restoration **restoration);
/** Waits until the restoration is done, at most `timeout_ms`; UINT64_MAX: without a limit. PINFOLD_E_TIMED_OUT. */
PINFOLD_API int pinfold_restoration_wait(pinfold_restoration *restoration, uint64_t timeout_ms);
/** Writes how far it is. Returns PINFOLD_OK, or the code of the first registration that failed. */
PINFOLD_API int pinfold_restoration_progress(const pinfold_restoration *restoration,
                                             pinfold_restore_progress *progress);
/** Ends the restoration: waits for registrations in progress, and frees it. The cache remembers the others. Null:
 *  PINFOLD_OK. From a callback of the cache: PINFOLD_E_IN_USE_CONFLICT, and the restoration goes on. */
PINFOLD_API int pinfold_end_restoration(pinfold_restoration *restoration);

/** Does the closes that are due. Returns the first error of a close. */
PINFOLD_API int pinfold_progress(pinfold_cache *cache);
/** Closes up to `count` registrations without a lease, in the order of eviction. Returns how many, with those whose
 *  close failed: the cache retries these. */
PINFOLD_API size_t pinfold_evict(pinfold_cache *cache, size_t count);

/* ---- Statistics and events ---- */

/** Counters of a cache. Each is right by itself; once no call is in progress they add up: `acquires` = `hits` +
 *  `misses` + `failed_acquires`, `misses` = the sum of the five that begin with it, `opens` = `closes` + `open`. */
typedef struct pinfold_statistics {
  size_t size;                       /**< sizeof the structure */
  uint64_t hits;                     /**< acquires that found a registration, open or being opened by another thread */
  uint64_t valid;                    /**< look-ups that found local memory, or an import with an equal handle */
  uint64_t invalid;                  /**< look-ups that found an import with another handle: the entry turned stale */
  uint64_t misses;                   /**< acquires that opened a registration of their own */
  uint64_t evicted;                  /**< idle entries closed to make room */
  uint64_t expired;                  /**< imports closed because no lease used them for `idle_timeout_ms` */
  uint64_t found;                    /**< pinfold_find calls that returned a lease */
  uint64_t find_misses;              /**< pinfold_find calls that returned none */
  uint64_t acquires;                 /**< calls of acquire */
  uint64_t failed_acquires;          /**< of those, the ones that failed */
  uint64_t misses_cold;              /**< misses on memory that the cache does not remember */
  uint64_t misses_invalidated;       /**< misses on memory whose registration turned stale */
  uint64_t misses_access;            /**< misses on memory that is registered with less access */
  uint64_t misses_extent;            /**< misses that overlap a registration which does not cover them */
  uint64_t misses_evicted;           /**< misses on memory whose registration was evicted or expired */
  uint64_t opens;                    /**< successful opens */
  uint64_t closes;                   /**< successful closes */
  uint64_t failed_opens;             /**< opens that failed, retried ones included */
  uint64_t failed_closes;            /**< closes that failed, retried ones included */
  uint64_t conflicts;                /**< idle entries closed because the driver answered PINFOLD_E_ALREADY_MAPPED */
  uint64_t bypasses;                 /**< registrations opened outside the budget */
  uint64_t unmonitored;              /**< registrations for one lease only: the memory is not watched */
  uint64_t file_backed;              /**< of those, the ones on files that another process could truncate */
  uint64_t audits;                   /**< comparisons of pages, see `audit_one_in` */
  uint64_t monitor_failures;         /**< failures of a monitor of this cache */
  uint64_t failed_audits;            /**< audits that found other pages: no monitor reported a change */
  uint64_t invalidated_while_leased; /**< entries whose memory went away under a lease */
  uint64_t sink_failures;            /**< C++ exceptions that the sink threw */
  uint64_t waited_ns;                /**< time spent waiting for other threads, summed over all callers */
  uint64_t open;                     /**< registrations open in the driver, quarantined ones included */
  uint64_t bytes_now;                /**< bytes that count against the budget */
  uint64_t entries_now;              /**< entries that count against the budget */
  uint64_t peak_bytes;               /**< highest `bytes_now` */
  uint64_t peak_entries;             /**< highest `entries_now` */
  uint64_t leases_now;               /**< leases that are out */
  uint64_t peak_leases;              /**< highest `leases_now` that any reading has seen */
  uint64_t quarantined;              /**< entries whose close failed and is still owed */
  uint64_t bypass_bytes;             /**< bytes registered outside the budget now */
  uint64_t requests_waiting;         /**< calls that wait for another thread, or for room, now */
  uint64_t closes_due;               /**< registrations without a lease, of no use to requests, not closed yet */
} pinfold_statistics;
/** Reads the counters. Waits for no thread. Set `counters->size` first; writes no more than that. */
PINFOLD_API int pinfold_statistics_of(const pinfold_cache *cache, pinfold_statistics *counters);
/** Writes the counters as one line. Returns its length, like snprintf(3). */
PINFOLD_API size_t pinfold_describe(const pinfold_cache *cache, char *text, size_t room);

/** One entry of a cache. Valid during the call of `each`. */
typedef struct pinfold_entry {
  size_t size;           /**< sizeof the structure */
  uint64_t peer;         /**< the exporter of imported memory */
  uint64_t base;         /**< first address that it covers: of this process, or of the exporter */
  uint64_t bytes;        /**< how many it covers */
  uint64_t budget_bytes; /**< what it counts against the budget */
  const char *kind;      /**< the registrar's name */
  const char *state;     /**< "live", "opening", ...: docs/understand/protocol.md */
  uint64_t leases;       /**< leases on it */
  uint64_t hits;         /**< sampled, unless PINFOLD_ENTRY_STATISTICS */
  uint64_t age_ns;       /**< time since the open */
  int32_t owner;         /**< kernel id of the thread that opened it */
  int32_t bypass;        /**< whether it is outside the budget */
} pinfold_entry;
/** Copies the list of entries, then calls `each` for every one, without a lock, until it returns something other than
 *  0; returns that. `each` is a callback of the cache. */
PINFOLD_API int pinfold_dump(const pinfold_cache *cache, int (*each)(void *self, const pinfold_entry *entry),
                             void *self);
/** Writes what the caches of this process publish (PINFOLD_STATS=on) as OpenMetrics 1.0; it is at most about 0.1 s old.
 *  Returns the length of the whole text, like snprintf(3), which may differ at the next call. Returns 0 if no cache of
 *  the process publishes its statistics; pinfold_last_error has the reason. */
PINFOLD_API size_t pinfold_open_metrics(char *text, size_t room);

/** Flags of pinfold_dump_on_signal(). */
enum pinfold_dump_flags {
  PINFOLD_DUMP_CHAIN = 1 /**< if the signal has a handler already, dump, then call it; without: refuse */
};
/**
 * Installs a handler for the signal that writes the caches of this copy of the library and their entries as lines of
 * text, which dump.md of the documents (pinfold(7)) describes: it appends them to the file `pinfold.PID.dump` in
 * `directory`, or writes them to standard error if `directory` is null or empty. A relative directory is below the
 * working directory of this call. The handler takes no lock and allocates nothing, leaves `errno` as it was, and works
 * in a child of fork(2). A second call for the same signal changes the directory. A signal whose default action is to
 * end the process for an error (SIGSEGV, SIGABRT, ...) still ends it after the dump; others do not. The environment
 * variables PINFOLD_DUMP_SIGNAL and PINFOLD_DUMP_DIR do the same for a program that does not call this. Errors:
 * PINFOLD_E_INVALID_ARGUMENT (a signal that cannot be handled, a directory of more than 4000 bytes, unknown flags),
 * PINFOLD_E_IN_USE_CONFLICT (the signal has a handler), PINFOLD_E_DRIVER_ERROR with the `errno`.
 */
PINFOLD_API int pinfold_dump_on_signal(int signal, const char *directory, uint32_t flags);

/** The kind of an event. pinfold_event_name has the text. */
enum pinfold_event_kind {
  PINFOLD_EVENT_EVICTED = 0,                  /**< an idle entry is closed to make room */
  PINFOLD_EVENT_REPLACED = 1,                 /**< a handle differed: the exporter reallocated, the entry is stale */
  PINFOLD_EVENT_CONFLICT = 2,                 /**< an idle entry that was in the way of an open is closed */
  PINFOLD_EVENT_INVALIDATED_WHILE_LEASED = 3, /**< memory went away under a lease */
  PINFOLD_EVENT_CLOSE_FAILED = 4,             /**< the driver refused a close; the cache retries it */
  PINFOLD_EVENT_LEASES_OUTLIVE_CACHE = 5,     /**< `leases` were still out at the end */
  PINFOLD_EVENT_STATISTICS = 6,               /**< the counters, in `text` */
  PINFOLD_EVENT_AUDIT_FAILED = 7,             /**< the pages behind an entry are not the registered ones */
  PINFOLD_EVENT_CLOSES_OUTLIVE_CACHE = 8,     /**< another thread was still in the driver at the end */
  PINFOLD_EVENT_REQUESTED = 9,                /**< an acquire succeeded, or failed with `cause`; only with
                                               *   PINFOLD_TRACE_REQUESTS */
  PINFOLD_EVENT_NOT_KEPT = 10,                /**< registered for one lease only; `cause` says why */
  PINFOLD_EVENT_MONITOR_DEGRADED = 11,        /**< a monitor failed, or works again: `text` says which, and why */
  PINFOLD_EVENT_WAITS_FOR_NODE_BUDGET = 12,   /**< a request waits for the node's budget: `text` has the numbers */
  PINFOLD_EVENT_REFUSED_BY_NODE_BUDGET = 13   /**< the node's budget had no room: `text` has the numbers */
};
/** The severity of an event. */
enum pinfold_severity { PINFOLD_DEBUG = 0, PINFOLD_INFO = 1, PINFOLD_WARNING = 2, PINFOLD_FAILURE = 3 };

/** An event that a cache reports. Valid during the call of the sink. */
typedef struct pinfold_event {
  size_t size;                /**< sizeof the structure */
  int kind;                   /**< a PINFOLD_EVENT_ number; later versions may have more */
  int level;                  /**< PINFOLD_DEBUG to PINFOLD_FAILURE */
  const char *cache;          /**< its name, from the options */
  uint64_t peer;              /**< the exporter of imported memory */
  uint64_t base;              /**< first address of the memory */
  uint64_t bytes;             /**< how many */
  uint64_t leases;            /**< out on the entry, or on the whole cache */
  const pinfold_error *cause; /**< the driver's failure; may be null */
  const char *text;           /**< what happened, in words; of PINFOLD_EVENT_STATISTICS the counters */
  uint64_t registered_base;   /**< PINFOLD_EVENT_REQUESTED: the registration that serves it */
  uint64_t registered_bytes;  /**< the same: how many */
  uint64_t opened_for_ns;     /**< PINFOLD_EVENT_REQUESTED: time in the registrar's open */
  int32_t hit;                /**< PINFOLD_EVENT_REQUESTED: the registrar was not called */
  int32_t owner;              /**< kernel id of the thread that opened the entry; 0: unknown */
} pinfold_event;
/** Returns the kind's name; "unknown" for numbers that are no kind. */
PINFOLD_API const char *pinfold_event_name(int kind);

/* ---- Exporters ---- */

/** Length of a memfd handle. */
#define PINFOLD_MEMFD_HANDLE_BYTES 72
/** An exporter of memory files. */
typedef struct pinfold_memfd_exporter pinfold_memfd_exporter;
/** One exported buffer. */
typedef struct pinfold_memfd_buffer pinfold_memfd_buffer;
/** Flags of an exporter of memory files. */
enum pinfold_memfd_export_flags {
  PINFOLD_MEMFD_PEERS_WRITE = 1, /**< importers may map the buffers for writing */
  PINFOLD_MEMFD_SERVE = 2        /**< hand descriptors to peers over a Unix socket: no right to ptrace is needed */
};
/** Makes an exporter. `flags`: PINFOLD_MEMFD_PEERS_WRITE and PINFOLD_MEMFD_SERVE. */
PINFOLD_API int pinfold_memfd_exporter_create(uint32_t flags, pinfold_memfd_exporter **exporter);
/** Destroys the exporter. Its buffers live on. Null: nothing. */
PINFOLD_API void pinfold_memfd_exporter_destroy(pinfold_memfd_exporter *exporter);
/** Allocates a zeroed buffer; its handle may be sent to peers in any way. */
PINFOLD_API int pinfold_memfd_allocate(pinfold_memfd_exporter *exporter, size_t bytes, pinfold_memfd_buffer **buffer);
/** Returns the address of the buffer; null for null. */
PINFOLD_API void *pinfold_memfd_data(const pinfold_memfd_buffer *buffer);
/** Returns the bytes of the buffer, in whole pages; 0 for null. */
PINFOLD_API size_t pinfold_memfd_size(const pinfold_memfd_buffer *buffer);
/** Copies the buffer's handle. */
PINFOLD_API int pinfold_memfd_handle(const pinfold_memfd_buffer *buffer, void *handle, size_t handle_bytes);
/** Unmaps and closes the buffer; peers keep what they have mapped. Null: nothing. */
PINFOLD_API void pinfold_memfd_free(pinfold_memfd_buffer *buffer);

/** Length of a CUDA handle. */
#define PINFOLD_CUDA_HANDLE_BYTES 160
/** An exporter of GPU memory that belongs to the application. */
typedef struct pinfold_cuda_exporter pinfold_cuda_exporter;
/** Makes an exporter. */
PINFOLD_API int pinfold_cuda_exporter_create(pinfold_cuda_exporter **exporter);
/** Destroys the exporter; the memory stays the application's. Null: nothing. */
PINFOLD_API void pinfold_cuda_exporter_destroy(pinfold_cuda_exporter *exporter);
/** Writes the handle of the whole allocation around the `bytes` bytes at `pointer` (a void* or CUdeviceptr). */
PINFOLD_API int pinfold_cuda_share(pinfold_cuda_exporter *exporter, uint64_t pointer, size_t bytes, void *handle,
                                   size_t handle_bytes);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_PINFOLD_H */
