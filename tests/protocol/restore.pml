/* SPDX-License-Identifier: BSD-3-Clause
 *
 * `quiesce` and `restore`: src/core/engine_remember.cpp, remembered.cpp, engine_flush.cpp, engine_restore.cpp,
 * engine_stale.cpp, engine_events.cpp. There are two shards, each with one piece of memory. One or two threads
 * quiesce, and one or two workers restore. Each of the definitions INVALIDATES, EVENTS, UNPERSISTS and REQUESTS adds
 * a thread: it invalidates, delivers an event from the log, unpersists, or requests memory. Calls and events concern
 * the memory of both shards. With EARLIER, an earlier `quiesce` may have closed one of the registrations.
 * `scripts/model-check` runs every variant; docs/understand/protocol.md describes them.
 *
 * Each step is a critical section of one mutex, or concerns no other thread. The mutex of a shard is explicit, because
 * a thread locks another mutex under it. A load of `anything_remembered` is relaxed: under the mutex of a shard it may
 * return an older value, unless a `quiesce` has listed that shard since the flag was set.
 */

#define SHARDS 2
#ifndef QUIESCES
#define QUIESCES 1
#endif
#ifndef WORKERS
#define WORKERS 1
#endif
#define RESTORES 2            /* registrations that a worker takes at most */
#define REQUESTER WORKERS     /* the opener that is not a worker */
#define OPENERS (WORKERS + 1)

/* The threads that say that memory is gone, or need not be kept. */
#define INVALIDATES_IT 0
#define DELIVERS 1
#define UNPERSISTS_IT 2
#define SAYERS 3

/* An entry, or an element of a list. */
typedef registration {
  bool there;
  byte memory;    /* which memory is registered; of an element: was registered by the entry that was listed */
  bool persistent;
  bool affected   /* an event that is pending in the shard affects the entry */
}
typedef list {
  registration in[SHARDS]
}
typedef notes {
  bool gone[SHARDS];
  bool unpersisted[SHARDS]
}
typedef marks {
  bool withdrawn;
  bool unpersisted
}

/* Which memory is there, in both shards. It changes when a call begins that invalidates, or when an event comes. */
byte memory = 1;

/* Said by the calls and events that have ended: older memory is gone; no registration is persistent. */
byte oldest = 1;
bool none_persistent;

bool unread; /* an event is on the log, and not yet delivered to every shard */

/* Guarded by the mutex of a shard. */
bool mutex[SHARDS];
registration live[SHARDS];
registration opening[OPENERS];
byte opens[OPENERS];             /* the shard + 1 of the entry that is opening, or 0 */
bool doomed[OPENERS];

/* Guarded by remembered_mutex_. */
list remembered;
bool closing[QUIESCES];          /* linked */
notes noted[QUIESCES];
registration restoring[OPENERS]; /* the element that a worker has taken */
byte restores[OPENERS];          /* its shard + 1, or 0 */
bool saying[SAYERS];             /* linked */

list listed[QUIESCES];           /* belongs to the thread that quiesces */
marks meanwhile[OPENERS];        /* said_meanwhile: written under remembered_mutex_, read under the mutex of a shard */

bool anything_remembered;
bool listed_since[SHARDS];       /* under this shard's mutex, a load of the flag returns no older value */

byte i, k;                       /* within a step */

#define IN(s) (!mutex[s])
#define OPENS(o, s) (opens[o] == s + 1)
#define FINDABLE(o, s) (OPENS(o, s) && !doomed[o])
#define RESTORES_IN(w, s) (restores[w] == s + 1)
#define LISTS(q, s) listed[q].in[s].there

#if WORKERS == 1
#define ANY_OPENER(is, s) (is(0, s) || is(1, s))
#define ANY_WORKER(is, s) is(0, s)
#else
#define ANY_OPENER(is, s) (is(0, s) || is(1, s) || is(2, s))
#define ANY_WORKER(is, s) (is(0, s) || is(1, s))
#endif
#if QUIESCES == 1
#define ANY_CLOSING closing[0]
#define ANY_LIST(is, s) is(0, s)
#else
#define ANY_CLOSING (closing[0] || closing[1])
#define ANY_LIST(is, s) (is(0, s) || is(1, s))
#endif

/* Whether an event on the memory is posted: registered_filter. */
#define IS_OPEN(s) (live[s].there || ANY_OPENER(OPENS, s))
#ifdef REMEMBERED_UNCOUNTED
#define COUNTED(s) IS_OPEN(s)
#else
#define COUNTED(s) (IS_OPEN(s) || remembered.in[s].there || ANY_LIST(LISTS, s) || ANY_WORKER(RESTORES_IN, s))
#endif

