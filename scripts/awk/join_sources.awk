# SPDX-License-Identifier: BSD-3-Clause
# Writes files, each with up to `most` sources that are compiled alike and have no name in common, and their compile
# commands, into the folder `joined`. Lists sources without a compile command in `alone`. Looks for names where
# definitions start: at the start of a line, outside of a class.
#
# First input: a source a line, below `root`; second: a source and its compile command without output, as JSON, a line.
function name_in(line) {
  if (line !~ /^[A-Za-z]/ || line ~ /^(namespace|template|extern|using namespace|friend)/) return ""
  if (line ~ /^(struct|class|union|enum)[^(]*;$/) return ""
  if (sub(/^using /, "", line)) sub(/ .*/, "", line)
  if (sub(/^(struct|class|union|enum class|enum) /, "", line)) sub(/[^A-Za-z0-9_:].*/, "", line)
  sub(/ *[({=;[].*/, "", line)
  sub(/.*[ &*>]/, "", line)
  return line ~ /::/ ? "" : line
}
function has_a_name_of(group, names, name) {
  for (name in names) if (group SUBSEP name in taken) return 1
  return 0
}
function group_for(flags, names, group) {
  for (group = 1; group <= groups; group++)
    if (flags_of[group] == flags && size[group] < most && !has_a_name_of(group, names)) return group
  flags_of[++groups] = flags
  return groups
}
FNR == NR { wanted[root $0]; next }
$1 in wanted {
  delete names
  while ((getline line < $1) > 0) if ((name = name_in(line)) != "") names[name]
  group = group_for($2, names)
  size[group]++
  for (name in names) taken[group, name]
  print "#include \"" $1 "\"  // NOLINT(bugprone-suspicious-include)" > (joined "/" group ".cpp")
  delete wanted[$1]
}
END {
  for (group = 1; group <= groups; group++) {
    command = flags_of[group]
    sub(/"$/, " -c " joined "/" group ".cpp\"", command)
    printf "%s{\"directory\": \"%s\", \"file\": \"%d.cpp\", \"command\": %s}", group == 1 ? "[" : ",\n",
           joined, group, command > (joined "/compile_commands.json")
  }
  print "]" > (joined "/compile_commands.json")
  for (source in wanted) print source > (joined "/alone")
}
