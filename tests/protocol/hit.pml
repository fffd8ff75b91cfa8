/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Hits without the mutex, and the close of entries that may be hit; docs/understand/protocol.md states the model's scope.
 * `scripts/model-check` runs every variant. Without a definition, pins are in cells; EVENTS, SLOTS, DESTROY choose
 * other right variants. With DETACH a thread moves its pin from its cell to its slot, where any thread gives it back.
 * Every other name that is tested here with `ifdef` breaks one rule, and an assertion must fail.
 */

#define RECORDS 2

/* The addresses in memory, from 1 on. */
#define CELL(t) (1 + (t)) /* a pin's record + 1; in SLOTS, the record and the count with its bias */
#define WORD(r) (4 + (r)) /* the hittable bit */
#define RANGE(r) (6 + (r)) /* the memory, and its incarnation */
#define TOKEN 8 /* a lease on its way to another thread */
#define MUTEX 9
#define GENERATION 10
#define SEEN 11
#define COUNT(t) (12 + (t)) /* TWO_WORD_SLOT: the count of a slot */
#define AWAITED 15 /* WAIT: a thread waits for releases */
#define SLOT(t) (16 + (t)) /* DETACH: the record and the count with its bias */
byte memory[19];

#include "store_buffers.pml"

/* Guarded by the mutex. */
mtype = { FREE, LIVE, EVICTING, DRAINING, QUEUED, CLOSING };
mtype state[RECORDS] = FREE;
short own[RECORDS]; /* the entry's own counter: changed by any thread, by locked instructions */
byte pending;       /* EVENTS: memory that went and is not dealt with yet, a bit each */
bool home = true;   /* the engine is still there */
bool woken;         /* WAIT: a release was settled since the waiting thread looked */

/* Ghost state, which only the assertions read. */
bool open[RECORDS];   /* in the driver */
byte leases[RECORDS];
byte begun[2]; /* how often this memory was declared gone */
byte gone[2];  /* how often the program knows that: by the return of `invalidate`, or by the event */
bool acquiring[THREADS] = true; /* DESTROY: no thread may destroy a cache that another thread uses */
byte done;

#define ADDRESS(range) ((range) / 8)
#define VERSION(range) ((range) % 8)

/* d_step: a compare-and-swap. The unlock is an ordinary store, after all others of its thread. */
inline lock() { d_step { FENCED && memory[MUTEX] == 0 -> memory[MUTEX] = 1 } }
inline unlock() { store(MUTEX, 0) }

/* Sums the pins of a record, one word after the other. */
inline count_pins(r) {
  total = own[r];
  i = 0;
  do
  :: i < THREADS ->
#if defined(TWO_WORD_SLOT)
    x = LOAD(CELL(i));
    if
    :: x == r -> total = total + LOAD(COUNT(i)) - 8
    :: else
    fi;
    d_step { x = 0; i++ }
#elif defined(SLOTS)
    d_step { total = total + (LOAD(CELL(i)) / 16 == r -> LOAD(CELL(i)) % 16 - 8 : 0); i++ }
#elif defined(SLOT_COUNTED_FIRST)
    total = total + (LOAD(SLOT(i)) / 16 == r -> LOAD(SLOT(i)) % 16 - 8 : 0);
    d_step { total = total + (LOAD(CELL(i)) == r + 1 -> 1 : 0); i++ }
#elif defined(DETACH)
    total = total + (LOAD(CELL(i)) == r + 1 -> 1 : 0);
    d_step { total = total + (LOAD(SLOT(i)) / 16 == r -> LOAD(SLOT(i)) % 16 - 8 : 0); i++ }
#else
    d_step { total = total + (LOAD(CELL(i)) == r + 1 -> 1 : 0); i++ }
#endif
  :: else -> i = 0; break
  od
}

/* Clears the bit, and counts the pins once every thread sees that. */
inline stop_and_count(r) {
  store(WORD(r), 0);
#ifdef SUM_BEFORE_BARRIER
  count_pins(r);
  barrier()
#else
  barrier();
  count_pins(r)
#endif
}

