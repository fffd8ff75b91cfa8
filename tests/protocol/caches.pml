/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two caches that share the memory of records and the threads' hints, while one of them ends and is made again:
 * src/core/engine_shutdown.cpp, engine_release.cpp, src/index/record_page.cpp. A page has one record here. Thread 0 hits
 * in both caches; thread 1 uses cache 0, destroys it, and makes it again; thread 2 uses cache 1, or is the reaper of
 * cache 0. `scripts/model-check` runs every variant; docs/understand/protocol.md describes them and states the scope.
 *
 * All requests are for the same memory, so that only the number in a record's word tells the two caches apart, and a
 * hint may always lead to a record of the other cache. A cache that is made again gets the control block and the number
 * of the first one, as the lowest that are free.
 */

#define PAGES 2
#define CACHES 2

/* The addresses in memory, from 1 on. */
#define CELL(t) (1 + (t))  /* the pinned record + 1, or 0 */
#define WORD(r) (4 + (r))  /* 0; REVOKED; or the number of the cache + 1: hittable there */
#define OWNER(r) (6 + (r)) /* of the record's page: the control block + 1, or 0 */
byte memory[8];
#define REVOKED 9

#include "store_buffers.pml"

/* The control blocks, which are never freed. Both lock and unlock are locked instructions. */
bool mutex[CACHES];
byte home[CACHES] = 1; /* which engine of this control block is there, or 0 */
inline lock(c) { d_step { FENCED && !mutex[c] -> mutex[c] = true } }
inline unlock(c) { d_step { FENCED -> mutex[c] = false } }

/* Guarded by the mutex of the page's owner. The record belongs to an entry that is FREE, or in one of the others. */
mtype = { FREE, LIVE, EVICTING, DRAINING, QUEUED, CLOSING };
mtype state[PAGES] = FREE;

/* Guarded by the mutex of the cache. */
byte closes[CACHES];     /* in flight */
bool orphaned[CACHES];
bool reaping[CACHES];    /* the reaper needs the engine */
bool reaper_stop[CACHES];

/* The stores of unused pages and control blocks, each with a mutex of its own that is held for one step. */
bool unused_page[PAGES];
bool unused_block[CACHES];

/* Ghost state, which only the assertions read, and the program's order: a cache that ends is not used any more. */
byte open[PAGES];        /* the driver has it open for this cache, plus 1 */
byte leases[PAGES];
byte engine[CACHES] = 1; /* which engine of this control block was made last */
bool exists[CACHES] = true;  /* the memory of this engine */
bool backend[CACHES] = true; /* its driver may be called */
bool returned[CACHES];   /* its destructor has returned */
byte using[CACHES];      /* acquires under way */
bool ending[CACHES];
byte done;

inline count_pins(r) {
  i = 0;
  do
  :: i < THREADS -> d_step { total = total + (LOAD(CELL(i)) == r + 1 -> 1 : 0); i++ }
  :: else -> i = 0; break
  od
}

/* Under the mutex, which keeps the owner of the cache's pages: leases, and for moments failed hits. */
inline count_leases(c) {
  i = 0;
  do
  :: i < THREADS ->
    d_step {
      x = LOAD(CELL(i));
      if
      :: x != 0 && LOAD(OWNER(x - 1)) == c + 1 -> total++
      :: else
      fi;
      x = 0;
      i++
    }
  :: else -> i = 0; break
  od
}

/* The barrier of one cache: it has to interrupt all threads of the process, whatever cache they use. */
inline order_everywhere(c) {
#ifdef BARRIER_OF_USERS /* here thread 0 does not use cache 0 */
  if
  :: c == 0 -> flush(me)
  :: else -> barrier()
  fi
#else
  barrier()
#endif
}

/* Closes under the mutex, which it releases while the driver works. `called_for` is the cache that the thread uses.
   After the destructor has returned no thread decides to call the driver. A thread that has decided is a close in flight,
   which the destructor reports if its wait is over; the driver outlives that close. */
