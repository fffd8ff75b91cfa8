/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of large leases and of background registration.
 */
#ifndef PINFOLD_BACKGROUND_H
#define PINFOLD_BACKGROUND_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One lease on local memory of any size, in pieces by address. Threads may read it at the same time. */
typedef struct pinfold_large pinfold_large;

/** Options of one large lease. */
typedef struct pinfold_large_options {
  size_t size;        /**< sizeof the structure */
  size_t piece_bytes; /**< largest piece; 0: 1 GiB */
  uint32_t workers;   /**< threads that register, the caller's included; 0: 4 */
  uint32_t flags;     /**< 0 or PINFOLD_FILE */
  int file;           /**< with PINFOLD_FILE: the descriptor of the file that is mapped there */
  void *argument;     /**< passed to each open of the registrar */
  /** May be null. Called with the registered bytes and the bytes in all, whenever the former grow, on one of the
   *  registering threads at a time. */
  void (*progress)(void *self, uint64_t done, uint64_t total);
  void *self; /**< passed to `progress` */
} pinfold_large_options;

/** A part of registered memory, as a device needs it. */
typedef struct pinfold_part {
  void *address;            /**< its first byte */
  size_t bytes;             /**< its length */
  const void *registration; /**< what pinfold_registration_of returns: valid until the release of the lease */
} pinfold_part;

/**
 * Acquires one lease on a range of any size. The range is cut into pieces that meet at multiples of 1 GiB, or of 2 MiB
 * where the pieces are smaller. All or nothing. A range that exceeds the whole budget, in bytes or in pieces, is refused
 * before anything is registered or evicted. `options` may be null.
 */
PINFOLD_API int pinfold_acquire_large(pinfold_cache *cache, const void *address, size_t bytes, uint32_t access,
                                      const pinfold_large_options *options, pinfold_large **lease);
/** Releases all pieces and frees the lease. Returns the first error of a close. Null: PINFOLD_OK. */
PINFOLD_API int pinfold_large_release(pinfold_large *lease);
/** Returns the number of pieces; 0 for null. */
PINFOLD_API size_t pinfold_large_pieces(const pinfold_large *lease);
/** Writes piece `number`, from 0. Its lease belongs to the large lease: never release it; pinfold_share makes another.
 *  Either place may be null. Errors: PINFOLD_E_INVALID_ARGUMENT (no such piece). */
PINFOLD_API int pinfold_large_piece(const pinfold_large *lease, size_t number, pinfold_range *where,
                                    pinfold_lease *piece);
/** Writes the piece that contains the address, as pinfold_large_piece. Takes time in the logarithm of the number of
 *  pieces. Errors: PINFOLD_E_INVALID_RANGE (no piece contains it). */
PINFOLD_API int pinfold_large_at(const pinfold_large *lease, const void *address, pinfold_range *where,
                                 pinfold_lease *piece);
/**
 * Writes at most `room` of the parts of registrations that make up the memory, by address, and the number of all parts
 * into `count`. Errors: PINFOLD_E_INVALID_RANGE (the lease does not cover all of it), PINFOLD_E_CLOSED (the cache was
 * destroyed).
 */
PINFOLD_API int pinfold_large_list(const pinfold_large *lease, const void *address, size_t bytes, pinfold_part *parts,
                                   size_t room, size_t *count);
/** Returns 1 once the cache has noticed that memory of a piece was replaced or invalidated, as pinfold_is_stale. */
PINFOLD_API int pinfold_large_is_stale(const pinfold_large *lease);

/**
 * A ticket for memory that threads of the library register in the background. It holds a lease on each registered piece.
 * Threads may use it at the same time, but it must not be ended meanwhile. The cache may be destroyed before: then the
 * functions return PINFOLD_E_CLOSED, as they do in a child of fork(2).
 */
typedef struct pinfold_background pinfold_background;

/** The order of several ranges. */
enum pinfold_background_order {
  PINFOLD_ORDER_AS_GIVEN = 0,     /**< the order of the request */
  PINFOLD_ORDER_LARGEST_FIRST = 1 /**< the largest range first */
};

/** The thread that makes the pages of a piece present. */
enum pinfold_prefault {
  PINFOLD_PREFAULT_NONE = 0,      /**< the driver, as it pins them */
  PINFOLD_PREFAULT_PAGES = 1,     /**< the thread that registers the piece, before */
  PINFOLD_PREFAULT_HUGE_PAGES = 2 /**< likewise, after it has advised the kernel to use transparent huge pages */
};

/** What becomes of the registered part when the registration is cancelled. */
enum pinfold_cancel_policy {
  PINFOLD_CANCEL_KEEP = 0,     /**< the ticket keeps its leases */
  PINFOLD_CANCEL_GIVE_BACK = 1 /**< the ticket releases its leases */
};

/** No limit of time. */
#define PINFOLD_NO_TIMEOUT UINT64_MAX

