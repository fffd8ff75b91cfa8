/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A merged registration and an unmap at the same time: src/core/engine_extent.cpp and engine_open.cpp. The opener
 * requests page 0 only. An entry on pages 0 and 1 lacks rights, so the opener registers both. Meanwhile another thread
 * unmaps page 1, and gets it again; a third thread may get the address as soon as the kernel has freed it. The event
 * comes before the call, as with hooks and bpf. Every thread that has the page requests it, and must not get a
 * registration of an older one. `scripts/model-check` runs every variant. Each of these breaks one rule, and has to
 * fail:
 *
 *   RETRY     an opener whose entry an event has marked asks the driver again for all of it
 *   IGNORED   the opener publishes an entry that an event has marked
 *   GAP       the opener also registers memory between two entries, which lies in neither
 *
 * Not in the model: the event log (userfaultfd.pml), hits without the mutex (hit.pml).
 */

#define ROUNDS 2
#define NONE 0
#define OPENING 1
#define LIVE 2

byte page = 1;      /* which page is behind page 1's address */
byte posted;        /* events in the log */
byte seen;          /* events that the cache has processed */
bool is_free;       /* the third thread may get the address */
bool third_has_it;

/* The entries on page 1: the first, the merged one, and one for each thread that requests page 1. */
#define ENTRIES 4
byte state[ENTRIES];
bool marked[ENTRIES];
byte registered[ENTRIES];
#define COUNTED (state[0] != NONE || state[1] != NONE || state[2] != NONE || state[3] != NONE) /* registered_filter */

/* Under the mutex: marks what the new events touch, and takes marked entries out of the index. */
inline catch_up() {
  atomic {
    if
    :: seen != posted ->
       seen = posted;
       i = 0;
       do
       :: i < ENTRIES ->
          if
          :: state[i] == LIVE -> state[i] = NONE
          :: state[i] == OPENING -> marked[i] = true
          :: else
          fi;
          i++
       :: else -> break
       od
    :: else
    fi;
    i = 0
  }
}

/* Requests page 1: a hit on any entry, or an open of the page alone. */
inline use(own) {
  atomic {
    catch_up();
    if
    :: state[0] == LIVE -> assert(registered[0] == page)
    :: state[1] == LIVE -> assert(registered[1] == page)
    :: state[2] == LIVE -> assert(registered[2] == page)
    :: state[3] == LIVE -> assert(registered[3] == page)
    :: state[0] != LIVE && state[1] != LIVE && state[2] != LIVE && state[3] != LIVE ->
       state[own] = LIVE;
       registered[own] = page
    fi
  }
}

proctype opener() {
  byte i, round;
  bool may;
  do
  :: round < ROUNDS ->
     round++;
     catch_up(); /* events may come before the mutex is taken */
     atomic {
       if
#ifdef GAP
       :: state[1] == NONE ->
#else
       :: state[1] == NONE && (state[0] == LIVE || state[2] == LIVE || state[3] == LIVE) ->
#endif
          state[1] = OPENING;
          marked[1] = false;
          may = true
       :: else -> may = false
       fi
     }
     if
     :: may ->
        do
        :: may ->
           registered[1] = page; /* the driver */
           atomic {
             catch_up();
             if
#ifdef IGNORED
             :: true ->
#else
             :: !marked[1] ->
#endif
                state[1] = LIVE; /* supersedes the others */
                state[0] = NONE;
                state[2] = NONE;
                state[3] = NONE;
                break
#ifndef IGNORED
             :: else ->
#ifdef RETRY
                marked[1] = false
#else
                may = false
#endif
#endif
             fi
           }
        :: else -> state[1] = NONE; break
        od
     :: else
     fi
  :: else -> break
  od
}

proctype unmapper() {
  byte i, round;
  bool counted;
  do
  :: round < ROUNDS ->
     round++;
     counted = COUNTED;
     if
     :: counted -> posted++
     :: else
     fi;
     atomic { page++; is_free = true } /* the call */
     if
     :: atomic { is_free -> is_free = false }
        use(2)
     :: third_has_it -> third_has_it = false /* gives it back, and does not use it any more */
     fi
  :: else -> break
  od
}

proctype third() {
  byte i;
  do
  :: atomic { is_free -> is_free = false }
     use(3);
     third_has_it = true
  :: timeout -> break
  od
}

init {
  atomic {
    state[0] = LIVE;
    registered[0] = 1;
    run opener();
    run unmapper();
    run third()
  }
}
