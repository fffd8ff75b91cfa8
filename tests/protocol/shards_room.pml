/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A budget that shards share, and threads that need room in it: src/core/budget.cpp, engine_room.cpp, engine_wait.cpp,
 * change_signal.hpp. Threads 0 and 1 each open an entry in their own shard, and release their lease; thread 2 takes and
 * releases leases on the entries that were there before, in shards 1 and 2. Every entry needs one unit of room.
 * `scripts/model-check` runs every variant; docs/understand/protocol.md describes them.
 *
 * A thread that finds no room gathers what shards have drawn in advance, evicts, and waits for closes in flight. Then
 * it is refused, or waits (WAIT). In WAIT there are no time-outs; else they may pass at any moment.
 */

#define SHARDS 3
#define ENTRIES 4 /* of which number 2 and 3 belong to threads 0 and 1 */

/* The addresses in memory, from 1 on. */
#define CELL(t) (1 + (t)) /* the pinned entry + 1, or 0 */
#define WORD(e) (4 + (e)) /* 0: not hittable, 1: hittable, 2: hittable, and its releases are finished */
#define AWAITED 8         /* releases_awaited */
#define WAITERS 9
byte memory[10];

#include "store_buffers.pml"

#define SHARD(e) ((e) == 0 -> 2 : ((e) == 2 -> 0 : 1))

bool mutex[SHARDS];
bool gathering;
inline lock(s) { d_step { FENCED && !mutex[s] -> mutex[s] = true } }
inline unlock(s) { d_step { FENCED -> mutex[s] = false } }

/* Guarded by the mutex of the entry's shard. */
mtype = { NONE, OPENING, LIVE, LEASED, EVICTING, DRAINING, CLOSING, NOTHING, CLOSED }; /* LEASED: live, set aside */
mtype state[ENTRIES] = NONE;
byte closes[SHARDS]; /* in flight: read without the mutex */

/* The budget. Each function that takes its mutex is one step. */
#ifndef LIMIT
#define LIMIT 2
#endif
byte free;
byte owed;
bool tight;
bool gathered;
byte spare[SHARDS]; /* guarded by the shard's mutex */
byte used[SHARDS];

/* change_signal: a change sets the mark of every thread that has announced itself. */
bool changed[2];
bool listens[2];

/* Ghost state. */
bool asks[2];      /* a request for room is under way */
bool calm[2];      /* at an instant of the request no entry could be closed, and none was being closed */
bool justified[2]; /* and then there was no room */
byte leaving[THREADS]; /* the entry + 1 whose release has begun: its lease ends when the release returns */
byte done;

/* The cell of thread t, its store buffer included. */
#define NEWEST(t) (where[2 + ROOM * t] == CELL(t) -> value[2 + ROOM * t] : \
                  (where[1 + ROOM * t] == CELL(t) -> value[1 + ROOM * t] : \
                  (where[0 + ROOM * t] == CELL(t) -> value[0 + ROOM * t] : memory[CELL(t)])))
#define LEAVING(e) (leaving[0] == e + 1 || leaving[1] == e + 1 || leaving[2] == e + 1)
#define IN_USE(e) (state[e] == NONE || state[e] == OPENING || NEWEST(0) == e + 1 || NEWEST(1) == e + 1 || \
                   NEWEST(2) == e + 1 || LEAVING(e))
#define TOTAL_FREE (free + spare[0] + spare[1] + spare[2])
#define CLOSES (closes[0] + closes[1] + closes[2])

/* Within each d_step after which there may be less to close. */
inline observe() {
  if
  :: CLOSES == 0 && IN_USE(0) && IN_USE(1) && IN_USE(2) && IN_USE(3) ->
    calm[0] = calm[0] || asks[0];
    calm[1] = calm[1] || asks[1]
  :: else
  fi
}

inline put(n) {
  if
#ifdef DEBT_UNPAID
  :: owed != 0 -> free = free + n
#endif
  :: owed >= n -> owed = owed - n
  :: else -> free = free + n - owed; owed = 0
  fi;
  if
  :: gathered && 2 * free >= LIMIT -> gathered = false; tight = false
  :: else
  fi
}

/* Takes a unit from the shard's portion, or draws it. While the budget is not tight it draws all that is left as its
   portion. */
