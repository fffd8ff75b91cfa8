/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of keys that peers are given, with generations by which a peer sees that its key was withdrawn.
 */
#ifndef PINFOLD_REMOTE_KEY_H
#define PINFOLD_REMOTE_KEY_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a peer needs to reach memory, and to see whether it still may. */
typedef struct pinfold_remote_key {
  uint64_t address;    /**< where the memory begins, as the device expects it from peers */
  uint64_t length;     /**< how many bytes */
  uint64_t key;        /**< of the device: `rkey` */
  uint64_t generation; /**< odd; never issued again */
  uint32_t slot;       /**< of the generation in the owner's table */
  uint32_t reserved;   /**< 0 */
} pinfold_remote_key;

/** The length of the wire form of a key, in bytes. docs/use/devices.md describes them. */
#define PINFOLD_REMOTE_KEY_WIRE_BYTES 48

/** A table of the generations of the keys that this process has given away. */
typedef struct pinfold_remote_keys pinfold_remote_keys;

/** Makes a table. Errors: PINFOLD_E_INVALID_ARGUMENT (null, no slots, or 2^32 and more), PINFOLD_E_OUT_OF_RESOURCES. */
PINFOLD_API int pinfold_remote_keys_create(size_t slots, pinfold_remote_keys **keys);
/** Frees the table, which peers must not read any more. Null: does nothing. */
PINFOLD_API void pinfold_remote_keys_destroy(pinfold_remote_keys *keys);
/** Writes where the words of the table are, which peers may read over RDMA or are sent, and how many. */
PINFOLD_API int pinfold_remote_keys_words(const pinfold_remote_keys *keys, const uint64_t **words, size_t *count);

/** Makes a token for a key of the device. Errors: PINFOLD_E_INVALID_RANGE, PINFOLD_E_OUT_OF_RESOURCES (every slot has a
 *  valid key). */
PINFOLD_API int pinfold_remote_key_issue(pinfold_remote_keys *keys, uint64_t address, uint64_t length, uint64_t key,
                                         pinfold_remote_key *token);
/** Invalidates the token: once this returns, no reader of the table takes it for current. Has no effect on the device:
 *  free the memory window, or release the lease, as well. Errors: PINFOLD_E_STALE_HANDLE (withdrawn before). */
PINFOLD_API int pinfold_remote_key_withdraw(pinfold_remote_keys *keys, const pinfold_remote_key *token);
/** Returns 1 if the token is current by these words: the owner's table, or a peer's copy of it, from slot 0 on. */
PINFOLD_API int pinfold_remote_key_is_current(const pinfold_remote_key *token, const uint64_t *words, size_t count);

/** Writes the wire form, PINFOLD_REMOTE_KEY_WIRE_BYTES long. */
PINFOLD_API int pinfold_remote_key_encode(const pinfold_remote_key *token, void *wire, size_t room);
/** Reads a wire form. Errors: PINFOLD_E_INVALID_HANDLE (another length, damaged, or not a token),
 *  PINFOLD_E_UNSUPPORTED (of a later version). */
PINFOLD_API int pinfold_remote_key_decode(const void *wire, size_t bytes, pinfold_remote_key *token);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_REMOTE_KEY_H */