/* The property. No request gets an entry that a pending event affects. */
#define IS_RIGHT(one) (!one.there || one.affected || (one.memory >= oldest && !(one.persistent && none_persistent)))

inline clear(one) {
  one.there = false;
  one.memory = 0;
  one.persistent = false;
  one.affected = false
}

inline copy(from, to) {
  to.there = true;
  to.memory = from.memory;
  to.persistent = from.persistent;
  to.affected = false
}

inline note_what_is_remembered() {
  anything_remembered = ANY_CLOSING || ANY_WORKER(RESTORES_IN, 0) || ANY_WORKER(RESTORES_IN, 1) ||
                        remembered.in[0].there || remembered.in[1].there;
  if
  :: !anything_remembered -> listed_since[0] = false; listed_since[1] = false
  :: else
  fi
}

/* For each entry that is opening in the shard. */
inline doom_openings(s) {
  do
  :: i < OPENERS -> doomed[i] = doomed[i] || OPENS(i, s); i++
  :: else -> break
  od;
  i = 0
}

inline affect_openings(s) {
  do
  :: i < OPENERS -> opening[i].affected = opening[i].affected || OPENS(i, s); i++
  :: else -> break
  od;
  i = 0
}

inline doom_affected_openings() {
  do
  :: i < OPENERS -> doomed[i] = doomed[i] || opening[i].affected; i++
  :: else -> break
  od;
  i = 0
}

inline unpersist_open(s) {
  live[s].persistent = false;
  do
  :: i < OPENERS -> opening[i].persistent = opening[i].persistent && !FINDABLE(i, s); i++
  :: else -> break
  od;
  i = 0
}

/* --- A request, of a worker or of another thread. It gives its lease back at once. */

/* Marks the entries that the pending events affect. */
inline process_pending(s) {
  if
  :: live[s].affected -> clear(live[s])
  :: else
  fi;
  doom_affected_openings()
}

#ifdef MARK_READ_EARLY
#define MEANWHILE(o) seen
#else
#define MEANWHILE(o) meanwhile[o]
#endif

/* A worker's entry has the memory of the element: if the memory has changed since, no request asked for the new one. */
inline claim(o, s) {
  copy(restoring[o], opening[o]);
  opening[o].persistent = restoring[o].persistent && !MEANWHILE(o).unpersisted;
  opens[o] = s + 1
}

inline end_open(o) {
  clear(opening[o]);
  opens[o] = 0;
  doomed[o] = false
}

/* If there is another live entry, one of the two supersedes the other. */
inline publish(o, s) {
  assert(IS_RIGHT(opening[o]));
  if
  :: live[s].there
  :: copy(opening[o], live[s])
  fi;
  end_open(o)
}

inline acquire(o, s) {
  !unread; /* a request that reads the log delivers the event, or waits for the thread that does */
  atomic { IN(s) -> d_step { process_pending(s) } }
#ifdef MARK_READ_EARLY
  d_step { seen.withdrawn = meanwhile[o].withdrawn; seen.unpersisted = meanwhile[o].unpersisted }
#endif
  atomic {
    IN(s) && !ANY_OPENER(FINDABLE, s) -> /* waits for an opener whose entry it finds */
    if
    :: live[s].there ->
      live[s].persistent = live[s].persistent || (restoring[o].persistent && !MEANWHILE(o).unpersisted);
      assert(IS_RIGHT(live[s]))
    :: !live[s].there && !MEANWHILE(o).withdrawn -> claim(o, s)
    :: !live[s].there && MEANWHILE(o).withdrawn
    fi;
#ifdef MARK_READ_EARLY
    seen.withdrawn = false;
    seen.unpersisted = false
#endif
  }
  do
  :: opens[o] != 0 ->
    if
    :: o == REQUESTER -> opening[o].memory = memory /* the driver */
    :: else
    fi;
    !unread;
    atomic {
      IN(s) ->
      doomed[o] = doomed[o] || opening[o].affected;
      if
      :: !doomed[o] -> publish(o, s)
      :: else
      fi
    }
    if
    :: opens[o] == 0
    :: atomic {
        opens[o] != 0 && IN(s) -> /* the driver has closed what it opened */
        d_step {
          doomed[o] = false;
          opening[o].affected = false;
#ifndef ASKED_AGAIN
          if
          :: meanwhile[o].withdrawn -> end_open(o)
          :: else
          fi
#endif
        }
      }
    fi
  :: else -> break
  od
}

