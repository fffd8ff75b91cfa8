/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The mutex of the library: src/os/mutex.hpp, mutex.cpp. No two threads hold it, no thread sleeps for ever, and once a
 * thread that slept for long has claimed it, no other thread gets it before one of those. Whether a thread slept for
 * long is open at each wake. Each access of the state is one step; all are atomic operations of one word, so that they
 * have one order. `scripts/model-check` runs every variant.
 */

#ifndef THREADS
#define THREADS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif

#define FREE 0
#define HELD 1
#define SLEPT_ON 2
#define CLAIMED 3
#define RESERVED 4

#ifdef OVERTAKES
#define MAY_HAVE_IT true
#else
#define MAY_HAVE_IT starved
#endif

byte state = FREE;
bool asleep[THREADS];
byte inside; /* how many threads hold it */
bool claim;  /* a thread has claimed it, and none that slept for long has had it since */

/* futex(2): a thread sleeps only if the state is what it saw, and any thread that sleeps may be the one to wake. */
inline sleep_while(seen) {
  atomic {
    if
    :: state == seen -> asleep[_pid] = true
    :: else
    fi
  }
  !asleep[_pid]
}

inline notify_one() {
  atomic {
    other = THREADS;
    if
    :: asleep[0] -> other = 0
    :: asleep[1] -> other = 1
    :: asleep[2] -> other = 2
    :: !asleep[0] && !asleep[1] && !asleep[2]
    fi;
    if
    :: other < THREADS -> asleep[other] = false
    :: else
    fi;
    other = 0
  }
}

inline notify_all() { d_step { asleep[0] = false; asleep[1] = false; asleep[2] = false } }

inline enter() {
  inside++;
  assert(inside == 1);
  assert(!claim || starved);
  claim = false
}

inline wait() {
  starved = false;
  do
  :: now = state;
    mine = (now == FREE || (now == RESERVED && MAY_HAVE_IT));
    next = now;
    if
    :: mine || now == HELD -> next = SLEPT_ON
    :: else
    fi;
    if
    :: !mine && starved && now != RESERVED -> next = CLAIMED
    :: else
    fi;
    if
    :: next != now ->
      atomic {
        if
        :: state == now -> state = next; now = next
          if
          :: mine -> enter()
          :: !mine && next == CLAIMED -> claim = true
          :: else
          fi
        :: else -> now = FREE; next = HELD; mine = false /* again */
        fi
      }
    :: else
    fi;
    if
    :: mine -> break
    :: !mine && now == next ->
      sleep_while(next);
      if
      :: starved = true
      :: true
      fi
    :: else
    fi
  od
}

inline lock() {
  atomic {
    mine = state == FREE;
    starved = false;
    if
    :: mine -> state = HELD; enter()
    :: else
    fi
  }
  if
  :: mine
  :: else -> wait()
  fi
}

inline unlock() {
  atomic { was = state; inside--; state-- }
  if
  :: was == HELD
  :: else ->
#ifdef CLAIMS_LOST
    atomic { now = was; state = (was == CLAIMED -> RESERVED : FREE) }
#else
    atomic { now = (state == CLAIMED || was == CLAIMED -> CLAIMED : SLEPT_ON); state = (now == CLAIMED -> RESERVED : FREE) }
#endif
#ifdef WAKES_ONE
    notify_one()
#else
    if
    :: now == CLAIMED -> notify_all()
    :: else -> notify_one()
    fi
#endif
  fi
}

active [THREADS] proctype thread() {
  byte now, next, was, other, round;
  bool mine, starved;
  do
  :: round < ROUNDS -> lock(); unlock(); round++
  :: else -> break
  od
}
