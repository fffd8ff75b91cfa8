// SPDX-License-Identifier: BSD-3-Clause
// Children of forks start monitors, which have threads.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