/* Closes under the mutex, which it releases while the driver works. */
inline close(r) {
  state[r] = CLOSING;
  unlock();
  d_step {
    assert(open[r]);        /* nothing is closed twice */
    assert(leases[r] == 0); /* nothing is closed under a lease */
    open[r] = false
  }
  lock();
  state[r] = FREE
}

/* The d_step is the driver's open, under the mutex. No thread can hit the record before the last of the stores. */
inline open_for(address, r) {
  d_step { open[r] = true; state[r] = LIVE; STORE(RANGE(r), 8 * (address) + begun[address]) }
  store(WORD(r), 1)
}

inline settle(r) {
  lock();
  woken = true;
  if
  :: !home || LOAD(WORD(r)) == 1
  :: else ->
    count_pins(r);
    if
    :: total == 0 && state[r] == DRAINING -> close(r)
    :: else
    fi;
    total = 0
  fi;
  unlock()
}

/* Settles after a pin was removed, if that is necessary. */
inline look_again(r) {
  if
#ifdef WAIT
  :: LOAD(WORD(r)) == 1 ->
    if
    :: LOAD(AWAITED) == 0
    :: else -> settle(r)
    fi
#else
  :: LOAD(WORD(r)) == 1
#endif
  :: else -> settle(r)
  fi
}

/* d_steps below: a locked instruction on `own`; the ghost `leases` falls with the store that ends the lease. */
#ifdef SLOTS
inline change(r, by, ghost) {
  x = LOAD(CELL(me));
  if
#ifdef TWO_WORD_SLOT
  :: x == r -> d_step { STORE(COUNT(me), LOAD(COUNT(me)) + by); leases[r] = leases[r] - ghost }
  :: x != r && LOAD(COUNT(me)) == 8 ->
    store(CELL(me), r);
    d_step { STORE(COUNT(me), 8 + by); leases[r] = leases[r] - ghost }
  :: x != r && LOAD(COUNT(me)) != 8 -> d_step { FENCED -> own[r] = own[r] + by; leases[r] = leases[r] - ghost }
#else
  :: x / 16 == r -> d_step { STORE(CELL(me), x + by); leases[r] = leases[r] - ghost }
  :: x / 16 != r && x % 16 == 8 -> d_step { STORE(CELL(me), 16 * r + 8 + by); leases[r] = leases[r] - ghost }
  :: x / 16 != r && x % 16 != 8 -> d_step { FENCED -> own[r] = own[r] + by; leases[r] = leases[r] - ghost }
#endif
  fi;
  x = 0
}
#define PIN(r) change(r, 1, 0)
#define UNPIN(c, r, ghost) change(r, (-1), ghost)
#define MAY_PIN true
#else
#define PIN(r) store(CELL(me), r + 1)
#define UNPIN(c, r, ghost) d_step { STORE(CELL(c), 0); leases[r] = leases[r] - ghost }
#define MAY_PIN (LOAD(CELL(me)) == 0)
#endif

#ifdef DETACH
inline change_slot(r, by, ghost) {
  x = LOAD(SLOT(me));
  if
  :: x / 16 == r -> d_step { STORE(SLOT(me), x + by); leases[r] = leases[r] - ghost }
  :: x / 16 != r && x % 16 == 8 -> d_step { STORE(SLOT(me), 16 * r + 8 + by); leases[r] = leases[r] - ghost }
  :: x / 16 != r && x % 16 != 8 -> d_step { FENCED -> own[r] = own[r] + by; leases[r] = leases[r] - ghost }
  fi;
  x = 0
}

/* The cell is the thread's own. For a moment the pin is in both places, and the sum too high; the release of the pin,
   which looks again, comes later. If the slot is in use for another record, the pin stays where it is, and moves to the
   entry under the mutex; that is not in the model. */
inline detach(r) {
#ifdef CELL_EMPTIED_FIRST
  store(CELL(me), 0);
  change_slot(r, 1, 0)
#else
  change_slot(r, 1, 0);
  store(CELL(me), 0)
#endif
}
#define MAY_DETACH(r) (LOAD(SLOT(me)) / 16 == r || LOAD(SLOT(me)) % 16 == 8)
#endif

