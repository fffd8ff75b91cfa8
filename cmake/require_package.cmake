# SPDX-License-Identifier: BSD-3-Clause
# find_package that names the Debian package when nothing is found.
macro(require_package name debian_package)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} was not found. On Debian it is in the package ${debian_package}; "
                        "scripts/setup installs everything that is needed.")
  endif()
endmacro()
