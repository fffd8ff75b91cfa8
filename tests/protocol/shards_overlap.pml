/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Openers of ranges that contain each other, in the same shard and in different shards: src/core/engine_miss.cpp,
 * engine_elsewhere.cpp, engine_acquire.cpp, entry_table_open.hpp, entry_table_retire.cpp. Each thread requests one range. Range 0 lies within range 1, and that
 * within range 2. Each has a level of its own; the larger two are wide. SHARDS says which shard each of them is in.
 * Meanwhile another thread invalidates. `scripts/model-check` runs every variant; docs/understand/protocol.md describes them.
 *
 * Mutexes are not explicit: what a thread does while it holds a shard's mutex is one step. The counter and the levels
 * are changed and read by sequentially consistent instructions, so there are no store buffers.
 */

#define THREADS 3
#define ALL 3 /* shards */

/* Which range thread 0, 1, 2 requests, and which shard has the entries of range 0, 1, 2: digits, the last first. */
#ifndef REQUESTS
#define REQUESTS 210
#endif
#ifndef SHARDS
#define SHARDS 210
#endif
#define DIGIT(number, which) ((number / (1 + 9 * ((which) > 0) + 90 * ((which) > 1))) % 10)
#define RANGE(e) DIGIT(REQUESTS, e)
#define HOME(range) DIGIT(SHARDS, range)
#define WIDE(range) ((range) > 0)

mtype = { NONE, OPENING, LIVE, DRAINING };

/* Entry t is the one that thread t opens. */
mtype state[THREADS] = NONE;
bool doomed[THREADS];
bool near[THREADS];

byte levels;             /* in use, a bit for each */
byte published;          /* wide_published_ */
byte done;
bool invalidated;

#define SHARD(e) HOME(RANGE(e))
#define COVERS(e, other) (RANGE(e) >= RANGE(other))
#define FINDABLE(e) (state[e] == LIVE || (state[e] == OPENING && !doomed[e]))
#define USED(from, e) (((from) >> RANGE(e)) & 1)

/* An entry of that shard which serves the request: one that is live, else one that is being opened. */
#define SERVES(e, which) (SHARD(e) == which && FINDABLE(e) && COVERS(e, me))
inline scan(which) {
  d_step {
    match = THREADS;
    i = 0;
    do
    :: i < THREADS ->
      if
      :: i != me && SERVES(i, which) && (match == THREADS || state[match] != LIVE) -> match = i
      :: else
      fi;
      i++
    :: else -> break
    od;
    i = 0
  }
}

/* Looks in a shard. Waits for another thread's open, and is served by it even if it was doomed meanwhile. */
inline look_in(which) {
  atomic {
    scan(which);
    if
    :: match != THREADS -> state[match] != OPENING; served = true
    :: else
    fi;
    match = 0
  }
}

/* Whether a shard may have entries of the levels that were loaded, from `lowest` on. */
#define HAS(loaded, which, lowest) \
  ((lowest <= 0 && HOME(0) == which && (loaded & 1)) || (lowest <= 1 && HOME(1) == which && (loaded & 2)) || \
   (HOME(2) == which && (loaded & 4)))

inline look_elsewhere() {
  loaded = levels;
  s = 0;
  do
  :: s < ALL && !served && s != SHARD(me) && HAS(loaded, s, 0) -> look_in(s); s++
  :: s < ALL && !(!served && s != SHARD(me) && HAS(loaded, s, 0)) -> s++
  :: else -> s = 0; loaded = 0; break
  od
}

inline note_overlap() {
  i = 0;
  do
  :: i < THREADS ->
    if
#ifdef NOTED_ALONE
    :: i == me -> near[i] = true
#else
    :: state[i] != NONE && SHARD(i) == SHARD(me) -> near[i] = true
#endif
    :: else
    fi;
    i++
  :: else -> i = 0; break
  od
}

#define NEAR(e) (e != me && SHARD(e) == SHARD(me) && FINDABLE(e))
#define COVERED_BY(e) (e != me && SHARD(e) == SHARD(me) && state[e] == LIVE && COVERS(e, me))

inline claim() {
  d_step {
    state[me] = OPENING;
    if
    :: NEAR(0) || NEAR(1) || NEAR(2) -> note_overlap()
    :: else
    fi
  }
}

/* Retires what the new entry covers in one shard. */
inline supersede(which) {
  d_step {
    i = 0;
    do
    :: i < THREADS ->
      if
      :: i != me && SHARD(i) == which && state[i] == LIVE && COVERS(me, i) -> state[i] = DRAINING
      :: else
      fi;
      i++
    :: else -> i = 0; break
    od
  }
}