inline take(s) {
  d_step {
    if
#ifndef DEBT_IGNORED
    :: spare[s] > 0 && owed == 0 -> spare[s]--; used[s]++; ok = true
    :: !(spare[s] > 0 && owed == 0) && owed == 0 && free > 0 ->
#else
    :: spare[s] > 0 -> spare[s]--; used[s]++; ok = true
    :: spare[s] == 0 && owed == 0 && free > 0 ->
#endif
      free--;
      if
      :: !tight -> spare[s] = spare[s] + free; free = 0
      :: else
      fi;
      used[s]++;
      ok = true
    :: else -> ok = false
    fi;
    justified[me] = !ok && calm[me] && TOTAL_FREE <= owed;
    assert(used[0] + used[1] + used[2] <= LIMIT)
  }
}

inline give(s) {
  x = (tight || owed != 0);
#ifdef PORTION_KEPT
  x = (owed != 0);
#endif
  d_step {
    used[s]--;
    if
    :: x -> put(1)
    :: else -> spare[s]++
    fi;
    x = 0
  }
}

inline notify() {
  if
  :: memory[WAITERS] != 0 ->
    d_step { changed[0] = changed[0] || listens[0]; changed[1] = changed[1] || listens[1] }
  :: else
  fi
}

/* Under the mutex of the entry's shard, which it releases while the driver works. */
inline close(e, s) {
  d_step { state[e] = CLOSING; closes[s]++ }
  unlock(s);
  lock(s);
#ifdef CLOSE_COUNTED_FIRST
  closes[s]--;
  give(s);
  d_step { state[e] = NONE; observe() }
#else
  give(s);
  d_step { closes[s]--; state[e] = NONE; observe() }
#endif
  notify()
}

#define PINNED(e) (LOAD(CELL(0)) == e + 1 || LOAD(CELL(1)) == e + 1 || LOAD(CELL(2)) == e + 1)

/* Finishes a release under the mutex. */
inline finish_release(e, s) {
  lock(s);
  notify();
  if
  :: state[e] == LEASED -> state[e] = LIVE; store(WORD(e), 1)
  :: else
  fi;
  d_step { pinned = PINNED(e) }
  if
  :: state[e] == DRAINING && !pinned -> close(e, s)
  :: else
  fi;
  unlock(s);
  pinned = false
}

#ifdef ASIDE_SILENT /* a release of an entry that was set aside is not finished */
#define PLAIN(w) ((w) != 0)
#else
#define PLAIN(w) ((w) == 1)
#endif
inline release(e, s) {
  d_step { stored[me] < ROOM -> STORE(CELL(me), 0); leaving[me] = e + 1 }
  if
  :: PLAIN(LOAD(WORD(e))) ->
    if
    :: memory[AWAITED] == 0
    :: else -> finish_release(e, s)
    fi
  :: else -> finish_release(e, s)
  fi;
  leaving[me] = 0
}

/* A hit, whose lease is released. A hit that fails gives its pin back in the same way. */
inline hit(e, s) {
  d_step { stored[me] < ROOM -> STORE(CELL(me), e + 1); observe() }
  x = LOAD(WORD(e));
  x = 0;
  release(e, s)
}

/* Closes an entry of a shard that is marked. */
#define CLOSABLE(e) (state[e] == EVICTING)
inline close_marked(s) {
  d_step {
    e = 0;
    do
    :: e < ENTRIES && !(SHARD(e) == s && CLOSABLE(e)) -> e++
    :: else -> break
    od
  }
  if
  :: e < ENTRIES -> close(e, s); result = CLOSED
  :: else
  fi;
  e = 0
}

/* Makes an entry unhittable. */
inline begin_evict(e) {
  d_step {
    state[e] == LIVE && stored[me] < ROOM ->
    where[ROOM * me + stored[me]] = WORD(e); value[ROOM * me + stored[me]] = 0; stored[me]++;
    state[e] = EVICTING;
    chosen = chosen | (1 << e)
  }
}

/* Takes a leased entry out of the ring: its next release puts it back. */
inline set_aside(e) {
  d_step {
    state[e] == LIVE && stored[me] < ROOM ->
    where[ROOM * me + stored[me]] = WORD(e); value[ROOM * me + stored[me]] = 2; stored[me]++;
    state[e] = LEASED;
    aside = aside | (1 << e)
  }
}

/* After a barrier, in one shard: an entry that was to be evicted and is pinned is live again, and set aside; an entry
   that was set aside and is not pinned returns to the ring. */
