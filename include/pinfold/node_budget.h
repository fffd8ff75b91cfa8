/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of the node's budget: an account of registered bytes that processes share.
 */
#ifndef PINFOLD_NODE_BUDGET_H
#define PINFOLD_NODE_BUDGET_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A membership in an account. */
typedef struct pinfold_node_budget pinfold_node_budget;

/** Options of pinfold_node_budget_open(). */
typedef struct pinfold_node_budget_options {
  size_t size;       /**< sizeof the structure */
  size_t max_bytes;  /**< the maximum, at least 4096; 0: as the account has it */
  const char *member; /**< the name of this process in the list of members; null: the program's name */
  uint32_t separate; /**< not 0: a membership of its own, though the process has one of this account */
  uint32_t no_pins;  /**< not 0: neither RLIMIT_MEMLOCK nor the cgroup's memory.max limits this process's part */
} pinfold_node_budget_options;

/** An account at one moment. */
typedef struct pinfold_node_budget_state {
  size_t size;       /**< sizeof the structure */
  size_t max_bytes;  /**< the account's maximum */
  size_t used_bytes; /**< taken by all members */
  size_t bytes_here; /**< used by this membership, without what it took in advance */
  size_t members;    /**< how many there are */
} pinfold_node_budget_state;

/** One member of an account. Valid during the call. */
typedef struct pinfold_node_budget_member {
  size_t size;         /**< sizeof the structure */
  int32_t pid;         /**< as the member sees itself, in its own PID namespace */
  uint32_t waiting_ms; /**< how long a request of it has been waiting for room; 0: none waits */
  const char *name;    /**< from its options */
  size_t bytes;        /**< taken from the account, unused portions included */
  size_t asked;        /**< bytes of the last request that found no room */
  uint64_t refused;    /**< requests that got no room */
} pinfold_node_budget_member;

/** The limit that binds a process. */
enum pinfold_node_budget_bound {
  PINFOLD_BOUND_ACCOUNT = 0, /**< the account's maximum */
  PINFOLD_BOUND_MEMLOCK = 1, /**< RLIMIT_MEMLOCK of the process */
  PINFOLD_BOUND_CGROUP = 2   /**< memory.max of its cgroup, or of one above that */
};

/** The limits of a process in bytes; PINFOLD_UNLIMITED where there is none. */
typedef struct pinfold_node_budget_limits {
  size_t size;         /**< sizeof the structure */
  size_t account_max;  /**< the account's maximum */
  size_t account_used; /**< taken by all members */
  size_t memlock_max;  /**< RLIMIT_MEMLOCK; unlimited with CAP_IPC_LOCK */
  size_t memlock_used; /**< what the process has locked and pinned */
  size_t cgroup_max;   /**< the memory.max with the least room */
  size_t cgroup_used;  /**< memory.current beside it */
  size_t process_max;  /**< the least of the maxima */
  size_t room;         /**< under the limit that binds */
  uint32_t binds;      /**< a PINFOLD_BOUND_ number */
} pinfold_node_budget_limits;

/**
 * Becomes a member of an account, `/dev/shm/pinfold-<uid>-<name>`, which the first member makes. `options` may be null.
 * For caches, `pinfold_options.node_budget` does the same. Errors: PINFOLD_E_INVALID_ARGUMENT (null, a bad name, a
 * maximum below 4096 or other than the account has, none for an account that does not exist), PINFOLD_E_INVALID_HANDLE
 * (the file is damaged, foreign or of another version), PINFOLD_E_NOT_PERMITTED, PINFOLD_E_OUT_OF_RESOURCES,
 * PINFOLD_E_TIMED_OUT (another process stands still while it opens the account).
 */
PINFOLD_API int pinfold_node_budget_open(const char *name, const pinfold_node_budget_options *options,
                                         pinfold_node_budget **budget);

/** Gives up this use of a membership, and with the last one all that it has taken. Null is ignored. */
PINFOLD_API void pinfold_node_budget_close(pinfold_node_budget *budget);

/** Takes room, all or nothing, for memory that the program pins itself. Errors: PINFOLD_E_INVALID_ARGUMENT (null),
 *  PINFOLD_E_OVER_BUDGET. */
PINFOLD_API int pinfold_node_budget_take(pinfold_node_budget *budget, size_t bytes);

/** Gives back room that was taken. Errors: PINFOLD_E_INVALID_ARGUMENT (null). */
PINFOLD_API int pinfold_node_budget_give(pinfold_node_budget *budget, size_t bytes);

/** Gives back what is taken in advance and not used. Errors: PINFOLD_E_INVALID_ARGUMENT (null). */
PINFOLD_API int pinfold_node_budget_trim(pinfold_node_budget *budget);

/** Changes the maximum for all members. Errors: PINFOLD_E_INVALID_ARGUMENT; PINFOLD_E_CLOSED in a child of fork. */
PINFOLD_API int pinfold_node_budget_set_max_bytes(pinfold_node_budget *budget, size_t bytes);

/** Writes the account's state. Errors: PINFOLD_E_INVALID_ARGUMENT (null, a wrong size). */
PINFOLD_API int pinfold_node_budget_read(const pinfold_node_budget *budget, pinfold_node_budget_state *state);

/** Calls `each` for every member until it returns another number than 0. Errors: PINFOLD_E_INVALID_ARGUMENT,
 *  PINFOLD_E_OUT_OF_RESOURCES. */
PINFOLD_API int pinfold_node_budget_members(const pinfold_node_budget *budget,
                                            int (*each)(void *self, const pinfold_node_budget_member *member),
                                            void *self);

/** Reads the limits of this process, which apply from then on unless `no_pins` is set. Errors:
 *  PINFOLD_E_INVALID_ARGUMENT (null, a wrong size). */
PINFOLD_API int pinfold_node_budget_read_limits(const pinfold_node_budget *budget, pinfold_node_budget_limits *limits);

/** Removes the name of an account; its members go on with it. Errors: PINFOLD_E_INVALID_ARGUMENT,
 *  PINFOLD_E_NOT_PERMITTED, PINFOLD_E_DRIVER_ERROR (with ENOENT: there is none). */
PINFOLD_API int pinfold_node_budget_remove(const char *name);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_NODE_BUDGET_H */