inline close(c, r, called_for) {
  d_step {
    assert(LOAD(OWNER(r)) == c + 1 && exists[c]);
    assert(!returned[c]);
    assert(called_for == c); /* the driver may accept no other thread */
    state[r] = CLOSING;
    closes[c]++
  }
  unlock(c);
  d_step { /* the driver is called */
    assert(backend[c]);
    assert(open[r] == c + 1); /* what this cache opened, once */
    assert(leases[r] == 0 || LOAD(WORD(r)) == REVOKED)
  }
  d_step { /* the driver returns */
    assert(backend[c]);
    open[r] = 0
  }
  lock(c);
  d_step { assert(exists[c]); closes[c]--; state[r] = FREE }
}

inline close_queued(c) {
  do
  :: state[0] == QUEUED && LOAD(OWNER(0)) == c + 1 -> close(0 + c, 0, c)
  :: state[1] == QUEUED && LOAD(OWNER(1)) == c + 1 -> close(0 + c, 1, c)
  :: else -> break
  od
}

/* Under the mutex: whether the calling thread is the last that needs an engine whose cache has ended. */
inline leave_if_last(c) {
  last = false;
  if
  :: orphaned[c] ->
    count_leases(c);
#ifdef CLOSES_UNCOUNTED
    last = (total == 0 && !reaping[c]);
#else
    last = (total == 0 && !reaping[c] && closes[c] == 0);
#endif
    total = 0;
    if
    :: last -> home[c] = 0
    :: else
    fi
  :: else
  fi
}

/* Without the mutex: frees the engine. The pages go first, so that no page belongs to the next user of the block. */
inline destroy_if(c) {
  if
  :: last ->
    d_step { assert(exists[c]); exists[c] = false; backend[c] = false }
    i = 0;
    do
    :: i < PAGES ->
      if
      :: LOAD(OWNER(i)) == c + 1 -> store(OWNER(i), 0); d_step { FENCED -> unused_page[i] = true }
      :: else
      fi;
      i++
    :: else -> i = 0; break
    od;
    last = false;
    d_step { FENCED -> unused_block[c] = true }
  :: else
  fi
}

/* Finishes the release of a pin: of a lease on the cache `from`, or of a failed hit there. The control block is reached from
   the record's page, without a lock. */
inline finish_release(r, from) {
  d_step { o = LOAD(OWNER(r)) }
  if
  :: o != 0 ->
    o--;
#ifdef HOME_BEFORE_MUTEX
    h = home[o];
    lock(o);
#else
    lock(o);
    h = home[o];
#endif
    if
#ifdef OWNER_UNCHECKED
    :: h != 0 ->
#else
    :: h != 0 && LOAD(OWNER(r)) == o + 1 ->
#endif
      d_step {
        assert(exists[o] && h == engine[o]);
        assert(LOAD(OWNER(r)) == o + 1) /* its mutex guards this entry */
      }
      if
#ifdef CALLED_LATE
      :: true ->
#else
      :: !orphaned[o] ->
#endif
        if
        :: LOAD(WORD(r)) == 0 || LOAD(WORD(r)) == REVOKED ->
          count_pins(r);
          if
          :: total == 0 && state[r] == DRAINING ->
            total = 0;
            if
#if defined(CALLED_LATE)
            :: true -> close(o, r, o)
#elif defined(CLOSED_ANYWHERE)
            :: true -> close(o, r, from)
#else
            :: from == o -> close(o, r, from)
            :: else -> state[r] = QUEUED
#endif
            fi
          :: else -> total = 0
          fi
        :: else
        fi
#ifndef CALLED_LATE
      :: else
#endif
      fi;
      leave_if_last(o);
      unlock(o);
      destroy_if(o)
    :: else -> unlock(o)
    fi
  :: else
  fi;
  d_step { o = 0; h = 0 }
}

/* Gives a pin back. A word that says hittable, in whatever cache, needs no more. */
inline unpin(r, is_lease, from) {
  d_step {
    stored[me] < ROOM ->
    if
    :: is_lease ->
      assert(open[r] != 0 || LOAD(WORD(r)) == REVOKED);
      leases[r]--
    :: else
    fi;
    STORE(CELL(me), 0)
  }
  if
  :: LOAD(WORD(r)) != 0 && LOAD(WORD(r)) != REVOKED
  :: else -> finish_release(r, from)
  fi
}