inline release(from, which) { UNPIN(from, which, 1); look_again(which) }
#ifdef SILENT_UNPIN
inline give_up(r) { UNPIN(me, r, 0) }
#else
inline give_up(r) { UNPIN(me, r, 0); look_again(r) }
#endif

/* d_step: the lease begins with the last of the compared loads. */
inline leased(wanted, r) {
  d_step {
    assert(open[r]);
    assert(ADDRESS(memory[RANGE(r)]) == wanted);
    assert(VERSION(memory[RANGE(r)]) >= begin);
    leases[r]++;
    acquiring[me] = left > 0
  }
}

/* The comparisons of a hit; their order follows the code. `ok` is the outcome. */
#ifdef EVENTS
inline compare_generation() {
  if
  :: ok -> x = LOAD(GENERATION); ok = (x == LOAD(SEEN)); x = 0
  :: else
  fi
}
#define COMPARE_GENERATION compare_generation();
#else
#define COMPARE_GENERATION
#endif
inline compare_word(r) { ok = ok && LOAD(WORD(r)) == 1 }
inline compare_range(wanted, r) { ok = ok && ADDRESS(LOAD(RANGE(r))) == wanted }

/* A hit. Its record is a guess, which may be years old. */
inline hit(wanted, r) {
  /* d_step: loads of a hint, which proves nothing, and of a cell that only this thread fills. */
  d_step { begin = gone[wanted]; ok = MAY_PIN && ADDRESS(LOAD(RANGE(r))) == wanted }
  if
  :: ok ->
#ifdef WORD_BEFORE_PIN
    compare_word(r);
#endif
    PIN(r);
#if defined(WORD_BEFORE_PIN)
    COMPARE_GENERATION
    compare_range(wanted, r);
#elif defined(RANGE_BEFORE_WORD)
    COMPARE_GENERATION
    compare_range(wanted, r);
    compare_word(r);
#elif defined(GENERATION_AFTER_STATE)
    compare_word(r);
    compare_range(wanted, r);
    COMPARE_GENERATION
#else
    COMPARE_GENERATION
    compare_word(r);
    compare_range(wanted, r);
#endif
    if
    :: ok ->
      leased(wanted, r);
      if
      :: release(me, r)
#if defined(DESTROY) || defined(WAIT) /* here thread 1 need not take over a lease */
#elif defined(SLOTS)
      :: memory[TOKEN] == 0 -> store(TOKEN, r + 1)
#elif defined(DETACH)
      :: MAY_DETACH(r) ->
        detach(r);
        if
        :: change_slot(r, (-1), 1); look_again(r)
        :: memory[TOKEN] == 0 -> store(TOKEN, r + 1)
        fi
#else
      :: memory[TOKEN] == 0 -> store(TOKEN, me + 1)
#endif
      fi
    :: else -> give_up(r)
    fi
  :: else
  fi;
  d_step { begin = 0; ok = false }
}

/* Releases a lease that another thread acquired. */
inline take_over() {
  d_step { FENCED && memory[TOKEN] != 0 -> c = memory[TOKEN] - 1; memory[TOKEN] = 0 }
#if defined(SLOTS)
  release(me, c);
#elif defined(DETACH)
  change_slot(c, (-1), 1);
  look_again(c);
#else
  r = memory[CELL(c)] - 1;
  release(c, r);
#endif
  d_step { c = 0; r = 0 }
}

/* Under the mutex: hides the registrations of that memory, and queues those without a pin to be closed. */
inline retire(address) {
  r = 0;
  do
  :: r < RECORDS ->
    if
    :: (state[r] == LIVE || state[r] == EVICTING) && ADDRESS(LOAD(RANGE(r))) == address ->
      stop_and_count(r);
      state[r] = (total == 0 -> QUEUED : DRAINING);
      total = 0
    :: else
    fi;
    r++
  :: else -> r = 0; break
  od
}
inline close_queued() {
  do
  :: state[0] == QUEUED -> close(0)
  :: state[1] == QUEUED -> close(1)
  :: else -> break
  od
}

