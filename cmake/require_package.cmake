# SPDX-License-Identifier: BSD-3-Clause
# A find_package whose error names the Debian package.
macro(require_package name debian_package)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} was not found. On Debian it is in the package ${debian_package}; "
                        "scripts/setup installs everything that is needed.")
  endif()
endmacro()
