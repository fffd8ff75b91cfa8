/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The processor's store buffers, for models that include this file. Spin interleaves whole steps, so it is sequentially
 * consistent. Here a processor's reordering is explicit: variables that threads share without a mutex are in `memory`,
 * a thread's stores go through its buffer, and the process `hardware` writes them back in their order, at any time. A
 * load outside a d_step is a step of its own. Each thread is a process with the number `me`, and a byte `todo`.
 */

#define THREADS 3
#define ROOM 3 /* stores in a buffer */

/* Address 0 marks an empty place of a buffer. Thread t has places ROOM * t and up. */
byte where[ROOM * THREADS];
byte value[ROOM * THREADS];
byte stored[THREADS];

/* Loads the thread's own newest store, else the value in memory. */
#define LOAD(l) (where[2 + ROOM * me] == (l) -> value[2 + ROOM * me] : \
                (where[1 + ROOM * me] == (l) -> value[1 + ROOM * me] : \
                (where[0 + ROOM * me] == (l) -> value[0 + ROOM * me] : memory[l])))

/* d_step: one instruction of one thread. It waits while the buffer is full. */
#define STORE(l, v) \
  stored[me] < ROOM -> where[ROOM * me + stored[me]] = l; value[ROOM * me + stored[me]] = v; stored[me]++

inline store(l, v) { d_step { STORE(l, v) } }

/* A locked instruction: it waits until the thread's own stores are written back. */
#define FENCED (stored[me] == 0)

/* Only within a d_step: one store of a thread becomes visible to all. */
inline write_back(t) {
  memory[where[ROOM * t]] = value[ROOM * t];
  where[ROOM * t] = where[ROOM * t + 1]; value[ROOM * t] = value[ROOM * t + 1];
  where[ROOM * t + 1] = where[ROOM * t + 2]; value[ROOM * t + 1] = value[ROOM * t + 2];
  where[ROOM * t + 2] = 0; value[ROOM * t + 2] = 0;
  stored[t]--
}

/* d_step: between two stores of the same buffer, `hardware` may do the same one by one, before this. */
inline flush(t) {
  d_step { do :: stored[t] > 0 -> write_back(t) :: else -> break od }
}

/* membarrier(2): the caller's stores are visible before any other thread is interrupted; these come in any order. */
inline barrier() {
  flush(me);
#ifndef NO_BARRIER /* only the caller passes a fence */
  todo = 7 - (1 << me);
  do
  :: todo & 1 -> flush(0); todo = todo & 6
  :: todo & 2 -> flush(1); todo = todo & 5
  :: todo & 4 -> flush(2); todo = todo & 3
  :: todo == 0 -> break
  od
#endif
}

active proctype hardware() {
end:
  do
  :: d_step { stored[0] > 0 -> write_back(0) }
  :: d_step { stored[1] > 0 -> write_back(1) }
  :: d_step { stored[2] > 0 -> write_back(2) }
  od
}