/** Options of one background registration. */
typedef struct pinfold_background_options {
  size_t size;        /**< sizeof the structure */
  size_t piece_bytes; /**< largest piece; 0: 1 GiB */
  uint32_t workers;   /**< threads that register; 0: 4 */
  uint32_t order;     /**< a PINFOLD_ORDER_ number */
  void *argument;     /**< passed to each open of the registrar; valid until the end, see pinfold_background_end */
  /** May be null. Called with the registered bytes and the bytes in all, on one of the registering threads at a time.
   *  Never called after the ticket has ended, except if pinfold_background_end timed out. Waits for the ticket inside the
   *  callback return PINFOLD_E_INVALID_ARGUMENT. */
  void (*progress)(void *self, uint64_t done, uint64_t total);
  void *self;                /**< passed to `progress` */
  uint64_t bytes_per_second; /**< bytes that all threads together begin to register in a second; 0: no limit */
  size_t first_piece_bytes;  /**< largest size of the piece that is registered first, in 2 MiB; 0: 16 MiB */
  uint32_t prefault;         /**< a PINFOLD_PREFAULT_ number */
} pinfold_background_options;

/** How far a background registration has come. A piece that became stale counts as done until it is renewed. */
typedef struct pinfold_background_progress {
  size_t size;           /**< sizeof the structure */
  uint64_t bytes_done;   /**< registered */
  uint64_t bytes_total;  /**< to be registered */
  uint64_t pieces_done;  /**< pieces that are registered */
  uint64_t pieces_total; /**< pieces in all */
  uint32_t running;      /**< 1 if a thread still registers */
} pinfold_background_progress;

/**
 * Starts to register `count` ranges of local memory, of any size, and returns a ticket. Ranges that overlap are
 * registered as one. Bad input, and ranges that exceed the whole budget, are refused before anything is registered.
 * `options` may be null.
 */
PINFOLD_API int pinfold_register_in_background(pinfold_cache *cache, const pinfold_range *ranges, size_t count,
                                               uint32_t access, const pinfold_background_options *options,
                                               pinfold_background **ticket);
/** Cancels with PINFOLD_CANCEL_GIVE_BACK, and frees the ticket. Null: PINFOLD_OK. Errors: as pinfold_background_cancel;
 *  the ticket is gone all the same. PINFOLD_E_IN_USE_CONFLICT from a callback of the registrar: nothing has changed.
 *
 *  If it returned PINFOLD_E_TIMED_OUT, or was called in `progress`, a thread may still use the memory, `argument` and
 *  `self`, and a call of `progress` may still be under way. That is over once the registrar's `finished` is called. */
PINFOLD_API int pinfold_background_end(pinfold_background *ticket);
/** Writes how far the registration has come. Never waits for a driver. */
PINFOLD_API int pinfold_background_progress_of(const pinfold_background *ticket, pinfold_background_progress *progress);
/** Returns the end of the registered part that begins at the lowest address; 0 if the ticket is closed. */
PINFOLD_API uint64_t pinfold_background_ready_end(const pinfold_background *ticket);
/** Returns 1 if all of the memory is registered and not stale. */
PINFOLD_API int pinfold_background_is_ready(pinfold_background *ticket, const void *address, size_t bytes);
/**
 * Acquires a lease of its own on memory that is ready. It outlives the ticket. Errors: PINFOLD_E_INVALID_RANGE (not memory
 * of this ticket), PINFOLD_E_TIMED_OUT (not registered yet), PINFOLD_E_STALE_HANDLE (stale: pinfold_background_renew),
 * PINFOLD_E_CLOSED, and the failure of that piece.
 */
PINFOLD_API int pinfold_background_acquire(pinfold_background *ticket, const void *address, size_t bytes,
                                           pinfold_large **lease);
/** Waits until no thread registers any more, at most `timeout_ms` (PINFOLD_NO_TIMEOUT: without a limit). Errors:
 *  PINFOLD_E_TIMED_OUT, PINFOLD_E_CLOSED (cancelled, or the cache was destroyed), the first failure. */
PINFOLD_API int pinfold_background_wait(pinfold_background *ticket, uint64_t timeout_ms);
/** Waits until pinfold_background_ready_end is at least `end`. Errors: as above; PINFOLD_E_INVALID_RANGE if the memory of
 *  the ticket ends before, or has a gap. */
PINFOLD_API int pinfold_background_wait_until_ready(pinfold_background *ticket, uint64_t end, uint64_t timeout_ms);
/** Stops the threads, each at the end of its piece, and waits for them, at most `wait_timeout_ms` of the cache. `policy`: a
 *  PINFOLD_CANCEL_ number. Errors: PINFOLD_E_TIMED_OUT (a thread is in the driver; it ends by itself), the first error of
 *  a close. */
PINFOLD_API int pinfold_background_cancel(pinfold_background *ticket, uint32_t policy);
/** Returns 1 if a piece could not be registered, and writes the first failure and its piece (empty if the failure
 *  concerns none); otherwise 0. Either place may be null. */
PINFOLD_API int pinfold_background_failure(const pinfold_background *ticket, pinfold_error *failure,
                                           pinfold_range *where);
/** Writes at most `room` of the stale pieces, and the number of all into `count`. */
PINFOLD_API int pinfold_background_stale(pinfold_background *ticket, pinfold_range *pieces, size_t room, size_t *count);
/** Registers in the background the pieces that are stale, and those that a failure or a cancel left out. Gives back the
 *  leases on stale registrations first. Forgets the failure. */
PINFOLD_API int pinfold_background_renew(pinfold_background *ticket);
/** Moves all leases of the ticket into one, when everything is registered. Errors, which change nothing:
 *  PINFOLD_E_TIMED_OUT (a thread still registers), PINFOLD_E_STALE_HANDLE, PINFOLD_E_CLOSED, the first failure. */
PINFOLD_API int pinfold_background_take(pinfold_background *ticket, pinfold_large **lease);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_BACKGROUND_H */