/* The end of an open. An entry that was marked meanwhile is opened again, and in the end handed out hidden. */
inline publish() {
  atomic {
    if
    :: !doomed[me] ->
      state[me] = LIVE;
      if
      :: near[me] ->
        supersede(SHARD(me));
#ifndef COVERING_IGNORED
        if
        :: COVERED_BY(0) || COVERED_BY(1) || COVERED_BY(2) -> state[me] = DRAINING
        :: else
        fi
#endif
      :: else
      fi;
      opened = (state[me] == LIVE)
    :: doomed[me] && late < 1 -> late++; doomed[me] = false; note_overlap()
    :: doomed[me] && late >= 1 -> state[me] = DRAINING
    fi
  }
}

inline supersede_all() {
  loaded = levels;
  s = 0;
  do
  :: s < ALL && s != SHARD(me) && HAS(loaded, s, 0) -> atomic { supersede(s); s++ }
  :: s < ALL && !(s != SHARD(me) && HAS(loaded, s, 0)) -> s++
  :: else -> s = 0; loaded = 0; break
  od
}

inline look_for_covering() {
  loaded = levels;
  s = 0;
  do
  :: s < ALL && s != SHARD(me) && HAS(loaded, s, RANGE(me)) ->
    d_step {
      found = found || (SHARD(0) == s && state[0] == LIVE && COVERS(0, me)) ||
              (SHARD(1) == s && state[1] == LIVE && COVERS(1, me)) ||
              (SHARD(2) == s && state[2] == LIVE && COVERS(2, me));
      s++
    }
  :: s < ALL && !(s != SHARD(me) && HAS(loaded, s, RANGE(me))) -> s++
  :: else -> s = 0; loaded = 0; break
  od
}

inline use_level() { levels = levels | (1 << RANGE(me)) }

proctype opener(byte me) {
  byte i, s, match, loaded, before, late;
  bool served, found, changed, opened;

#ifndef LEVEL_LATE
  use_level();
#endif
#ifndef COUNTER_READ_LATE
  before = published;
#endif
  look_elsewhere();
#ifdef COUNTER_READ_LATE
  before = published;
#endif
  if
  :: served
  :: else ->
#ifdef COUNTED_FIRST
    if
    :: WIDE(RANGE(me)) -> published++
    :: else
    fi;
#endif
    atomic { /* the shard's mutex, from the look to the claim */
      scan(SHARD(me));
      if
      :: match != THREADS -> state[match] != OPENING; served = true
      :: else -> claim()
      fi;
      match = 0
    }
    if
    :: served
    :: else ->
#ifdef LOOKED_FIRST
      changed = (published != before);
#endif
      do
      :: state[me] == OPENING -> publish()
      :: else -> break
      od;
      if
      :: opened -> /* the caller's lease keeps it open if it is retired from now on */
        if
        :: WIDE(RANGE(me)) ->
#ifdef RETIRED_FIRST
          supersede_all();
          published++
#else
#ifndef COUNTED_FIRST
          published++;
#endif
#ifdef LEVEL_LATE
          use_level();
#endif
          if
          :: state[me] == LIVE -> supersede_all()
          :: else
          fi
#endif
        :: else
        fi;
#ifndef LOOKED_FIRST
        changed = (published != before + (WIDE(RANGE(me)) -> 1 : 0));
#endif
#ifdef LEVEL_LATE
        use_level();
#endif
        if
        :: changed ->
          look_for_covering();
          atomic {
            if
            :: found && state[me] == LIVE -> state[me] = DRAINING
            :: else
            fi
          }
        :: else
        fi
      :: else
      fi
    fi
  fi;
  d_step { changed = false; opened = false; found = false; before = 0; late = 0; served = false; done++ }
}

/* Memory goes away, at any time: of all ranges, or of the largest only. Visits one shard after the other. */
inline mark(e) {
  if
  :: SHARD(e) == s && RANGE(e) >= smallest && USED(loaded, e) ->
    if
    :: state[e] == LIVE -> state[e] = DRAINING
    :: state[e] == OPENING -> doomed[e] = true
    :: else
    fi
  :: else
  fi
}

proctype invalidation() {
  byte s, smallest, loaded;
  if
  :: smallest = 0
  :: smallest = 2
  fi;
  d_step { loaded = levels; invalidated = true }
  do
  :: s < ALL -> d_step { mark(0); mark(1); mark(2); s++ }
  :: else -> break
  od;
  done++
}

#define BOTH(e, other) (state[e] == LIVE && state[other] == LIVE)
#define SERVED(t) ((state[0] == LIVE && COVERS(0, t)) || (state[1] == LIVE && COVERS(1, t)) || \
                   (state[2] == LIVE && COVERS(2, t)))

init {
  atomic {
    run opener(0);
    run opener(1);
    run opener(2)
#ifdef INVALIDATION
    ;
    run invalidation();
    done == THREADS + 1
#else
    ;
    done == THREADS
#endif
  }
  /* Of two that are findable, none covers the other; and every request finds one. */
  assert(!BOTH(0, 1) && !BOTH(0, 2) && !BOTH(1, 2));
  assert(invalidated || (SERVED(0) && SERVED(1) && SERVED(2)))
}
