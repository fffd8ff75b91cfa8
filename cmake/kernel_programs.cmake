# SPDX-License-Identifier: BSD-3-Clause
# add_kernel_programs(<target>)
#
# Compiles the programs of the bpf monitor for the kernel and adds them to the target, if there are clang, libbpf and an
# x86-64 machine. Elsewhere that monitor only serves programs that find a server. Adds a line to the table of the
# build's contents, and sets PINFOLD_HAS_KERNEL_PROGRAMS.
set(PINFOLD_WITH_BPF AUTO CACHE STRING "Build the kernel programs of the bpf monitor: ON, OFF, or AUTO where possible")
set_property(CACHE PINFOLD_WITH_BPF PROPERTY STRINGS AUTO ON OFF)

# find_kernel_compiler(<variable>): sets what is missing; empty when nothing is.
function(find_kernel_compiler missing)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(libbpf QUIET IMPORTED_TARGET GLOBAL libbpf>=1.0)
  endif()
  find_program(PINFOLD_BPF_CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14)
  mark_as_advanced(PINFOLD_BPF_CLANG)
  set(absent "")
  if(NOT PkgConfig_FOUND)
    list(APPEND absent pkg-config)
  elseif(NOT libbpf_FOUND)
    list(APPEND absent "libbpf-dev 1.0 or later")
  endif()
  if(NOT PINFOLD_BPF_CLANG)
    list(APPEND absent clang)
  endif()
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND absent "an x86-64 machine")
  endif()
  list(JOIN absent ", " absent)
  set(${missing} "${absent}" PARENT_SCOPE)
endfunction()

function(add_kernel_programs target)
  if(NOT PINFOLD_WITH_BPF)
    add_part("bpf monitor" "PINFOLD_WITH_BPF=${PINFOLD_WITH_BPF}")
    return()
  endif()
  find_kernel_compiler(missing)
  if(missing AND PINFOLD_WITH_BPF STREQUAL ON)
    message(FATAL_ERROR "PINFOLD_WITH_BPF=ON: the bpf monitor's kernel programs need ${missing}")
  elseif(missing)
    add_part("bpf monitor" "needs ${missing}")
    return()
  endif()
  add_part("bpf monitor")

  set(source ${CMAKE_CURRENT_SOURCE_DIR}/monitors/bpf/kernel/ummunotify.bpf.c)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/ummunotify.bpf) # not .o, which would be linked
  set(system_headers "")
  if(CMAKE_LIBRARY_ARCHITECTURE)
    set(system_headers -I/usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
  endif()
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${PINFOLD_BPF_CLANG} -target bpf -mcpu=v3 -O2 -g -Wall -Werror -D__TARGET_ARCH_x86 ${system_headers}
            -I${CMAKE_CURRENT_SOURCE_DIR} -c ${source} -o ${object}
    DEPENDS ${source} ${CMAKE_CURRENT_SOURCE_DIR}/monitors/bpf/layout.h
    COMMENT "Compiling the bpf monitor's kernel programs"
    VERBATIM
  )
  set_source_files_properties(${object} PROPERTIES HEADER_FILE_ONLY ON)
  target_sources(${target} PRIVATE ${object})
  set_source_files_properties(
    ${CMAKE_CURRENT_SOURCE_DIR}/monitors/bpf/programs.cpp
    PROPERTIES OBJECT_DEPENDS ${object} COMPILE_DEFINITIONS "PINFOLD_WITH_BPF=1;PINFOLD_BPF_OBJECT=\"${object}\""
  )
  target_link_libraries(${target} PUBLIC PkgConfig::libbpf)
  set(PINFOLD_HAS_KERNEL_PROGRAMS ON PARENT_SCOPE)
endfunction()
