/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The release protocol over a channel of the program: the library makes and reads the messages, the program carries
 * them, each whole and in their order. It needs no socket and no thread of the library. Each side ignores the messages
 * of its own kind, so a process that is exporter and importer may pass each message to both.
 */
#ifndef PINFOLD_RELEASE_CARRIED_H
#define PINFOLD_RELEASE_CARRIED_H

#include <pinfold/release.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of each message. They are in the byte order of the host, with a version and a checksum. */
#define PINFOLD_RELEASE_MESSAGE_BYTES 56

/** Names exported memory: the numbers are in its handle. */
typedef struct pinfold_release_id {
  uint64_t exporter; /**< random number of the exporter object */
  uint64_t serial;   /**< counts the exporter's memory, never reused */
} pinfold_release_id;
/**
 * Writes the numbers of a handle of memory files or of GPU memory. Errors: PINFOLD_E_INVALID_HANDLE (of another length
 * or kind, or damaged), PINFOLD_E_INVALID_ARGUMENT.
 */
PINFOLD_API int pinfold_release_id_of(const void *handle, size_t handle_bytes, pinfold_release_id *id);

/**
 * The exporter's record of the importers that hold its memory. An importer counts from
 * pinfold_release_registry_lend until it answers that it let the memory go, or until pinfold_release_registry_died. All
 * functions may be called on any thread. In a forked child they fail with PINFOLD_E_UNSUPPORTED; it may only destroy
 * the registry.
 */
typedef struct pinfold_release_registry pinfold_release_registry;
/** Makes the registry of the exporter with that number. Errors: PINFOLD_E_INVALID_ARGUMENT,
 *  PINFOLD_E_OUT_OF_RESOURCES. */
PINFOLD_API int pinfold_release_registry_create(uint64_t exporter, pinfold_release_registry **registry);
/** Frees the registry; no other thread may be in a call of it. Null: nothing. */
PINFOLD_API void pinfold_release_registry_destroy(pinfold_release_registry *registry);
/** Adds memory that importers may open. Errors: PINFOLD_E_OUT_OF_RESOURCES. */
PINFOLD_API int pinfold_release_registry_add(pinfold_release_registry *registry, uint64_t serial);
/**
 * Counts the peer as an importer of the memory. Call it before the peer is sent the handle. The program numbers its
 * peers as it likes; `pid` is the peer's process, or 0, and is only reported. Errors: PINFOLD_E_STALE_HANDLE (not
 * added, retired, or forgotten), PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_release_registry_lend(pinfold_release_registry *registry, uint64_t serial, uint64_t peer,
                                              int32_t pid);
/**
 * Begins to retire the memory: it is lent to no further peer, and pinfold_release_registry_next_request returns a
 * request for each importer. The importers get `timeout_ms`. Errors: PINFOLD_E_STALE_HANDLE (not added, retired,
 * or forgotten), PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_release_registry_begin_retire(pinfold_release_registry *registry, uint64_t serial,
                                                      uint64_t timeout_ms);
/**
 * Writes the next message for the peer, a request, counts it as sent, and writes its length into `bytes`: 0 if there is
 * none. `message` has room for `room` bytes. Errors: PINFOLD_E_INVALID_ARGUMENT (room for less than
 * PINFOLD_RELEASE_MESSAGE_BYTES).
 */
PINFOLD_API int pinfold_release_registry_next_request(pinfold_release_registry *registry, uint64_t peer, void *message,
                                                      size_t room, size_t *bytes);
/** Counts a request as not sent, so that pinfold_release_registry_next_request returns it again. Errors:
 *  PINFOLD_E_INVALID_ARGUMENT (not a message, or damaged). */
PINFOLD_API int pinfold_release_registry_take_back(pinfold_release_registry *registry, uint64_t peer,
                                                   const void *message, size_t bytes);
/**
 * Processes a message that arrived from the peer. Ignores what is no answer to this exporter. Errors:
 * PINFOLD_E_INVALID_ARGUMENT (of another length or version, or damaged).
 */
PINFOLD_API int pinfold_release_registry_receive(pinfold_release_registry *registry, uint64_t peer, const void *message,
                                                 size_t bytes);
/** Removes the peer everywhere: its process has ended. */
PINFOLD_API int pinfold_release_registry_died(pinfold_release_registry *registry, uint64_t peer);
/** Notes that the peer cannot answer, though its process may run on: it still counts, as `lost`. */
PINFOLD_API int pinfold_release_registry_lost(pinfold_release_registry *registry, uint64_t peer);
/**
 * Waits until no importer holds the memory, at most `timeout_ms` (a day at most; 0: not at all), and writes the report.
 * `state` is PINFOLD_RETIRE_FREED if no importer holds it, so that the program may free it, and else
 * PINFOLD_RETIRE_ASKING, which is no error. Errors: PINFOLD_E_STALE_HANDLE (not added, or forgotten),
 * PINFOLD_E_INVALID_ARGUMENT, PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_release_registry_wait(const pinfold_release_registry *registry, uint64_t serial,
                                              uint64_t timeout_ms, pinfold_retire_report *report);
/** Writes at most `room` of the importers that hold the memory, and the number of all into `count`.
 * `connection` is the number of the peer. Errors: as pinfold_release_registry_wait. */
