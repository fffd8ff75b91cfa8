# SPDX-License-Identifier: BSD-3-Clause
# The contents of a build, and the reasons for missing parts. Printed at the end of configuring, so that no part is left
# out silently.

# add_part(<name> [<reason>])
#
# Adds a line to the table: the part is built, or, with a reason, it is not.
function(add_part name)
  if(ARGC GREATER 1)
    set(state "no   ${ARGV1}")
  else()
    set(state yes)
  endif()
  string(LENGTH "${name}" length)
  math(EXPR blanks "28 - ${length}")
  string(REPEAT " " ${blanks} gap)
  set_property(GLOBAL APPEND PROPERTY pinfold_parts "${name}${gap}${state}")
endfunction()

# Prints the table.
function(print_parts)
  get_property(lines GLOBAL PROPERTY pinfold_parts)
  message(STATUS "pinfold ${PROJECT_VERSION}: what this build contains")
  foreach(line IN LISTS lines)
    message(STATUS "  ${line}")
  endforeach()
endfunction()
