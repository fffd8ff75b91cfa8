/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of the release protocol: exporters that ask importers to let memory go before it is freed.
 */
#ifndef PINFOLD_RELEASE_H
#define PINFOLD_RELEASE_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a cache as pinfold_create_memfd does, which lets memory go when its exporter asks for it: from then on, no
 * import and no find returns a lease on it. The cache runs a thread that listens, until pinfold_destroy. It opens only
 * memory of exporters with `release`; imports from others fail with PINFOLD_E_UNSUPPORTED.
 */
PINFOLD_API int pinfold_create_memfd_releasing(uint32_t flags, const pinfold_options *options, pinfold_cache **cache);
/** Makes a cache as pinfold_create_cuda_ipc does, which lets memory go as that of pinfold_create_memfd_releasing. */
PINFOLD_API int pinfold_create_cuda_ipc_releasing(int device, const pinfold_options *options, pinfold_cache **cache);

/** Options of an exporter. */
typedef struct pinfold_exporter_options {
  size_t size;        /**< sizeof the structure */
  uint32_t flags;     /**< of memory files: PINFOLD_MEMFD_PEERS_WRITE and PINFOLD_MEMFD_SERVE; of GPU memory: 0 */
  uint32_t release;   /**< 1: run a thread that knows which importers hold memory, for retirements */
  size_t limbo_bytes; /**< bytes of retired memory that are kept alive after their deadline because importers hold them;
                       *   above it, the oldest are freed. 0: 4 GiB; 1: none are kept; PINFOLD_UNLIMITED: no limit */
} pinfold_exporter_options;
/** Makes an exporter of memory files. `options` may be null: the defaults. */
PINFOLD_API int pinfold_memfd_exporter_create_with(const pinfold_exporter_options *options,
                                                   pinfold_memfd_exporter **exporter);
/** Makes an exporter of GPU memory. `options` may be null: the defaults. */
PINFOLD_API int pinfold_cuda_exporter_create_with(const pinfold_exporter_options *options,
                                                  pinfold_cuda_exporter **exporter);

/** What became of retired memory. */
enum pinfold_retire_state {
  PINFOLD_RETIRE_ASKING = 0,      /**< importers hold it, and the deadline has not passed */
  PINFOLD_RETIRE_LIMBO = 1,       /**< importers hold it after the deadline: kept alive */
  PINFOLD_RETIRE_FREED = 2,       /**< freed after every importer let it go or died */
  PINFOLD_RETIRE_OVER_BUDGET = 3, /**< freed although importers held it, to keep `limbo_bytes` */
  PINFOLD_RETIRE_ABANDONED = 4    /**< freed by the end of the exporter, although importers may have held it */
};

/** A report on one retirement. The importers have let the memory go if it is PINFOLD_RETIRE_FREED. */
typedef struct pinfold_retire_report {
  size_t size;           /**< sizeof the structure */
  uint32_t state;        /**< a PINFOLD_RETIRE_ number */
  uint32_t reserved;     /**< 0 */
  uint64_t let_go;       /**< importers that let it go since the retirement began */
  uint64_t died;         /**< importers that ended since the retirement began */
  uint64_t holders;      /**< importers that did not let it go (before it was freed) */
  pinfold_error failure; /**< of the driver, when the memory was freed; `code` PINFOLD_OK: none */
} pinfold_retire_report;

/** What an importer answered. */
enum pinfold_release_answer {
  PINFOLD_RELEASE_SILENT = 0, /**< nothing yet */
  PINFOLD_RELEASE_LEASED = 2  /**< leases keep a mapping open */
};

/** An importer that still counts as one that has the memory open. */
typedef struct pinfold_release_holder {
  uint64_t connection; /**< number of its connection to the exporter, or of the peer */
  int32_t pid;         /**< in the exporter's PID namespace; 0: unknown */
  uint32_t answer;     /**< a PINFOLD_RELEASE_ number */
  uint32_t lost;       /**< 1: its connection broke, but its process still runs */
  uint32_t reserved;   /**< 0 */
} pinfold_release_holder;

/** A ticket for one retirement. It may outlive the exporter. */
typedef struct pinfold_retirement pinfold_retirement;

