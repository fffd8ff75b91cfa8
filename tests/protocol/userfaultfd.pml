/* SPDX-License-Identifier: BSD-3-Clause
 *
 * From an event of memory to the next look-up, over userfaultfd: src/monitors/userfaultfd/thread.cpp (the reader),
 * src/invalidation/event_log.cpp (numbers and ranges) and src/core/engine_events.cpp (a cache that reads them). Two callers unmap or
 * discard at the same time, each its own memory, and ask two caches for it again. `scripts/model-check` runs every
 * variant. THIRD adds a thread that gets the address from the kernel before the caller is released; POSTS adds numbers
 * of another monitor, for other memory or for none that is registered, so that the ring overflows; HOOKED has the
 * second caller post its events itself, before its calls; ASKER adds a thread that only asks. Each of the others breaks
 * one rule, and has to fail:
 *
 *   BATCHED      the reader takes two events in one read, with one number reserved
 *   LATE_NUMBER  the reader reserves the number after the read
 *   NO_PROBE     THIRD without the question whether an event is in flight
 *   SKIP_EMPTY   a cache moves past a number that is reserved and not published yet
 *   LATE_WRITER  a writer that was stopped for a whole round writes over the newer range (the end is not reached)
 *   NO_BOUND     a cache that comes a ring late passes a number that is reserved and not published
 *   NO_REPOST    a writer that comes a ring late takes no other number
 *   SEEN_FIRST   a cache says that it has seen the numbers before it marks the entries
 *
 * Not in the model: store buffers (every step that matters is a locked instruction or a system call; hit.pml has them),
 * the early unregister of munmap's hook, a reader that dies, the waits' deadlines, more than one range in an entry.
 */

#define CALLERS 2
#ifndef CACHES
#define CACHES 2
#endif
#ifndef RUN
#define RUN 3       /* the callers that run, a bit each */
#endif
#ifndef RING
#define RING 2 /* places of the event_log */
#endif
#ifndef ROUNDS
#define ROUNDS 1    /* events that each caller causes */
#endif
#ifdef BATCHED
#define MOST 2      /* events that one read takes */
#else
#define MOST 1
#endif

#define BUSY 128
#define FILLED(m, number) (((m) & 127) > (number) && (m) != BUSY + (number) + 1)
#define NOTHING 7   /* a published range that touches no memory here */
#define EMPTY 6     /* a range that is registered nowhere */

/* The event_log. */
byte generation = 1;
byte mark[RING];    /* number + 1 once the range is published; with BUSY while it changes */
byte gone[RING];    /* the memory that went */
byte last[RING];    /* the check: the number that `gone` was written for */
byte outstanding;   /* plus 1: the reader has reserved no number below this; 0: none at all */
byte filled;        /* plus 1: the latest number with a range that is not empty */

/* The kernel: the events in order, and the callers that wait until the reader has read theirs. */
chan events = [CALLERS] of { byte };
bool released[CALLERS];
byte in_flight;
bool is_free[CALLERS]; /* THIRD: another thread may get the address */

/* The program's memory: the pages behind each address. */
byte pages[CALLERS];

/* Each cache: guarded by its mutex, except that hits load `seen`, and `live` after it. */
bool mutex[CACHES];
byte cursor[CACHES] = 1;
byte seen[CACHES] = 1;
bool live[CACHES * CALLERS];
byte registered[CACHES * CALLERS]; /* the pages that an entry registered */
#define ENTRY(c, m) ((c) * CALLERS + (m))

/* Publishes a range. A writer that was stopped for a whole round finds its place taken, and does not write. It checks
 * whether it is a ring late after it raised `filled`; a cache loads the generation first, and then `filled`. */
inline write(number, memory) {
  d_step { if :: memory != EMPTY && filled <= number -> filled = number + 1 :: else fi }
#ifdef LATE_WRITER
  mark[number % RING] = BUSY; gone[number % RING] = memory; last[number % RING] = number;
  mark[number % RING] = number + 1;
#else
  d_step {
    if
    :: (mark[number % RING] & 127) <= number -> mark[number % RING] = BUSY + number + 1
    :: else
    fi
  }
  if
  :: mark[number % RING] != BUSY + number + 1
  :: else ->
    gone[number % RING] = memory; last[number % RING] = number;
    d_step {
      if
      :: mark[number % RING] == BUSY + number + 1 -> mark[number % RING] = number + 1
      :: else
      fi
    }
  fi;
#endif
#ifdef NO_REPOST
  late = false
#else
  late = (memory != EMPTY && generation - number > RING)
#endif
}

inline post(number, memory) {
  do
  :: take(number); write(number, memory); if :: late :: else -> break fi
  od
}

inline publish(number, memory) {
  write(number, memory);
  if :: late -> post(number, memory) :: else fi;
  outstanding = 0
}

inline take(into) { d_step { into = generation; generation++ } }
inline reserve(into) { outstanding = generation + 1; take(into) }

