# SPDX-License-Identifier: BSD-3-Clause
# use_test_flags(<program> <flags>): with the headers that most tests include compiled once.
function(use_test_flags program flags)
  target_link_libraries(${program} PRIVATE ${flags})
  target_precompile_headers(${program} REUSE_FROM headers_with_${flags})
endfunction()

# add_test_program(<name> <label> <flags> <sources> <libraries> <test property>...)
function(add_test_program name label flags sources libraries)
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE pinfold_internal GTest::gtest_main ${libraries})
  use_test_flags(${name} ${flags})
  gtest_discover_tests(
    ${name}
    DISCOVERY_MODE PRE_TEST
    TEST_PREFIX ${label}/
    PROPERTIES LABELS ${label} SKIP_RETURN_CODE 77 ${ARGN}
  )
endfunction()

# add_test_programs(<folder> [RACES] [ALONE <source's stem>...] [LIBRARIES <target>...]
#                   [PROPERTIES <test property> <value>...])
#
# Makes one GoogleTest program, <folder>_tests, of all <folder>/*_test.cpp, and gives each of its tests to ctest as
# <folder>/<suite>.<test>, labelled with the folder: ctest runs each in a process of its own. Sources are compiled several
# at a time where CMAKE_UNITY_BUILD is on, so each has a namespace of its own, named as the file. A program that exits
# with 77, or says GTEST_SKIP, counts as skipped.
# RACES: the programs have to be fast to meet what they look for, and are optimised as the library is.
# ALONE: sources that replace functions or macros for the whole program, such as operator new: each becomes a program,
# named as the file.
# Sets <folder>_programs in the caller.
function(add_test_programs folder)
  cmake_parse_arguments(PARSE_ARGV 1 given "RACES" "" "ALONE;LIBRARIES;PROPERTIES")
  set(flags pinfold_test_flags)
  if(given_RACES)
    set(flags pinfold_flags)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*_test.cpp)
  set(programs ${folder}_tests ${given_ALONE})
  foreach(name IN LISTS given_ALONE)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${name}.cpp)
    list(REMOVE_ITEM sources ${source})
    add_test_program(${name} ${folder} ${flags} ${source} "${given_LIBRARIES}" ${given_PROPERTIES})
  endforeach()
  add_test_program(${folder}_tests ${folder} ${flags} "${sources}" "${given_LIBRARIES}" ${given_PROPERTIES})
  set(${folder}_programs ${programs} PARENT_SCOPE)
endfunction()