/**
 * Begins the retirement of a buffer: lends it to no further importer, asks each importer that holds it to let it go,
 * and frees it when none does. Importers that hold it after `timeout_ms` keep it alive, within `limbo_bytes`. Takes the
 * buffer over and sets `*buffer` to null; after an error the buffer is still the caller's. Errors:
 * PINFOLD_E_UNSUPPORTED (an exporter without `release`, or of the parent process), PINFOLD_E_INVALID_ARGUMENT (a buffer
 * of another exporter), PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_memfd_begin_retire(pinfold_memfd_exporter *exporter, pinfold_memfd_buffer **buffer,
                                           uint64_t timeout_ms, pinfold_retirement **ticket);
/**
 * Retires as pinfold_memfd_begin_retire does, waits at most `timeout_ms`, and writes the report. That importers hold
 * the buffer is no error. If `*buffer` is not null after an error, nothing happened; if it is null, the retirement goes
 * on without a report (PINFOLD_E_OUT_OF_RESOURCES).
 */
PINFOLD_API int pinfold_memfd_retire(pinfold_memfd_exporter *exporter, pinfold_memfd_buffer **buffer,
                                     uint64_t timeout_ms, pinfold_retire_report *report);

/** Frees GPU memory, and returns PINFOLD_OK or a PINFOLD_E_ code, which `failure` may describe. */
typedef int (*pinfold_free_call)(void *self, pinfold_error *failure);
/**
 * Begins the retirement of the shared GPU memory around `pointer`. `free_memory` is called once: when no importer
 * holds the memory, for room (`limbo_bytes`), or at the exporter's end. It runs on the exporter's own thread or that
 * of its end, without a current context; it must not call the exporter, nor wait for the ticket. Do not share the
 * memory again, nor free it otherwise. Errors, after which `free_memory` is not called: as pinfold_memfd_begin_retire,
 * also PINFOLD_E_INVALID_ARGUMENT (memory that is not shared, or is retired; no `free_memory`).
 */
PINFOLD_API int pinfold_cuda_begin_retire(pinfold_cuda_exporter *exporter, uint64_t pointer, uint64_t timeout_ms,
                                          pinfold_free_call free_memory, void *self, pinfold_retirement **ticket);

/**
 * Announces that the program is about to free the `bytes` bytes of GPU memory at `pointer`, or the allocation around
 * it. Call it before cuMemFree, cuMemFreeAsync or cuMemUnmap; the CUDA adapter calls it for programs that run over it.
 * All exporters of the process forget what they shared there, so that its handles are stale at once. Exporters with
 * `release` ask the importers to let the memory go, and wait for their answers, at most `timeout_ms` and at most a day:
 * no acquire of an importer returns the memory once it has answered. Writes into `holders`, which may be null, how many
 * importers still hold the memory: they have leases on it, or did not answer. Does nothing in a forked child. Errors:
 * PINFOLD_E_INVALID_RANGE, PINFOLD_E_OUT_OF_RESOURCES (some importers were not asked).
 */
PINFOLD_API int pinfold_cuda_announce_free(uint64_t pointer, size_t bytes, uint64_t timeout_ms, size_t *holders);

/** Waits until the memory is freed, at most `timeout_ms` (a day at most; 0: not at all), and writes the report. That
 *  importers hold the memory is no error. Errors: PINFOLD_E_INVALID_ARGUMENT, PINFOLD_E_OUT_OF_RESOURCES. */
PINFOLD_API int pinfold_retirement_wait(const pinfold_retirement *ticket, uint64_t timeout_ms,
                                        pinfold_retire_report *report);
/** Writes at most `room` of the importers that hold the memory, and the number of all into `count`. */
PINFOLD_API int pinfold_retirement_holders(const pinfold_retirement *ticket, pinfold_release_holder *holders,
                                           size_t room, size_t *count);
/** Frees the ticket; the retirement goes on. Null: nothing. */
PINFOLD_API void pinfold_retirement_end(pinfold_retirement *ticket);

/** Counts of an exporter's retirements. */
typedef struct pinfold_release_statistics {
  size_t size;                /**< sizeof the structure */
  uint64_t limbo_bytes;       /**< bytes kept alive after their deadline */
  uint64_t limbo_buffers;     /**< buffers kept alive after their deadline */
  uint64_t retirements;       /**< retirements begun */
  uint64_t freed;             /**< buffers freed with no holder left */
  uint64_t freed_over_budget; /**< buffers freed although importers held them */
  uint64_t importers_died;    /**< importers that ended while they held memory */
} pinfold_release_statistics;
/** Writes the counts; all 0 for an exporter without `release`. */
PINFOLD_API int pinfold_memfd_retirements(const pinfold_memfd_exporter *exporter,
                                          pinfold_release_statistics *statistics);
/** Writes the counts; all 0 for an exporter without `release`. */
PINFOLD_API int pinfold_cuda_retirements(const pinfold_cuda_exporter *exporter,
                                         pinfold_release_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_RELEASE_H */