/* Marks the entries stale that the range at the cursor touches. A cache that is a whole ring late marks all entries,
 * unless all missed ranges were empty; it passes no number that the reader has yet to publish. */
inline read_one(c) {
  now = generation;
  if
  :: now - cursor[c] > RING ->
#ifndef NO_BOUND
    (outstanding == 0 || outstanding > now - RING);
#endif
    d_step {
      if
      :: filled > cursor[c] -> live[ENTRY(c, 0)] = false; live[ENTRY(c, 1)] = false
      :: else
      fi;
      cursor[c] = now - RING
    }
  :: else ->
#ifdef SKIP_EMPTY
    m = mark[cursor[c] % RING];
#else
    d_step { FILLED(mark[cursor[c] % RING], cursor[c]) -> m = mark[cursor[c] % RING] }
#endif
    w = gone[cursor[c] % RING];
    n = last[cursor[c] % RING];
    if
    :: (m & 127) < cursor[c] + 1 || m == BUSY + cursor[c] + 1 /* SKIP_EMPTY */
    :: m == cursor[c] + 1 && n == cursor[c] && mark[cursor[c] % RING] == m ->
      if :: w < CALLERS -> live[ENTRY(c, w)] = false :: else fi
    :: else ->
#ifndef NO_BOUND
      (outstanding == 0 || outstanding > cursor[c] + 1);
#endif
      d_step { live[ENTRY(c, 0)] = false; live[ENTRY(c, 1)] = false }
    fi;
    cursor[c]++
  fi
}

/* Deals with all events before the call. */
inline process_invalidations(c) {
  target = generation;
  d_step { !mutex[c] -> mutex[c] = true };
#ifdef SEEN_FIRST
  if :: target > seen[c] -> seen[c] = target :: else fi;
#endif
  do
  :: cursor[c] < target -> read_one(c)
  :: else -> break
  od;
  seen[c] = cursor[c];
  mutex[c] = false
}

/* An acquire: a hit without the mutex; else it deals with all events, and then hits under the mutex, without another
 * look at the numbers, or registers. */
inline acquire(c, memory) {
  s = seen[c];
  g = generation;
  if
  :: g == s && live[ENTRY(c, memory)] -> assert(registered[ENTRY(c, memory)] == pages[memory])
  :: else ->
    process_invalidations(c);
    d_step {
      !mutex[c] ->
      if
      :: live[ENTRY(c, memory)] -> assert(registered[ENTRY(c, memory)] == pages[memory])
      :: else -> registered[ENTRY(c, memory)] = pages[memory]; live[ENTRY(c, memory)] = true
      fi
    }
  fi
}

proctype caller(byte me) {
  byte c, g, s, m, w, n, now, target, round;
  bool late;
  do
  :: round < ROUNDS ->
#ifdef HOOKED
    if
    :: me == 1 -> post(m, me); pages[me]++; goto told
    :: else
    fi;
#endif
    in_flight++;
    if
    :: pages[me]++; is_free[me] = true; events!me; released[me] /* UNMAP: told when the pages are gone */
    :: events!me; released[me]; pages[me]++                     /* REMOVE: told before the pages go */
    fi;
    d_step { released[me] = false; in_flight-- }
told:
    c = 0;
    do
    :: c < CACHES -> acquire(c, me); c++
    :: else -> break
    od;
    round++
  :: else -> break
  od
}

active proctype reader() {
  byte number, next, count, i;
  byte taken[MOST];
  bool late;
end:
  do
  :: nempty(events) ->
#ifndef LATE_NUMBER
    reserve(number);
#endif
    count = 0;
    do
    :: count < MOST && nempty(events) ->
      events?taken[count]; released[taken[count]] = true; count++
    :: else -> break
    od;
#ifdef LATE_NUMBER
    reserve(number);
#endif
    i = 1;
    do
    :: i < count -> post(next, taken[i]); i++
    :: else -> break
    od;
    publish(number, taken[0]); count = 0
  od
}

#ifdef THIRD
/* Gets the first caller's address from the kernel, under the kernel's lock on the mappings, and looks it up. */
active proctype third() {
  byte g, s, m, w, n, now, target;
end:
  is_free[0];
#ifndef NO_PROBE
  in_flight == 0;
#endif
  acquire(0, 0)
}
#endif

#ifdef ASKER
/* Asks the first cache for memory without events, so that the cache's cursor may move at any time. */
active proctype asker() {
  byte g, s, m, w, n, now, target;
  acquire(0, 0)
}
#endif

#ifdef POSTS
/* Another monitor, whose ranges are in no cache here. */
active proctype hooks() {
  byte number, i;
  bool late;
  do
  :: i < POSTS ->
    if
    :: post(number, NOTHING)
    :: post(number, EMPTY)
    fi;
    i++
  :: else -> break
  od
}
#endif

init {
  byte i;
  atomic {
    for (i : 0 .. CACHES * CALLERS - 1) { live[i] = true }
    for (i : 0 .. CALLERS - 1) { if :: RUN & (1 << i) -> run caller(i) :: else fi }
  }
}
