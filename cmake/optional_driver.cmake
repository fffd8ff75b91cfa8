# SPDX-License-Identifier: BSD-3-Clause
# For registrars whose driver's library may be absent.

# find_driver(<NAME> <header> <library> <what needs it>)
#
# Sets PINFOLD_HAS_<NAME> in the caller: whether the driver is there, and PINFOLD_WITH_<NAME> allows it. If so,
# PINFOLD_<NAME>_INCLUDE and PINFOLD_<NAME>_LIBRARY say where it is.
function(find_driver name header library what)
  set(PINFOLD_WITH_${name} AUTO CACHE STRING "Build ${what}: ON, OFF, or AUTO where possible")
  set_property(CACHE PINFOLD_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
  set(PINFOLD_HAS_${name} OFF PARENT_SCOPE)
  if(PINFOLD_WITH_${name})
    find_path(PINFOLD_${name}_INCLUDE ${header})
    find_library(PINFOLD_${name}_LIBRARY ${library})
    mark_as_advanced(PINFOLD_${name}_INCLUDE PINFOLD_${name}_LIBRARY)
    if(PINFOLD_${name}_INCLUDE AND PINFOLD_${name}_LIBRARY)
      set(PINFOLD_HAS_${name} ON PARENT_SCOPE)
    endif()
  endif()
endfunction()

# add_driver(<NAME> <target> <what needs it> <which version of what>)
#
# Makes the target if PINFOLD_HAS_<NAME>; with PINFOLD_WITH_<NAME>=ON, fails if the driver is missing. Adds a line to
# the table of the build's contents.
function(add_driver name target what version)
  string(TOLOWER ${name} part)
  if(PINFOLD_HAS_${name})
    add_library(${target} INTERFACE)
    target_include_directories(${target} SYSTEM INTERFACE ${PINFOLD_${name}_INCLUDE})
    target_link_libraries(${target} INTERFACE ${PINFOLD_${name}_LIBRARY})
    add_part("${part} registrar")
  elseif(PINFOLD_WITH_${name} STREQUAL ON)
    message(FATAL_ERROR "PINFOLD_WITH_${name}=ON: ${what} needs ${version}")
  elseif(PINFOLD_WITH_${name})
    add_part("${part} registrar" "${version} was not found")
  else()
    add_part("${part} registrar" "PINFOLD_WITH_${name}=${PINFOLD_WITH_${name}}")
  endif()
endfunction()