inline settle(in_shard) {
  e = 0;
  do
  :: e < ENTRIES ->
    d_step {
      pinned = ((chosen >> e) & 1) && (in_shard) && PINNED(e);
      idle = ((aside >> e) & 1) && (in_shard) && !PINNED(e)
    }
    if
    :: pinned -> state[e] = LEASED; store(WORD(e), 2)
    :: idle -> state[e] = LIVE; store(WORD(e), 1)
    :: else
    fi;
    pinned = false;
    idle = false;
    e++
  :: else -> e = 0; break
  od
}

/* The hand: it passes over an entry that was visited. */
inline mark_victims(s) {
  e = 0;
  do
  :: e < ENTRIES && SHARD(e) == s && state[e] == LIVE && !PINNED(e) -> begin_evict(e); e++
  :: e < ENTRIES && SHARD(e) == s && state[e] == LIVE && PINNED(e) -> set_aside(e); e++
  :: e < ENTRIES -> e++
  :: e == ENTRIES -> e = 0; break
  od;
#ifdef ASIDE_UNORDERED /* without a barrier between the word and the sum of pins */
  settle(true);
  chosen = 0;
  aside = 0
#else
  if
  :: (chosen | aside) != 0 -> barrier(); settle(true); chosen = 0; aside = 0
  :: else
  fi
#endif
}

/* Stops the hits of all entries in rings at the same time, and closes one that no thread has pinned. Keeps the mutex of
   its shard until then. While the thread holds all mutexes, it also notes whether it has to look again. */
#define CLOSABLE_IN(s) ((SHARD(0) == s && CLOSABLE(0)) || (SHARD(1) == s && CLOSABLE(1)) || \
                        (SHARD(2) == s && CLOSABLE(2)) || (SHARD(3) == s && CLOSABLE(3)))
inline close_one_of_all_at_once() {
  lock(0);
  lock(1);
  lock(2);
  do
  :: e < ENTRIES && state[e] == LIVE -> begin_evict(e); e++
  :: e < ENTRIES && state[e] != LIVE -> e++
  :: else -> e = 0; break
  od;
  if
  :: chosen != 0 -> barrier()
  :: else
  fi;
  with_victim = SHARDS;
#ifndef CLOSES_LATE
  busy = (CLOSES != 0);
#endif
  do
  :: s < SHARDS ->
    settle(SHARD(e) == s);
    if
    :: with_victim == SHARDS && CLOSABLE_IN(s) -> with_victim = s
    :: else
    fi;
    s++
  :: else -> s = 0; chosen = 0; break
  od;
  do
  :: s < SHARDS && s != with_victim -> unlock(s); s++
  :: s < SHARDS && s == with_victim -> s++
  :: else -> s = 0; break
  od;
  if
  :: with_victim < SHARDS -> close_marked(with_victim); unlock(with_victim)
  :: else
  fi;
  with_victim = 0
}

inline close_one_anywhere() {
  s = 0;
  do
  :: s < SHARDS && result == NOTHING ->
    lock(s);
    mark_victims(s);
    close_marked(s);
    unlock(s);
    s++
  :: else -> s = 0; break
  od;
#ifdef SHARD_BY_SHARD
  skip
#else
  if
  :: result == NOTHING -> close_one_of_all_at_once()
  :: else
  fi
#endif
}

inline close_one_for_room() {
  result = NOTHING;
  close_marked(me);
  if
  :: result == NOTHING -> unlock(me); close_one_anywhere(); lock(me)
  :: else
  fi
}

inline gather_room() {
  unlock(me);
  d_step { FENCED && !gathering -> gathering = true }
  if
  :: !gathered ->
    tight = true;
    s = 0;
    do
    :: s < SHARDS ->
      lock(s);
#ifdef PORTION_LOST
      spare[s] = 0;
#else
      d_step { put(spare[s]); spare[s] = 0 }
#endif
      unlock(s);
      s++
    :: else -> s = 0; break
    od;
    gathered = true
  :: else
  fi;
  d_step { FENCED -> gathering = false }
  lock(me)
}

/* Announces the thread to all changes. */
inline begin() {
  d_step { FENCED -> memory[WAITERS]++; listens[me] = true; changed[me] = false; listening = true }
}

inline wait(may_end) {
  unlock(me);
  if
  :: changed[me] -> changed[me] = false
#ifndef WAIT
  :: !changed[me] && may_end -> over = true
#endif
  fi;
  lock(me)
}

/* The first call only announces the thread, so that the caller looks again. */
inline wait_for_change() {
  if
  :: !listening ->
    begin();
    barrier()
  :: else -> wait(false)
  fi
}

