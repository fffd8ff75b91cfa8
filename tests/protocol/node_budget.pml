// SPDX-License-Identifier: BSD-3-Clause
// The account of a node's budget (docs/understand/protocol.md, The node's budget): src/node_budget/membership_room.cpp,
// reclaim.cpp and membership.cpp. Two members take and give units, and one of them leaves. A third member takes back
// what the dead had. A newcomer takes back, takes a slot that has no owner, and then units. DEATHS of these processes
// die, each before any step, and the kernel drops their locks. At all moments the total covers what the living have,
// and is no more than the maximum. When all are dead or done, one more process takes back: then the total is what the
// living have. `scripts/model-check` runs every variant. NO_NEWCOMER leaves the newcomer out; with TWO_JOIN there are
// two and no third member; with ONLY_JOINS newcomers do not take back. Each of these breaks one rule, and has to fail:
//
//   PENDING_LATE     a member changes the total before it says so in its slot
//   PENDING_EARLY    a member says that its slot is right again before it is
//   PENDING_IGNORED  what is taken back is found without a look at slots that are changing
//   NUMBER_KEPT      a change of the total does not raise its number
//   LOOKED_ONCE      a member compares with the maximum only once, before its compare-and-swap
//   OWNER_FIRST      a slot has no owner before it has no units
//   FREED_ANYWAY     slots are freed although the total could not be changed
//   LOCK_IGNORED     a slot with an owner is taken for that of a dead member, without its lock
//   UNSERIALISED     two newcomers look for a slot at the same time
//
// Not in the model: the number of `taken` comes round; portions; requests that wait; children of fork; programs that
// close their descriptors.

#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef OPERATIONS
#define OPERATIONS 2  // of the first member
#endif
#ifndef OTHERS
#define OTHERS OPERATIONS  // of the second member, which leaves at its end
#endif

#define MAX 2
#define SLOTS 3
#define PROCESSES 4
#define NO_SLOT SLOTS
#define NO_PROCESS 0     // otherwise process + 1
#define LAST PROCESSES   // takes back when all others have ended

byte total;                 // the word `taken`, but for its number
byte units[SLOTS];
bool pending[SLOTS];
byte owner[SLOTS];
byte locked[SLOTS];         // by which process
byte taking_back, opening;  // locks, by which process
byte held[PROCESSES + 1];   // what a process may use
bool dead[PROCESSES + 1];
bool ended[PROCESSES + 1];
bool changed[PROCESSES + 1];  // the number of `taken` is not the one that the process has read
bool all_ended;

#define of(p) (dead[p] -> 0 : held[p])
#define LIVING (of(0) + of(1) + of(2) + of(3))
#define over(p) (dead[p] || ended[p])

#ifdef NUMBER_KEPT
#define unchanged (word == total)
#else
#define unchanged (!changed[me])
#endif

inline read_total() {
  word = total;
  changed[me] = false
}

inline change_total(to) {
  total = to;
  changed[0] = true; changed[1] = true; changed[2] = true; changed[3] = true; changed[LAST] = true;
  assert(total <= MAX);
  assert(LIVING <= total)
}

// membership::add(1) and add(-1). What is given back is not used any more.
inline add(up) {
  atomic {
    if :: up :: else -> held[me]-- fi;
#ifndef PENDING_LATE
    pending[mine] = true
#endif
  };
  atomic { read_total(); fits = !up || word < MAX };
  do
  :: atomic { !fits -> done = false; break }
  :: atomic { fits && unchanged ->
       if :: up -> change_total(word + 1) :: else -> change_total(word - 1) fi;
       done = true;
       break
     }
  :: atomic { fits && !unchanged ->
       read_total();
#ifndef LOOKED_ONCE
       fits = !up || word < MAX
#endif
     }
  od;
#ifdef PENDING_LATE
  pending[mine] = true;
#endif
#ifdef PENDING_EARLY
  pending[mine] = false;
#endif
  if
  :: atomic { done && up -> units[mine]++ }
  :: atomic { done && !up -> units[mine]-- }
  :: atomic { !done }
  fi;
  atomic {
    pending[mine] = false;
    if :: done && up -> held[me]++; assert(LIVING <= total) :: else fi;
    word = 0; changed[me] = false; fits = false; done = false
  }
}

// A slot that has an owner is locked, and is a dead member's if the owner is still there.
inline lock_dead() {
  done = true;
  do
  :: atomic { i < SLOTS ->
       found[i] = false;
       candidate = i != mine && owner[i] != NO_PROCESS
     };
     atomic {
       if
#ifdef LOCK_IGNORED
       :: candidate -> found[i] = true; done = false
#else
       :: candidate && locked[i] == NO_PROCESS && owner[i] != NO_PROCESS ->
          locked[i] = me + 1;
          found[i] = true;
          done = false
#endif
       :: else
       fi;
       candidate = false;
       i++
     }
  :: atomic { i == SLOTS -> i = 0; break }
  od
}

// Adds up the parts of those that were not found dead, and makes that the total.
inline leave_out() {
  atomic { read_total(); sum = 0; done = true };
  do
  :: atomic { i < SLOTS && done && found[i] -> i++ }
  :: atomic { i < SLOTS && done && !found[i] ->
#ifndef PENDING_IGNORED
       done = !pending[i]
#endif
     };
     atomic {
       if :: done -> sum = sum + units[i] :: else fi;
       i++
     }
  :: atomic { i == SLOTS || !done -> break }
  od;
  atomic {
    if
    :: done && unchanged -> change_total(sum)
    :: else -> done = false
    fi;
    i = 0; sum = 0; word = 0; changed[me] = false
  }
}

