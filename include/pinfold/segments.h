/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of memory that grows in segments, and of questions about handles before they are opened.
 */
#ifndef PINFOLD_SEGMENTS_H
#define PINFOLD_SEGMENTS_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Returns whether pinfold_import could open the handle now, or why not, before anything is tried: opens nothing and
 * sends nothing to the exporter. A cache with importers in C returns PINFOLD_E_UNSUPPORTED. Other errors:
 * PINFOLD_E_INVALID_HANDLE, PINFOLD_E_UNSUPPORTED (another host, no way to the exporter, no driver, no such device),
 * PINFOLD_E_PEER_GONE, PINFOLD_E_NOT_PERMITTED.
 */
PINFOLD_API int pinfold_can_open(const pinfold_cache *cache, const void *handle, size_t handle_bytes);

/** Names the address range of segments, so that an importer maps them side by side. May be sent to peers in any way. */
typedef struct pinfold_window {
  uint64_t exporter; /**< random number of the exporter */
  uint64_t base;     /**< first address in the exporter */
  uint64_t bytes;    /**< how many, whole pages */
} pinfold_window;
/**
 * Reserves addresses of this process for a window of the exporter, in which the cache maps its segments at their
 * offset, and stores where it is. Call it before the first import from the window. Errors: PINFOLD_E_INVALID_RANGE,
 * PINFOLD_E_IN_USE_CONFLICT, PINFOLD_E_UNSUPPORTED, PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_add_window(pinfold_cache *cache, const pinfold_window *window, void **address);
/** Gives the addresses back; PINFOLD_E_IN_USE_CONFLICT while something is mapped there. */
PINFOLD_API int pinfold_remove_window(pinfold_cache *cache, const pinfold_window *window);

/**
 * Stores leases on all segments under the `bytes` bytes at `address` of the peer, by address: one for each of `count`
 * handles that the range touches, all or nothing. `handles` are `count` times `handle_bytes` bytes, in any order; those
 * elsewhere are ignored. Only segments that are not open are opened. `leases` has room for `count`; `*made` is their
 * number. `where` has the same room, for what each lease covers of the range in the exporter, or is null. Release the
 * leases with pinfold_release or pinfold_release_batch.
 *
 * Errors: PINFOLD_E_INVALID_RANGE (a part has no handle), PINFOLD_E_INVALID_HANDLE (also handles that overlap),
 * PINFOLD_E_OUT_OF_RESOURCES, and those of pinfold_import, of the first segment that fails. On an error all of `leases`
 * are empty, though the cache may keep what it opened.
 */
PINFOLD_API int pinfold_acquire_segments(pinfold_cache *cache, uint64_t peer, const void *handles, size_t handle_bytes,
                                         size_t count, uint64_t address, size_t bytes, pinfold_lease *leases,
                                         pinfold_range *where, size_t *made);

/** An address range of a memfd exporter, over which segments are added and removed. */
typedef struct pinfold_memfd_segments pinfold_memfd_segments;
/** Reserves `bytes` bytes of addresses without memory, in whole pages. */
PINFOLD_API int pinfold_memfd_reserve(pinfold_memfd_exporter *exporter, size_t bytes,
                                      pinfold_memfd_segments **segments);
/** Unmaps all; peers keep what they have mapped. Null: nothing. */
PINFOLD_API void pinfold_memfd_segments_free(pinfold_memfd_segments *segments);
/** Returns the first address of the range; null for null. */
PINFOLD_API void *pinfold_memfd_segments_data(const pinfold_memfd_segments *segments);
/** Stores the range, to send to peers. */
PINFOLD_API int pinfold_memfd_segments_window(const pinfold_memfd_segments *segments, pinfold_window *window);
/**
 * Adds a zeroed segment of `bytes` bytes at `offset`, both whole pages, and copies its handle. Errors:
 * PINFOLD_E_INVALID_RANGE, PINFOLD_E_IN_USE_CONFLICT (meets a segment), PINFOLD_E_OUT_OF_RESOURCES, PINFOLD_E_CLOSED
 * (the exporter has ended).
 */
PINFOLD_API int pinfold_memfd_segment_add(pinfold_memfd_segments *segments, size_t offset, size_t bytes, void *handle,
                                          size_t handle_bytes);
/** Removes all segments in the range, which must not cut one, and leaves the others untouched. */
PINFOLD_API int pinfold_memfd_segment_remove(pinfold_memfd_segments *segments, size_t offset, size_t bytes);
/**
 * Copies the handles of the segments under the range, by address: at most `room`, each of `handle_bytes` bytes, one
 * behind the other. `*count` is the number of all, even if there is less room. Errors: PINFOLD_E_INVALID_RANGE (a part
 * has no segment), PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_memfd_segments_handles(const pinfold_memfd_segments *segments, size_t offset, size_t bytes,
                                               void *handles, size_t handle_bytes, size_t room, size_t *count);

/**
 * Shares GPU memory segment by segment: copies a handle for each physical segment that the `bytes` bytes at `pointer`
 * touch, by address, as pinfold_memfd_segments_handles does. A segment keeps its handle until it is unmapped, whatever
 * happens to its neighbours. Memory that is not mapped in segments has one handle. Errors as pinfold_cuda_share.
 */
PINFOLD_API int pinfold_cuda_share_segments(pinfold_cuda_exporter *exporter, uint64_t pointer, size_t bytes,
                                            void *handles, size_t handle_bytes, size_t room, size_t *count);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_SEGMENTS_H */
