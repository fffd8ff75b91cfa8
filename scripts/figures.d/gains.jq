# SPDX-License-Identifier: BSD-3-Clause
# `pinfold perf import`: medians with the cache and without, a line for each size of a message.
def time: if . < 1000 then "\(. | round) ns" elif . < 1e6 then "\(. / 10 | round / 100) µs" else "\(. / 1e4 | round / 100) ms" end;
def bytes: if . >= pow(2; 20) then "\(. / pow(2; 20)) MiB" elif . >= 1024 then "\(. / 1024) KiB" else "\(.) B" end;
def of($rows; $size; $subject): [$rows[] | select(.size == $size and .subject == $subject)][0].p50_ns;

.rows as $rows
| "| message | open, copy, close | cached | gain | the copy alone |", "|---|---|---|---|---|",
  ([$rows[].size] | unique[]) as $size
  | of($rows; $size; "uncached") as $without | of($rows; $size; "pinfold") as $with
  | "| \($size | bytes) | \($without | time) | \($with | time) | \($without / $with * 10 | round / 10)× | \(of($rows; $size; "floor") | time) |"
