/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Events on memory in a cache that is divided into shards: src/core/engine_events.cpp, engine_open.cpp. Shard 0 has
 * the entries on page 0, shard 1 those on page 1, shard 2 those on both. Threads 0 and 1 each unmap a page, get other
 * memory there, and request it; thread 2 requests both pages, or is the reaper. An event's number is reserved in the
 * step in which the memory goes, and published later: so no thread can register memory that is about to go.
 * `scripts/model-check` runs every variant; docs/understand/protocol.md describes them.
 *
 * Each step that matters is a locked instruction, or under a mutex, or a store with release order after which nothing
 * is loaded. So there are no store buffers.
 */

#define PAGES 2
#define SHARDS 3
#define ENTRIES 6 /* three from the beginning, in shards 0, 1, 2; and those that threads 0, 1, 2 open there */
#define NUMBERS 2 /* events */
#define ALL 3     /* instead of what a request is for: all events are processed */

#define SHARD(e) ((e) % 3)
#define TOUCHES(e, page) (SHARD(e) == 2 || SHARD(e) == page)
#define COVERS(e, which) (SHARD(e) == 2 || SHARD(e) == which) /* which: the page, or 2 for both */

byte memory[PAGES] = 1;      /* which memory is there */

/* The event log. */
byte generation;
byte published[NUMBERS];     /* the page + 1 */

/* Guarded by events_mutex_. */
bool events_mutex;
byte cursor;

byte seen;
bool pending_shards[SHARDS]; /* bits of one word, set and cleared by locked instructions */
#define PENDING (pending_shards[0] || pending_shards[1] || pending_shards[2])
bool levels;                 /* in use for both pages; those for one page are in use */

/* Guarded by the mutex of a shard. */
bool mutex[SHARDS];
bool pending[SHARDS * PAGES];    /* an invalidation of the page is pending */
byte pending_era[SHARDS * PAGES];
byte era[SHARDS];                /* the latest that an entry got */
#define PENDS(s, page) pending[(s) * PAGES + (page)]
#define PENDING_ERA(s, page) pending_era[(s) * PAGES + (page)]

mtype = { NONE, OPENING, LIVE, DRAINING };
mtype state[ENTRIES] = NONE;
bool stale[ENTRIES];
bool hittable[ENTRIES];
byte own_era[ENTRIES];
byte has[ENTRIES * PAGES];       /* the memory that is registered */
#define HAS(e, page) has[(e) * PAGES + (page)]

byte done;

/* A mutex under which a thread takes one step that others see is taken within that step: see IN. */
#define IN(s) !mutex[s]
inline lock(s) { atomic { !mutex[s] -> mutex[s] = true } }
inline unlock(s) { mutex[s] = false }

inline fresh_entry(e, s) {
  d_step {
    state[e] = OPENING;
    if
    :: PENDS(s, 0) && PENDING_ERA(s, 0) > era[s] -> era[s] = PENDING_ERA(s, 0)
    :: else
    fi;
    if
    :: PENDS(s, 1) && PENDING_ERA(s, 1) > era[s] -> era[s] = PENDING_ERA(s, 1)
    :: else
    fi;
    own_era[e] = era[s];
    stale[e] = false
  }
}

#define AFFECTED_BY(e, page) (PENDS(SHARD(e), page) && TOUCHES(e, page) && own_era[e] < PENDING_ERA(SHARD(e), page))
#define AFFECTED(e) (AFFECTED_BY(e, 0) || AFFECTED_BY(e, 1))

/* Makes an event pending in one shard. */
inline add(s, page) {
  atomic {
    IN(s);
    PENDS(s, page) = true;
#ifdef ERA_OF_ENTRIES
    PENDING_ERA(s, page) = era[s];
#else
    PENDING_ERA(s, page) = era[s] + 1;
#endif
#ifndef BIT_LATE
    pending_shards[s] = true
#endif
  }
}

/* An event concerns the shard of its page, and that of both pages. Each event is on another page, so that no place has
   two. */
inline deliver(page) {
  add(page, page);
  if
  :: levels -> add(2, page)
  :: else
  fi
}