/* The same, and every release in the process is finished from the announcement on. */
inline wait_for_release() {
  if
  :: !watching ->
#ifdef ANNOUNCED_LATE
    d_step { FENCED -> memory[AWAITED]++; watching = true }
    begin();
    barrier();
    wait(true)
#else
    d_step { FENCED -> memory[AWAITED]++; watching = true }
    if
    :: !listening -> begin()
    :: else
    fi;
    barrier()
#endif
  :: else -> wait(true)
  fi
}

/* Whether another thread was closing an entry while this thread held all mutexes. */
#if defined(CLOSES_LATE) || defined(SHARD_BY_SHARD)
#define BUSY (CLOSES != 0)
#else
#define BUSY busy
#endif

/* Under the mutex of the thread's shard. Sets `ok` when the entry has room. */
inline reserve() {
  do
  :: take(me);
    if
    :: ok -> break
    :: !ok && !gathered -> gather_room()
    :: !ok && gathered ->
      close_one_for_room();
      if
      :: result == CLOSED
      :: result == NOTHING && BUSY -> wait_for_change()
      :: result == NOTHING && !BUSY ->
#ifndef TAKEN_ONCE
        take(me);
        if
        :: ok -> break
        :: else
        fi;
#endif
#ifdef WAIT
        wait_for_release()
#else
        if
        :: wait_for_release() /* a pin may be transient: how long, is a matter of time */
        :: over = true
        fi;
        if
        :: over -> ok = false; break
        :: else
        fi
#endif
      fi
    fi
  od;
  result = NOTHING;
  busy = false
}

proctype opener(byte me) {
  byte todo, x, e, s, chosen, aside, with_victim;
  byte own = 2 + me;
  mtype result = NOTHING;
  bool ok, pinned, idle, listening, watching, over, busy;

  lock(me);
  d_step { state[own] = OPENING; asks[me] = true; observe() }
  reserve();
  d_step {
    assert(ok || justified[me]);
    asks[me] = false;
    calm[me] = false;
    justified[me] = false
  }
  if
  :: watching -> d_step { FENCED -> memory[AWAITED]--; watching = false }
  :: else
  fi;
  if
  :: listening -> d_step { FENCED -> memory[WAITERS]--; listens[me] = false; changed[me] = false; listening = false }
  :: else
  fi;
  over = false;
  if
  :: ok -> /* opened, and pinned before it is published */
    store(CELL(me), own + 1);
    state[own] = LIVE;
    store(WORD(own), 1);
    unlock(me);
    release(own, me)
  :: else ->
    state[own] = NONE;
    notify();
    unlock(me)
  fi;
  ok = false;
  done++
}

/* Ends the lease that it has at first, and takes others. */
proctype holder(byte me; byte left) {
  byte todo, x;
  bool pinned;

  if
  :: NEWEST(2) == 1 -> release(0, 2)
  :: NEWEST(2) == 2 -> release(1, 1)
  :: else
  fi;
  do
  :: left > 0 -> left--;
    if
    :: hit(0, 2)
    :: hit(1, 1)
    fi
  :: left == 0 -> break
  od;
  done++
}

#ifndef OPENERS
#define OPENERS 2
#endif
#ifndef HITS
#define HITS 1
#endif

init {
  d_step {
#if defined(PORTIONS) /* all room is in the portion of a shard */
    spare[2] = LIMIT;
#elif defined(LAST_RELEASE) /* one entry, which its last release closes */
    state[0] = DRAINING; memory[CELL(2)] = 1; used[2] = 1;
#elif defined(DEBT) /* one entry turned out to be larger than the room that was left; another shard has a portion */
    state[0] = LIVE; memory[WORD(0)] = 1; used[2] = 2; spare[1] = 1; owed = 1;
#else
    state[0] = LIVE; memory[WORD(0)] = 1; used[2] = 1;
    state[1] = LIVE; memory[WORD(1)] = 1; used[1] = 1;
    memory[CELL(2)] = 2;
#endif
    free = LIMIT - used[1] - used[2] - spare[1] - spare[2] + owed
  }
  atomic {
    run opener(0);
    if
    :: OPENERS == 2 -> run opener(1)
    :: else -> done++
    fi;
    run holder(2, HITS);
    done == THREADS && stored[0] + stored[1] + stored[2] == 0
  }
  assert(used[0] + used[1] + used[2] + TOTAL_FREE == LIMIT + owed); /* no room is lost */
  assert(state[0] != DRAINING)
}