PINFOLD_API int pinfold_release_registry_holders(const pinfold_release_registry *registry, uint64_t serial,
                                                 pinfold_release_holder *holders, size_t room, size_t *count);
/** Forgets memory that the program has freed. */
PINFOLD_API int pinfold_release_registry_forget(pinfold_release_registry *registry, uint64_t serial);

/**
 * Carries an answer of a listener to the exporter with that number, and returns PINFOLD_OK, or a PINFOLD_E_ code, which
 * `failure` may describe. An answer that it could not carry stays the first to be sent. It is called on the threads
 * that call the listener, and that release leases on or use caches over it; one call at a time, without a lock. While a
 * thread is in it, that thread also carries the answers of other threads, whose calls may return before. It may release
 * leases and pass messages to the listener. Calls that could wait for it, such as an import from a cache over the
 * listener, and destroying the cache or the listener, get PINFOLD_E_IN_USE_CONFLICT.
 */
typedef int (*pinfold_release_send)(void *self, uint64_t exporter, const void *message, size_t bytes,
                                    pinfold_error *failure);
/**
 * The importer's side: lets memory go in the caches over it when their exporters ask for it. All functions may be
 * called on any thread. In a forked child they fail with PINFOLD_E_UNSUPPORTED; it may only destroy the listener.
 */
typedef struct pinfold_release_listener pinfold_release_listener;
/** Makes a listener whose answers `send` carries; it gets `self`. Errors: PINFOLD_E_INVALID_ARGUMENT,
 *  PINFOLD_E_OUT_OF_RESOURCES. */
PINFOLD_API int pinfold_release_listener_create(pinfold_release_send send, void *self,
                                                pinfold_release_listener **listener);
/**
 * Frees the listener. Waits for the thread in `send`, which is not called afterwards: answers that it refused are lost,
 * and the exporter counts this importer until pinfold_release_registry_died. Null: nothing. Errors:
 * PINFOLD_E_IN_USE_CONFLICT (a cache over it was not destroyed, or a thread is still in the driver of one; called in
 * `send`), after which the listener is as before.
 */
PINFOLD_API int pinfold_release_listener_destroy(pinfold_release_listener *listener);
/**
 * Makes a cache as pinfold_create_memfd does, over the listener: from a request for memory on, no import and no find
 * returns a lease on it. The exporter needs no `release`. Imports of memory that an exporter requested back fail with
 * PINFOLD_E_STALE_HANDLE, for ever. Errors: also PINFOLD_E_INVALID_ARGUMENT (no listener).
 */
PINFOLD_API int pinfold_create_memfd_carried(pinfold_release_listener *listener, uint32_t flags,
                                             const pinfold_options *options, pinfold_cache **cache);
/** Makes a cache as pinfold_create_cuda_ipc does, over the listener as pinfold_create_memfd_carried. */
PINFOLD_API int pinfold_create_cuda_ipc_carried(pinfold_release_listener *listener, int device,
                                                const pinfold_options *options, pinfold_cache **cache);
/**
 * Processes a message that arrived from an exporter: if it is a request, invalidates the memory in all caches over the
 * listener, closes it unless it is leased, and answers. Ignores other messages. Errors: PINFOLD_E_INVALID_ARGUMENT (of
 * another length or version, or damaged), PINFOLD_E_OUT_OF_RESOURCES (not answered: pass it again); also what `send`
 * returned on this thread, with its native code, although the request is processed.
 */
PINFOLD_API int pinfold_release_listener_receive(pinfold_release_listener *listener, const void *message, size_t bytes);
/**
 * Closes what can be closed of memory that exporters want back, and sends the answers that are not sent yet. Call it
 * regularly, and after `send` failed. Errors: what `send` returned on this thread, with its native code.
 */
PINFOLD_API int pinfold_release_listener_progress(pinfold_release_listener *listener);

/** Counts of a listener. */
typedef struct pinfold_release_listener_statistics {
  size_t size;            /**< sizeof the structure */
  uint64_t mappings;      /**< mappings that are open or being opened */
  uint64_t retiring;      /**< buffers that an exporter wants back and that are still mapped */
  uint64_t requests;      /**< requests received */
  uint64_t refused;       /**< opens refused because the memory is retired */
  uint64_t failed_closes; /**< tries to close what is due in a cache that failed */
  uint64_t unsent;        /**< answers that `send` refused, or has not been called for */
} pinfold_release_listener_statistics;
/** Writes the counts; in a forked child, zeros. */
PINFOLD_API int pinfold_release_listener_statistics_of(const pinfold_release_listener *listener,
                                                       pinfold_release_listener_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_RELEASE_CARRIED_H */