/* Reads the event log up to `target`. Waits for numbers that are reserved and not published. */
inline read_log() {
  atomic { !events_mutex -> events_mutex = true }
  do
  :: cursor < target ->
    published[cursor] != 0;
    gone = published[cursor] - 1;
#ifdef DELIVERED_LATE
    cursor++;
    events_mutex = false;
    deliver(gone);
    atomic { !events_mutex -> events_mutex = true }
#else
    deliver(gone);
    cursor++
#endif
#ifdef BIT_LATE
    ;
    late = late | (1 << gone) | (levels << 2)
#endif
  :: else -> break
  od;
  events_mutex = false;
#ifdef BIT_LATE
  if
  :: late & 1 -> pending_shards[0] = true
  :: else
  fi;
  if
  :: late & 2 -> pending_shards[1] = true
  :: else
  fi;
  if
  :: late & 4 -> pending_shards[2] = true
  :: else
  fi;
  late = 0;
#endif
  gone = 0
}

/* Marks an entry: no request finds it any more. */
inline invalidate(e) {
  stale[e] = true;
  hittable[e] = false;
  if
  :: state[e] == LIVE -> state[e] = DRAINING
  :: else
  fi
}

#define FINDABLE(e) ((state[e] == LIVE || state[e] == OPENING) && !stale[e])

/* Marks the entries of a shard that an invalidation affects. */
inline mark(s) {
  if
  :: FINDABLE(s) && AFFECTED(s) -> invalidate(s)
  :: else
  fi;
  if
  :: FINDABLE(s + 3) && AFFECTED(s + 3) -> invalidate(s + 3)
  :: else
  fi
}

/* All that concerns the request, and then of every shard all, or for now nothing. */
#define CONCERNS(s, which) ((which) == 2 || (s) == 2 || (s) == (which))
inline process_pending(which) {
  d_step { bits = pending_shards[0] + 2 * pending_shards[1] + 4 * pending_shards[2] }
  s = 0;
  do
#ifdef OWN_SHARD
  :: s < SHARDS && (bits >> s & 1) && s == which ->
#else
  :: s < SHARDS && (bits >> s & 1) && CONCERNS(s, which) && which <= 2 ->
#endif
    atomic { IN(s); mark(s); s++ }
#ifdef OWN_SHARD
  :: s < SHARDS && !((bits >> s & 1) && s == which) -> s++
#else
  :: s < SHARDS && !((bits >> s & 1) && CONCERNS(s, which) && which <= 2) -> s++
#endif
  :: else -> s = 0; break
  od;
  do
  :: s < SHARDS && (bits >> s & 1) ->
    lock(s);
#ifdef BIT_CLEARED_FIRST
    pending_shards[s] = false;
#endif
    atomic {
      mark(s);
      PENDS(s, 0) = false;
      PENDS(s, 1) = false;
      PENDING_ERA(s, 0) = 0;
      PENDING_ERA(s, 1) = 0
    }
#ifndef BIT_CLEARED_FIRST
    pending_shards[s] = false;
#endif
    unlock(s);
    s++
  :: s < SHARDS && which != ALL -> s++ /* later */
  :: s < SHARDS && which == ALL && !(bits >> s & 1) -> s++
  :: s >= SHARDS -> s = 0; bits = 0; break
  od
}

inline say_seen() {
  atomic { !events_mutex -> events_mutex = true }
  if
#ifdef SEEN_BY_ONE
  :: target <= cursor && (what > 2 || !pending_shards[what]) ->
#else
  :: !PENDING && target <= cursor ->
#endif
#ifdef SEEN_GENERATION
    seen = generation
#else
    seen = cursor
#endif
  :: else
  fi;
  events_mutex = false
}

inline catch_up() {
  now = seen;
  if
  :: generation == now
  :: else ->
    target = generation;
#ifdef SEEN_FIRST
    atomic { seen = target }
#endif
    read_log();
    process_pending(what);
    say_seen();
    target = 0
  fi;
  now = 0
}

/* A thread that unmapped its page gets only what was registered later. */
inline check(e) {
  assert(me == 2 || HAS(e, me) == memory[me])
}

/* A hit without a mutex, on any entry that covers the request. */
inline hit(e) {
  now = seen;
  now = (generation == now);
  if
  :: now && COVERS(e, what) ->
    d_step {
      now = hittable[e];
      if
      :: now -> check(e); served = true
      :: else
      fi
    }
  :: else
  fi;
  now = 0
}

inline any_hit() {
  if
  :: hit(0)
  :: hit(1)
  :: hit(2)
  :: hit(3)
  :: hit(4)
  :: hit(5)
  fi
}

