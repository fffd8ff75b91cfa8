// SPDX-License-Identifier: BSD-3-Clause
// The release of one memory (docs/use/release-protocol.md): an exporter that retires it, two importers with a cache of one
// entry each, opens that race with the retirement, evictions, and one importer that may die at any step.
// ANSWERED_FIRST, COUNTED_LATE, ADMITTED_LATE and OPENING_KEPT break a rule each.

mtype = { opening, admitted, refused, request, gone };  // messages; an answer `leased` changes nothing, and is left out
mtype = { none, asking, filling, live, stale };         // states of an entry

chan up[2] = [8] of { mtype };
chan down[2] = [8] of { mtype };
bool holder[2];   // exporter
bool retiring, freed;
mtype entry[2] = none;
bool counted[2];  // importer: the listener knows a mapping, or one that is being opened
bool mapped[2];
bool leased[2];
bool asked[2];
bool doomed[2];   // invalidated while it was opened
mtype said[2] = none;
bool dead[2];
byte deaths;

#define alive(i) (!dead[i])

// Unmaps, and says so; the count and the message change together.
inline close(i) {
  mapped[i] = false;
  entry[i] = none;
  counted[i] = false;
  up[i]!gone
}

active proctype exporter() {
  byte i;
end:
  do
  :: atomic { up[0]?[_] -> i = 0; goto read }
  :: atomic { up[1]?[_] -> i = 1; goto read }
  :: atomic { !retiring ->
       retiring = true;
       if :: holder[0] -> down[0]!request :: else fi;
       if :: holder[1] -> down[1]!request :: else fi
     }
  :: atomic { dead[0] && holder[0] -> holder[0] = false }
  :: atomic { dead[1] && holder[1] -> holder[1] = false }
  :: atomic { retiring && !freed && !holder[0] && !holder[1] ->
       freed = true;
       assert(!(mapped[0] && alive(0)));
       assert(!(mapped[1] && alive(1)))
     }
  od;
read:
  atomic {
    if
    :: up[i]?opening ->
         if
#ifdef ADMITTED_LATE
         :: !freed -> holder[i] = true; down[i]!admitted
#else
         :: !retiring -> holder[i] = true; down[i]!admitted
#endif
         :: else -> down[i]!refused
         fi
    :: up[i]?gone -> holder[i] = false
    fi
  }
  goto end
}

proctype user(byte i) {
  byte uses = 0;
  do
  :: uses == 2 || dead[i] -> break
  :: else ->
       uses++;
       if
       :: atomic { alive(i) && entry[i] == live -> leased[i] = true; assert(!freed) }
       :: atomic { alive(i) && entry[i] == none ->
            entry[i] = asking;
            doomed[i] = false;
#ifndef COUNTED_LATE
            counted[i] = true;
#endif
            up[i]!opening
          }
          atomic {
            (said[i] != none || dead[i]);
            if
            :: dead[i] -> break
            :: said[i] == refused -> said[i] = none; close(i)
            :: else -> said[i] = none; entry[i] = filling
            fi
          }
          if
          :: atomic { alive(i) && entry[i] == filling ->
               counted[i] = true;
               mapped[i] = true;
               leased[i] = true;
               assert(!freed);
               if :: doomed[i] -> entry[i] = stale :: else -> entry[i] = live fi
             }
          :: else
          fi
       :: atomic { alive(i) && entry[i] == live && !leased[i] -> entry[i] = stale }  // evicted
       :: else
       fi;
       if
       :: atomic { alive(i) && leased[i] ->
            leased[i] = false;
            if :: entry[i] == stale -> close(i) :: else fi
          }
       :: atomic { alive(i) && !leased[i] && entry[i] == stale -> close(i) }
       :: else
       fi
  od
}

proctype listener(byte i) {
end:
  do
  :: atomic { alive(i) && down[i]?[admitted] -> down[i]?admitted; said[i] = admitted }
  :: atomic { alive(i) && down[i]?[refused] -> down[i]?refused; said[i] = refused }
  :: atomic { alive(i) && down[i]?[request] -> down[i]?request; asked[i] = true;
#ifdef ANSWERED_FIRST
       up[i]!gone
#endif
     }
     atomic {
       if
       :: dead[i]
       :: alive(i) && entry[i] == live -> entry[i] = stale
#ifndef OPENING_KEPT
       :: alive(i) && (entry[i] == asking || entry[i] == filling) -> doomed[i] = true
#endif
       :: else
       fi
     }
     atomic {
       if
       :: dead[i]
       :: alive(i) && !counted[i] -> up[i]!gone
       :: alive(i) && counted[i] && entry[i] == stale && !leased[i] -> close(i)
       :: else
       fi
     }
  od
}

proctype death() {
  if
  :: dead[0] = true
  :: dead[1] = true
  :: skip
  fi
}

// When all has come to rest, the memory is free, or a lease holds it.
active proctype rest() {
end:
  atomic {
    timeout ->
    assert(freed || (alive(0) && leased[0]) || (alive(1) && leased[1]) || !retiring)
  }
}

init {
  atomic { run user(0); run user(1); run listener(0); run listener(1); run death() }
}