/* A hit in cache c. Its record is a guess, which may be years old. A lease may outlive the cache. */
inline hit(c, r) {
  d_step { ok = !ending[c]; using[c] = using[c] + ok }
  if
  :: ok ->
    store(CELL(me), r + 1);
    d_step { /* the load of the word: the lease begins */
#ifdef NUMBER_UNCHECKED
      ok = (LOAD(WORD(r)) != 0 && LOAD(WORD(r)) != REVOKED);
#else
      ok = (LOAD(WORD(r)) == c + 1);
#endif
      if
      :: ok -> assert(open[r] == c + 1); leases[r]++; using[c]--
      :: else
      fi
    }
    if
    :: ok -> unpin(r, true, c)
    :: else -> unpin(r, false, c); using[c]--
    fi
  :: else
  fi;
  ok = false
}

/* Under the mutex: whether the record is this cache's and free, or live. */
#define HAS(c, r, what) (LOAD(OWNER(r)) == (c) + 1 && state[r] == what)

/* A request of cache c under the mutex: opens, if it has no live record. It takes a page without the mutex. The page
   keeps the word that the former owner has left, until it is adopted. */
inline miss(c) {
  lock(c);
  close_queued(c);
  if
  :: HAS(c, 0, LIVE) || HAS(c, 1, LIVE)
  :: else ->
    if
    :: HAS(c, 0, FREE) -> r = 0; ok = true
    :: HAS(c, 1, FREE) -> r = 1; ok = true
    :: else ->
      unlock(c);
      d_step {
        FENCED ->
        if
        :: unused_page[0] -> unused_page[0] = false; r = 0; ok = true
        :: !unused_page[0] && unused_page[1] -> unused_page[1] = false; r = 1; ok = true
        :: else
        fi
      }
      lock(c);
      if
      :: ok -> /* adopts the page */
        assert(open[r] == 0);
        store(WORD(r), 0);
        state[r] = FREE;
        store(OWNER(r), c + 1)
      :: else
      fi
    fi;
    if
    :: ok -> d_step { open[r] = c + 1; state[r] = LIVE } store(WORD(r), c + 1)
    :: else
    fi
  fi;
  unlock(c);
  d_step { ok = false; r = 0 }
}

/* Hides a live record of cache c, and closes what is due. */
inline retire(c) {
  lock(c);
  r = 0;
  do
  :: r < PAGES ->
    if
    :: HAS(c, r, LIVE) ->
      store(WORD(r), 0);
      order_everywhere(c);
      count_pins(r);
      state[r] = (total == 0 -> QUEUED : DRAINING);
      total = 0
    :: else
    fi;
    r++
  :: else -> r = 0; break
  od;
#ifdef REAPER /* leaves that to the reaper */
  if
  :: c == 0
  :: else -> close_queued(c)
  fi;
#else
  close_queued(c);
#endif
  unlock(c)
}