inline invalidate(address) {
  lock();
  d_step { begun[address]++; begin = begun[address] }
  retire(address);
  unlock();
  d_step { gone[address] = (gone[address] < begin -> begin : gone[address]); begin = 0 }
  lock();
  close_queued();
  unlock()
}

/* A monitor's event. d_step: a program may not register memory while it frees it, so the two are one step. */
inline event(address) {
  d_step {
#ifdef EVENT_IN_BUFFER
    STORE(GENERATION, LOAD(GENERATION) + 1);
#else
    FENCED -> memory[GENERATION]++;
#endif
    begun[address]++; gone[address]++;
    pending = pending | (1 << address)
  }
}

/* Under the mutex: loads the generation, deals with the events up to it, and then raises `seen`. */
inline drain() {
  d_step { g = LOAD(GENERATION); p = pending; pending = 0 }
#ifdef SEEN_FIRST
  store(SEEN, g);
#endif
  do
  :: p & 1 -> retire(0); p = p & 2
  :: p & 2 -> retire(1); p = p & 1
  :: p == 0 -> break
  od;
#ifndef SEEN_FIRST
  store(SEEN, g);
#endif
  g = 0
}

/* Takes a live record out of the reach of hits, unless it is pinned. */
inline evict(r) {
  lock();
  if
  :: state[r] == LIVE ->
    stop_and_count(r);
    if
    :: total != 0 -> store(WORD(r), 1)
    :: else -> state[r] = EVICTING
    fi;
    total = 0
  :: else
  fi;
  unlock()
}

/* Waits for room: announces it, looks, and sleeps until a release was settled. Its time-out is not in the model, so
   that a lost wake-up is an invalid end state. */
inline announce() { d_step { FENCED -> memory[AWAITED]++ } barrier() }
inline wait_for_room(r) {
  lock();
#ifndef ANNOUNCED_AFTER_LOOK
  announce();
#endif
  do
  :: state[r] == LIVE ->
    woken = false;
    stop_and_count(r);
    if
    :: total == 0 -> state[r] = EVICTING
    :: else ->
      total = 0;
      store(WORD(r), 1);
#ifdef ANNOUNCED_AFTER_LOOK
      announce();
#endif
      unlock();
      woken;
      lock()
    fi
  :: else -> break
  od;
  total = 0;
  unlock()
}

/* Succeeds when no lease is out. While it counts, no hit succeeds. */
inline quiesce() {
  lock();
#ifndef QUIESCE_WHILE_HIT
  store(WORD(0), 0);
  store(WORD(1), 0);
#endif
  barrier();
  count_pins(0);
  p = total;
  count_pins(1);
  assert(p + total != 0 || leases[0] + leases[1] == 0);
  d_step { p = 0; total = 0 }
  if
  :: state[0] == LIVE -> store(WORD(0), 1)
  :: else
  fi;
  if
  :: state[1] == LIVE -> store(WORD(1), 1)
  :: else
  fi;
  unlock()
}

/* A request under the mutex: finds an entry, or reuses a record for this memory. Its pin is in the entry's counter. */
inline miss(wanted) {
  lock();
  begin = gone[wanted];
#ifdef EVENTS
  drain();
  close_queued();
#endif
#define FOUND(n) (state[n] == LIVE || state[n] == EVICTING) && ADDRESS(LOAD(RANGE(n))) == wanted
  ok = true;
  if
  :: !home -> ok = false
  :: home && FOUND(0) -> r = 0
  :: home && FOUND(1) -> r = 1
  :: else ->
    if
    :: state[0] == EVICTING -> r = 0; close(0)
    :: state[1] == EVICTING -> r = 1; close(1)
    :: state[0] == FREE -> r = 0
    :: state[1] == FREE -> r = 1
    :: else -> ok = false
    fi;
    if
    :: ok && state[r] == FREE -> open_for(wanted, r)
    :: else
    fi
  fi;
  if
  :: ok ->
    if
    :: state[r] == EVICTING -> state[r] = LIVE; store(WORD(r), 1)
    :: else
    fi;
    d_step { FENCED -> own[r]++ }
    leased(wanted, r);
    unlock();
    d_step { FENCED -> own[r]--; leases[r]-- }
    look_again(r)
  :: else -> unlock()
  fi;
  d_step { begin = 0; ok = false; r = 0 }
}

