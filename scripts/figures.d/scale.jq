# SPDX-License-Identifier: BSD-3-Clause
# `pinfold perf scale --peers`: millions of gets and puts a second by threads, a line for each pattern and subject.
def patterns: {"same": "all on one region", "distinct": "each its own regions", "random": "all on all",
  "handover": "acquired on one thread, released on another"};
def subjects: {"pinfold": "pinfold", "ucx": "UCX", "openmpi": "Open MPI"};
def shown: if . == null then "" elif . >= 20 then round | tostring else . * 10 | round / 10 | tostring end;

.rows as $rows | ([$rows[].threads] | unique) as $threads
| "| pattern | subject | \([$threads[] | tostring] | join(" | ")) |",
  "|---|---|\([$threads[] | "---|"] | add)",
  (patterns | to_entries[]) as $pattern | (subjects | to_entries[]) as $subject
  | [$rows[] | select(.pattern == $pattern.key and .subject == $subject.key)] as $of
  | select($of | length > 0)
  | "| \($pattern.value) | \($subject.value) | \([$threads[] as $count | [$of[] | select(.threads == $count) | .mops][0] | shown] | join(" | ")) |"