proctype requester() {
  marks seen;
  acquire(REQUESTER, 1)
}

/* --- A worker of `restore`. */

/* Takes an element, unless a call or an event says at this moment that the memory is gone. */
inline take(w) {
  copy(remembered.in[at], restoring[w]);
  clear(remembered.in[at]);
  restores[w] = at + 1;
#ifndef SAYING_IGNORED
  if
  :: saying[UNPERSISTS_IT] -> restoring[w].persistent = false
  :: else
  fi;
  if
  :: saying[INVALIDATES_IT] || saying[DELIVERS] -> clear(restoring[w]); restores[w] = 0
  :: else
  fi
#endif
}

/* The element of either shard may be the one with the most hits. */
inline begin_restoring(w) {
  do
  :: restores[w] == 0 && remembered.in[0].there -> at = 0; take(w)
  :: restores[w] == 0 && remembered.in[1].there -> at = 1; take(w)
  :: restores[w] != 0 || !(remembered.in[0].there || remembered.in[1].there) -> break
  od;
  note_what_is_remembered()
}

inline end_restoring(w) {
  clear(restoring[w]);
  restores[w] = 0;
  meanwhile[w].withdrawn = false;
  meanwhile[w].unpersisted = false;
  note_what_is_remembered()
}

proctype worker(byte me) {
  byte at, left = RESTORES;
  marks seen;
  do
  :: atomic { left > 0 -> left--; begin_restoring(me) }
    if
    :: restores[me] != 0 ->
      acquire(me, at);
      atomic { at = 0; d_step { end_restoring(me) } }
    :: else -> atomic { at = 0; left = 0 }
    fi
  :: left == 0 -> break
  od
}

/* --- A thread that quiesces. It does not catch up with the events first: so more of them may be pending. */

inline list_what_is_open(s) {
  if
#ifdef AFFECTED_LISTED
  :: live[s].there -> copy(live[s], listed[me].in[s])
#else
  :: live[s].there && !live[s].affected -> copy(live[s], listed[me].in[s])
#endif
  :: else
  fi;
  listed_since[s] = anything_remembered
}

inline close_unheld(s) {
  if
  :: live[s].there && !live[s].persistent -> clear(live[s])
  :: else
  fi
}

inline unlink_and_apply_notes() {
  closing[me] = false;
  do
  :: i < SHARDS ->
    listed[me].in[i].persistent = listed[me].in[i].persistent && !noted[me].unpersisted[i];
    if
    :: noted[me].gone[i] -> clear(listed[me].in[i])
    :: else
    fi;
    noted[me].gone[i] = false;
    noted[me].unpersisted[i] = false;
    i++
  :: else -> break
  od;
  i = 0
}

/* Keeps the list, and the elements of the older one that it lacks. */
inline keep_list() {
  do
  :: i < SHARDS ->
    if
    :: listed[me].in[i].there -> copy(listed[me].in[i], remembered.in[i])
    :: else
    fi;
    clear(listed[me].in[i]);
    i++
  :: else -> break
  od;
  i = 0;
  note_what_is_remembered()
}

proctype quiescer(byte me) {
  byte s;
  d_step {
    closing[me] = true;
#ifndef FLAG_LATE
    note_what_is_remembered()
#endif
  }
  do
  :: atomic { s < SHARDS && IN(s) -> d_step { list_what_is_open(s); s++ } }
  :: s == SHARDS -> break
  od;
  s = 0;
#ifdef FLAG_LATE
  d_step { note_what_is_remembered() }
#endif
#ifdef UNPERSISTS
  do
  :: atomic { s < SHARDS && IN(s) -> d_step { unpersist_open(s); s++ } }
  :: s == SHARDS -> break
  od;
  s = 0;
#endif
  do
  :: atomic { s < SHARDS && IN(s) -> d_step { close_unheld(s); s++ } }
  :: s == SHARDS -> break
  od;
  s = 0;
#ifdef END_IN_TWO_STEPS
  d_step { unlink_and_apply_notes() }
  d_step { keep_list() }
#else
  d_step { unlink_and_apply_notes(); keep_list() }
#endif
}

/* --- A thread that invalidates, delivers an event, or unpersists. */

/* An event on memory that is not counted is not posted. */
inline begin_saying() {
  if
  :: kind == UNPERSISTS_IT
  :: else ->
    unread = kind == DELIVERS && (COUNTED(0) || COUNTED(1));
    silent = kind == DELIVERS && !unread;
    memory++;
    now = memory
  fi
}

