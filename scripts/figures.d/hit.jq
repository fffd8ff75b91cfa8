# SPDX-License-Identifier: BSD-3-Clause
# `pinfold perf hit --peers`: nanoseconds by the number of regions, a column for each subject. One region is always the
# same, more are used at random. In brackets, how often the figure of pinfold.
def titles: {"pinfold": "pinfold", "pinfold-c": "C interface", "pinfold-3caches": "three caches",
  "pinfold-import": "import", "floor-atomics": "floor-atomics", "floor-record": "floor-record", "ucx": "UCX",
  "openmpi": "Open MPI"};
def shown: if . >= 100 then round | tostring elif . >= 20 then round | tostring else . * 10 | round / 10 | tostring end;
def figure($of; $own):
  if $of == null or ($of.ns_per_op == null) then "-"
  else ($of.ns_per_op | shown)
    + (if (["ucx", "openmpi"] | index([$of.subject])) != null and $own != null then " (\($of.ns_per_op / $own.ns_per_op | shown)x)" else "" end)
  end;

[.rows[] | select(.pattern == "random" or .regions == 1)] as $rows
| ([$rows[].subject] | unique) as $there
| [titles | keys_unsorted[] | select(. as $one | $there | index($one))] as $subjects
| "| regions | \([$subjects[] | titles[.]] | join(" | ")) |",
  "|---|\([$subjects[] | "---|"] | add)",
  ([$rows[].regions] | unique[]) as $regions
  | [$rows[] | select(.regions == $regions)] as $of
  | [$of[] | select(.subject == "pinfold")][0] as $own
  | "| \($regions) | \([$subjects[] as $one | figure([$of[] | select(.subject == $one)][0]; $own)] | join(" | ")) |"