inline free_slots() {
  do
  :: atomic { i < SLOTS && !found[i] -> i++ }
  :: atomic { i < SLOTS && found[i] ->
#ifdef OWNER_FIRST
       owner[i] = NO_PROCESS };
     pending[i] = false;
     atomic { units[i] = 0;
#else
       units[i] = 0 };
     pending[i] = false;
     atomic { owner[i] = NO_PROCESS;
#endif
       i++
     }
  :: atomic { i == SLOTS -> i = 0; break }
  od
}

// membership::reclaim. Gives up at any try, unless it is the last process.
inline reclaim() {
  if
  :: atomic { taking_back == NO_PROCESS -> taking_back = me + 1 };
     lock_dead();
     do
     :: atomic { i < SLOTS -> if :: found[i] -> pending[i] = true :: else fi; i++ }
     :: atomic { i == SLOTS -> i = 0; break }
     od;
     do
     :: atomic { done -> break }
     :: atomic { !done -> skip };
        leave_out();
        if
        :: atomic { !done && me != LAST -> break }
        :: atomic { true -> skip }
        fi
     od;
#ifdef FREED_ANYWAY
     done = true;
#endif
     if :: atomic { done -> done = false }; free_slots() :: atomic { !done } fi;
     do
     :: atomic { i < SLOTS ->
          if :: found[i] && locked[i] == me + 1 -> locked[i] = NO_PROCESS :: else fi;
          found[i] = false;
          i++
        }
     :: atomic { i == SLOTS -> i = 0; break }
     od;
     taking_back = NO_PROCESS
  :: atomic { taking_back != NO_PROCESS }
  fi
}

// membership::join. Takes the first slot without an owner, if there is one.
inline join() {
#ifndef UNSERIALISED
  atomic { opening == NO_PROCESS -> opening = me + 1 };
#endif
#ifndef ONLY_JOINS
  reclaim();
#endif
  do
  :: atomic { i < SLOTS && mine == NO_SLOT -> candidate = owner[i] == NO_PROCESS && !pending[i] };
     atomic {
       if
       :: candidate && locked[i] == NO_PROCESS -> locked[i] = me + 1; mine = i; owner[i] = me + 1
       :: else
       fi;
       candidate = false;
       i++
     }
  :: atomic { i == SLOTS || mine != NO_SLOT -> i = 0; break }
  od;
#ifndef UNSERIALISED
  opening = NO_PROCESS
#endif
}

// Gives all back, and leaves. The kernel drops the lock when the file is closed.
inline leave() {
  do
  :: held[me] > 0 -> add(false)
  :: else -> break
  od;
  owner[mine] = NO_PROCESS;
  locked[mine] = NO_PROCESS
}

proctype member(byte me; byte mine; byte operations; bool takes_back; bool leaves) {
  byte i, word, sum;
  bool done, fits, candidate;
  bool found[SLOTS];
  {
    if :: mine == NO_SLOT -> join() :: else fi;
    do
    :: atomic { operations > 0 && mine != NO_SLOT -> operations-- };
       if
       :: add(true)
       :: held[me] > 0 -> add(false)
       fi
    :: atomic { takes_back -> takes_back = false }; reclaim()
    :: atomic { (operations == 0 || mine == NO_SLOT) && !takes_back -> break }
    od;
    if :: leaves && mine != NO_SLOT -> leave() :: else fi;
    ended[me] = true
  } unless { dead[me] }
}

// The kernel drops what locks the dead had.
inline die(p) {
  dead[p] = true;
  changed[p] = false;
  do
  :: i < SLOTS -> if :: locked[i] == p + 1 -> locked[i] = NO_PROCESS :: else fi; i++
  :: else -> i = 0; break
  od;
  if :: taking_back == p + 1 -> taking_back = NO_PROCESS :: else fi;
  if :: opening == p + 1 -> opening = NO_PROCESS :: else fi
}

proctype death() {
  byte deaths, i;
  do
  :: atomic { deaths < DEATHS && !all_ended && !dead[0] -> die(0); deaths++ }
  :: atomic { deaths < DEATHS && !all_ended && !dead[1] -> die(1); deaths++ }
  :: atomic { deaths < DEATHS && !all_ended && !dead[2] -> die(2); deaths++ }
#ifndef NO_NEWCOMER
  :: atomic { deaths < DEATHS && !all_ended && !dead[3] -> die(3); deaths++ }
#endif
  :: atomic { deaths == DEATHS || all_ended -> break }
  od
}

proctype last() {
  byte me = LAST, mine = NO_SLOT, i, word, sum;
  bool done, candidate;
  bool found[SLOTS];
  atomic { over(0) && over(1) && over(2) && over(3) -> all_ended = true };
  reclaim();
  assert(total == LIVING)
}

init {
  atomic {
    owner[0] = 1; locked[0] = 1;
    owner[1] = 2; locked[1] = 2;
    run member(0, 0, OPERATIONS, false, false);
    run member(1, 1, OTHERS, false, true);
#ifdef TWO_JOIN
    run member(2, NO_SLOT, 1, false, false);
#else
    owner[2] = 3; locked[2] = 3;
    run member(2, 2, 0, true, false);
#endif
#ifdef NO_NEWCOMER
    ended[3] = true;
#else
    run member(3, NO_SLOT, 1, false, false);
#endif
    run death();
    run last()
  }
}