inline visit(s) {
  if
  :: kind == INVALIDATES_IT -> clear(live[s]); doom_openings(s)
  :: kind == DELIVERS -> live[s].affected = live[s].there; affect_openings(s)
  :: kind == UNPERSISTS_IT -> unpersist_open(s)
  fi
}

inline mark_workers() {
  do
  :: i < WORKERS ->
    if
    :: restores[i] != 0 && kind == UNPERSISTS_IT -> meanwhile[i].unpersisted = true
    :: restores[i] != 0 && kind != UNPERSISTS_IT -> meanwhile[i].withdrawn = true
    :: else
    fi;
    i++
  :: else -> break
  od;
  i = 0
}

inline note_in_lists() {
  do
  :: k < QUIESCES ->
    if
    :: closing[k] && kind != UNPERSISTS_IT -> noted[k].gone[0] = true; noted[k].gone[1] = true
#ifndef UNPERSIST_LOST
    :: closing[k] && kind == UNPERSISTS_IT -> noted[k].unpersisted[0] = true; noted[k].unpersisted[1] = true
#endif
    :: else
    fi;
    k++
  :: else -> break
  od;
  k = 0
}

/* Applies the call or event to the engine's list, and notes it in the lists of the threads that quiesce. */
inline tell_lists() {
  if
  :: kind == UNPERSISTS_IT -> remembered.in[0].persistent = false; remembered.in[1].persistent = false
  :: else -> clear(remembered.in[0]); clear(remembered.in[1])
  fi;
#ifndef LISTS_UNTOLD
  note_in_lists();
#endif
  note_what_is_remembered()
}

inline link_and_mark() {
  saying[kind] = true;
#ifdef TOLD_FIRST
  tell_lists();
#endif
#ifndef WORKERS_UNMARKED
  mark_workers()
#endif
}

inline end_saying() {
  if
  :: saying[kind] ->
#ifndef TOLD_FIRST
    tell_lists();
#endif
    saying[kind] = false
  :: else
  fi;
  if
  :: kind == UNPERSISTS_IT -> none_persistent = true
  :: kind != UNPERSISTS_IT && oldest < now -> oldest = now
  :: else
  fi;
  if
  :: kind == DELIVERS -> unread = false
  :: else
  fi;
  now = 0;
  assert(IS_RIGHT(live[0]) && IS_RIGHT(live[1]))
}

#ifdef FLAG_READ_EARLY
#define MAY_LINK (!saying[kind] && any)
#define MAY_VISIT (saying[kind] || !any)
#else
#define MAY_LINK (!saying[kind] && anything_remembered)
#define MAY_VISIT (saying[kind] || !anything_remembered || !listed_since[s])
#endif

proctype sayer(byte kind) {
  byte s, now;
  bool silent;
  d_step { begin_saying() }
#ifdef FLAG_READ_EARLY
  bool any = anything_remembered;
#endif
  do
  :: atomic { !silent && s < SHARDS && IN(s) && MAY_VISIT -> d_step { visit(s); s++ } }
#ifdef LINKED_LATE
  :: atomic { !silent && s < SHARDS && IN(s) && MAY_LINK -> d_step { visit(s); s++ } }
    d_step { link_and_mark() }
#else
  :: atomic { !silent && s < SHARDS && IN(s) && MAY_LINK -> mutex[s] = true }
    d_step { link_and_mark() }
    d_step { visit(s); mutex[s] = false; s++ }
#endif
  :: silent || s == SHARDS -> break
  od;
  s = 0;
  d_step { end_saying() }
}

inline begin_with(one) {
  one.there = true;
  one.memory = 1;
#ifdef UNPERSISTS
  one.persistent = true
#endif
}

init {
  atomic {
    if
    :: begin_with(live[0]); begin_with(live[1])
#ifdef EARLIER
    /* An earlier `quiesce` has closed one of the two. */
    :: begin_with(remembered.in[0]); begin_with(live[1])
    :: begin_with(live[0]); begin_with(remembered.in[1])
#endif
    fi;
    anything_remembered = remembered.in[0].there || remembered.in[1].there;
    listed_since[0] = anything_remembered;
    listed_since[1] = anything_remembered;
    run quiescer(0);
#if QUIESCES == 2
    run quiescer(1);
#endif
    run worker(0);
#if WORKERS == 2
    run worker(1);
#endif
#ifdef INVALIDATES
    run sayer(INVALIDATES_IT);
#endif
#ifdef EVENTS
    run sayer(DELIVERS);
#endif
#ifdef UNPERSISTS
    run sayer(UNPERSISTS_IT);
#endif
#ifdef REQUESTS
    run requester();
#endif
  }
}