/* The end of cache c. Each wait has a time-out, which may pass at any moment. */
inline shut_down(c) {
  d_step { using[c] == 0 -> ending[c] = true }
  lock(c);
  reaper_stop[c] = true;
  do
  :: reaping[c] -> unlock(c); lock(c)
  :: break
  od;
  r = 0;
  do /* refuses hits */
  :: r < PAGES && LOAD(OWNER(r)) == c + 1 -> store(WORD(r), 0); r++
  :: r < PAGES && LOAD(OWNER(r)) != c + 1 -> r++
  :: else -> r = 0; break
  od;
  order_everywhere(c);
  do /* waits for leases */
  :: count_leases(c);
    if
    :: total != 0 -> total = 0; unlock(c); lock(c)
    :: total = 0; break
    fi
  od;
  do /* waits for closes of other threads */
  :: closes[c] != 0 -> unlock(c); lock(c)
  :: break
  od;
  do /* hides everything */
  :: r < PAGES && LOAD(OWNER(r)) == c + 1 ->
    count_pins(r);
    if
    :: total != 0 && (state[r] == LIVE || state[r] == DRAINING) ->
#if defined(PINNED_SKIPPED) || defined(CALLED_LATE)
      state[r] = DRAINING /* left to its last release */
#else
      store(WORD(r), REVOKED);
      state[r] = QUEUED
#endif
    :: total == 0 && (state[r] == LIVE || state[r] == DRAINING) -> state[r] = QUEUED
    :: else
    fi;
    total = 0;
    r++
  :: r < PAGES && LOAD(OWNER(r)) != c + 1 -> r++
  :: else -> r = 0; break
  od;
#ifdef QUEUE_LEFT
  if
  :: reaping[c]
  :: else -> close_queued(c)
  fi;
#else
  close_queued(c);
#endif
  unlock(c);
  lock(c); /* the sink was told without the mutex */
  orphaned[c] = true;
  ok = (closes[c] == 0 && !reaping[c]);
  leave_if_last(c);
  unlock(c);
  if
  :: ok -> backend[c] = false
  :: else
  fi;
  ok = false;
  destroy_if(c);
  d_step {
    returned[c] = true;
#if !defined(CALLED_LATE) && !defined(QUEUE_LEFT)
    /* Nothing is left open, but what another thread is closing. */
    assert(open[0] != c + 1 || state[0] == CLOSING);
    assert(open[1] != c + 1 || state[1] == CLOSING)
#endif
  }
}

/* A new engine, on the unused control block. */
inline make(c) {
  d_step {
    FENCED && unused_block[c] ->
    unused_block[c] = false; orphaned[c] = false; reaper_stop[c] = false;
    engine[c]++; exists[c] = true; backend[c] = true; returned[c] = false; ending[c] = false
  }
  lock(c);
  home[c] = engine[c];
  unlock(c)
}

#define DUE(c) (HAS(c, 0, QUEUED) || HAS(c, 1, QUEUED))

/* The reaper's thread, which may be in the driver when the cache ends. */
inline reap(c) {
  lock(c);
  do
#ifdef QUEUE_LEFT
  :: DUE(c) -> close_queued(c)
  :: !DUE(c) && reaper_stop[c] -> break
#else
  :: !reaper_stop[c] && DUE(c) -> close_queued(c)
  :: reaper_stop[c] -> break
#endif
  :: !reaper_stop[c] && !DUE(c) -> unlock(c); lock(c)
  od;
  reaping[c] = false;
  leave_if_last(c);
  unlock(c);
  destroy_if(c)
}

#ifndef HITS
#define HITS 1
#endif
#ifndef OTHERS
#define OTHERS 1
#endif
#ifndef AGAIN
#define AGAIN 1
#endif

inline any_record() {
  if
  :: r = 0
  :: r = 1
  fi
}

proctype thread(byte me; byte left) {
  byte r, i, x, o, h, todo, total;
  bool ok, last;

  do
  :: left > 0 && me == 0 -> left--;
    any_record();
    if
#ifndef BARRIER_OF_USERS
    :: hit(0, r)
#endif
    :: hit(1, r)
    fi;
    r = 0
  :: left > 0 && me == 1 -> left--;
    if
    :: retire(0)
    :: true
    fi;
    shut_down(0);
    if
    :: unused_block[0] -> make(0); miss(0)
    :: left = 0
    fi
#ifdef REAPER
  :: left > 0 && me == 2 -> left = 0; reap(0)
#else
  :: left > 0 && me == 2 -> left--;
    if
    :: miss(1)
    :: retire(1)
    :: any_record(); hit(1, r); r = 0
    fi
#endif
  :: left == 0 -> break
  od;
  done++
}

init {
  d_step {
    state[0] = LIVE; open[0] = 1; memory[WORD(0)] = 1; memory[OWNER(0)] = 1;
    unused_page[1] = true;
#ifdef REAPER
    reaping[0] = true
#endif
  }
  atomic { run thread(0, HITS); run thread(1, AGAIN); run thread(2, OTHERS) }
  done == THREADS && stored[0] + stored[1] + stored[2] == 0;
  /* No lease is out, so no close is left undone, and the engine of an ended cache is freed. */
  assert(state[0] != DRAINING && state[1] != DRAINING);
  assert(!returned[0] || !exists[0])
}