/* A hit under a shard's mutex. It waits for an entry that is being opened, and takes it even if it is marked then. */
inline look_in(which) {
  atomic {
    IN(which);
    if
    :: COVERS(which, what) && FINDABLE(which) -> e = which
    :: COVERS(which, what) && !FINDABLE(which) && COVERS(which + 3, what) && FINDABLE(which + 3) && which != me ->
      e = which + 3
    :: else -> e = ENTRIES
    fi;
    if
    :: e < ENTRIES -> state[e] != OPENING; IN(which); check(e); served = true
    :: else
    fi;
    e = 0
  }
}

inline use_level() {
  if
  :: what == 2 -> levels = true
  :: else
  fi
}

/* Opens an entry, and opens it once more if an event touched it meanwhile. */
inline open() {
  own = 3 + what;
  atomic { IN(what); fresh_entry(own, what) }
  do
  :: state[own] == OPENING ->
    if
    :: what != 1 -> HAS(own, 0) = memory[0] /* the driver */
    :: else
    fi;
    if
    :: what != 0 -> HAS(own, 1) = memory[1]
    :: else
    fi;
    d_step { was_there[0] = memory[0]; was_there[1] = memory[1] }
#ifndef UNREAD
    now = seen;
    if
    :: generation != now -> target = generation; read_log(); target = 0
    :: else
    fi;
    now = 0;
#endif
    atomic {
      IN(what);
      if
      :: AFFECTED(own) -> stale[own] = true
      :: else
      fi;
      if
      :: !stale[own] ->
        state[own] = LIVE;
        hittable[own] = true;
        /* It is not memory that was gone when the driver answered. */
        assert((what == 1 || HAS(own, 0) >= was_there[0]) && (what == 0 || HAS(own, 1) >= was_there[1]))
      :: stale[own] && !again -> again = true; fresh_entry(own, what)
      :: stale[own] && again -> state[own] = DRAINING
      fi
    }
  :: else -> break
  od;
#ifdef LEVEL_LATE
  use_level();
#endif
  atomic { again = false; own = 0; was_there[0] = 0; was_there[1] = 0 }
}

inline acquire() {
  any_hit();
  if
  :: !served ->
    catch_up();
    if
    :: what != 2 -> look_in(what)
    :: else
    fi;
    if
    :: !served ->
#ifndef LEVEL_LATE
      use_level();
#endif
      if
      :: levels -> look_in(2)
      :: else
      fi;
      if
      :: !served -> open()
      :: else
      fi
    :: else
    fi
  :: else
  fi;
  served = false
}

proctype unmapper(byte me) {
  byte what = me;
  byte now, target, gone, bits, s, e, own, late, number;
  bool served, again;
  byte was_there[PAGES];

  atomic { number = generation; generation++; memory[me]++ }
  published[number] = me + 1;
  number = 0;
#ifdef ONE_REQUEST /* only thread 0 requests its page */
  if
  :: me == 0 -> acquire()
  :: else
  fi;
#else
  acquire();
#endif
  done++
}

proctype other(byte me) {
  byte now, target, gone, bits, s, e, own, late;
  bool served, again;
  byte was_there[PAGES];
#ifdef REAPER
  byte what = ALL;
  do
  :: now = seen;
    if
    :: generation != now -> catch_up()
    :: else
    fi;
    now = 0
  :: break
  od;
#else
  byte what = 2;
  acquire();
#endif
  done++
}

#define IS_THERE(e) (!hittable[e] || ((!TOUCHES(e, 0) || HAS(e, 0) == memory[0]) && \
                                      (!TOUCHES(e, 1) || HAS(e, 1) == memory[1])))

init {
  d_step {
    state[0] = LIVE; hittable[0] = true; HAS(0, 0) = 1;
    state[1] = LIVE; hittable[1] = true; HAS(1, 1) = 1
#ifdef BOTH /* an entry on both pages is there from the beginning */
    ;
    state[2] = LIVE; hittable[2] = true; HAS(2, 0) = 1; HAS(2, 1) = 1; levels = true
#endif
  }
  atomic {
    run unmapper(0);
    run unmapper(1);
    run other(2);
    done == 3
  }
  /* No event is lost: hits that trust the generation find only the memory that is there. */
  assert(generation == NUMBERS);
  assert(seen != NUMBERS || (!PENDING && IS_THERE(0) && IS_THERE(1) && IS_THERE(2) && IS_THERE(3) && IS_THERE(4) &&
                             IS_THERE(5)))
}
