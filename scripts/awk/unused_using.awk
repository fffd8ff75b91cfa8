# SPDX-License-Identifier: BSD-3-Clause
# Lists using-declarations whose name is not used elsewhere in their file. Fails if there is one.
function tell(name) {
  for (name in where)
    if (uses[name] < 2) {
      print where[name] ": using " name ", which nothing here uses"
      found = 1
    }
}
FNR == 1 { tell(); delete where; delete uses }
{ sub(/\/\/.*/, "") }
match($0, /^ *using [A-Za-z0-9_:]*::[A-Za-z0-9_]+;/) {
  name = substr($0, RSTART, RLENGTH - 1)
  sub(/.*::/, "", name)
  where[name] = FILENAME ":" FNR
}
{ for (at = split($0, word, /[^A-Za-z0-9_]+/); at > 0; at--) uses[word[at]]++ }
END { tell(); exit found }