/* Ends the cache after the last lease; the time-out is not in the model. */
inline destroy() {
  lock();
  r = 0;
  do
  :: r < RECORDS -> store(WORD(r), 0); r++
  :: else -> r = 0; break
  od;
  barrier();
  do
  :: r < RECORDS ->
    count_pins(r);
    if
    :: total != 0 -> total = 0; r = 0; unlock(); lock()
    :: total == 0 && state[r] != CLOSING -> r++
    :: total == 0 && state[r] == CLOSING -> unlock(); lock()
    fi
  :: else -> r = 0; break
  od;
  do
  :: state[r] == LIVE || state[r] == EVICTING || state[r] == QUEUED -> close(r)
#ifndef LEFT_TO_SETTLE
  :: state[r] == DRAINING -> close(r) /* its last release is on its way to the mutex */
#endif
  :: else ->
    r++;
    if
    :: r == RECORDS -> r = 0; break
    :: else
    fi
  od;
  home = false;
  unlock()
}

/* Moves a count to its entry when the thread ends. */
inline fold() {
  x = LOAD(CELL(me));
  if
  :: x % 16 != 8 ->
    d_step { FENCED -> own[x / 16] = own[x / 16] + x % 16 - 8 }
    store(CELL(me), 16 * (x / 16) + 8)
  :: else
  fi;
  x = 0
}

/* The operations of each thread, and their number. A hit may guess any record, for any memory. */
#ifndef HITS
#define HITS 2
#endif
#ifndef OTHERS
#define OTHERS 2
#endif
#ifndef CLOSES
#define CLOSES 2
#endif

inline any_hit() {
  if
  :: wanted = 0
  :: wanted = 1
  fi;
  if
  :: r = 0
  :: r = 1
  fi;
  hit(wanted, r);
  d_step { wanted = 0; r = 0 }
}

proctype thread(byte me; byte left) {
  byte wanted, r, begin, i, x, c, g, p, todo;
  short total;
  bool ok;

  do
  :: left > 0 && me == 0 -> left--; any_hit()
  :: left > 0 && me == 1 -> left--;
    if
    :: any_hit()
#ifndef DESTROY
    :: miss(0)
    :: take_over()
#endif
    :: true
    fi
  :: left > 0 && me == 2 -> left--;
    if
#if defined(WAIT)
    :: wait_for_room(0)
#elif defined(QUIESCE)
    :: quiesce()
#elif defined(EVENTS)
    :: event(0)
#else
    :: invalidate(0)
#endif
    :: evict(0)
#ifndef DESTROY
    :: miss(1)
#endif
    fi
  :: left == 0 -> break
  od;
#ifdef FOLD_AT_EXIT
  fold();
#endif
#ifdef DESTROY
  acquiring[me] = false;
  if
  :: me == 2 -> !acquiring[0] && !acquiring[1]; destroy()
  :: else
  fi;
#endif
  done++
}

init {
  d_step {
    memory[RANGE(0)] = 0; memory[WORD(0)] = 1; open[0] = true; state[0] = LIVE;
    memory[RANGE(1)] = 8 * 2; /* of memory that no thread requests */
#ifdef TWO_WORD_SLOT
    memory[COUNT(0)] = 8; memory[COUNT(1)] = 8; memory[COUNT(2)] = 8;
#elif defined(SLOTS)
    memory[CELL(0)] = 8; memory[CELL(1)] = 8; memory[CELL(2)] = 8;
#elif defined(DETACH)
    memory[SLOT(0)] = 8; memory[SLOT(1)] = 8; memory[SLOT(2)] = 8;
#endif
  }
  atomic { run thread(0, HITS); run thread(1, OTHERS); run thread(2, CLOSES) }
  done == THREADS && stored[0] + stored[1] + stored[2] == 0;
  /* No close is lost: a draining entry has a lease. */
  assert(state[0] != DRAINING || leases[0] > 0);
  assert(state[1] != DRAINING || leases[1] > 0);
  assert(home || (!open[0] && !open[1]))
}
