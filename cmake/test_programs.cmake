# SPDX-License-Identifier: BSD-3-Clause
# use_test_flags(<program> <flags>): with the headers that most tests include compiled once.
function(use_test_flags program flags)
  target_link_libraries(${program} PRIVATE ${flags})
  target_precompile_headers(${program} REUSE_FROM headers_with_${flags})
  if(PINFOLD_SANITIZE STREQUAL "thread")
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/tsan_options.cpp)
  endif()
endfunction()

# add_test_program(<name> <label> <flags> <sources> <libraries> <test property>...)
function(add_test_program name label flags sources libraries)
  add_executable(${name} ${sources} ${PROJECT_SOURCE_DIR}/tests/support/answer_times.cpp)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE pinfold_internal GTest::gtest_main ${libraries})
  use_test_flags(${name} ${flags})
  gtest_discover_tests(
    ${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 120 # a sanitizer's program takes seconds to start on a busy machine
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
# Without PINFOLD_TEST_SINGLE_THREADED, sources are left out that start no thread and use no part of the library that does.
# Sets <folder>_programs in the caller, and makes a target of that name.
option(PINFOLD_TEST_SINGLE_THREADED "Build also the tests without threads, which a ThreadSanitizer has nothing to check in" ON)
set(threads_of_tests "std::j?thread|std::async|pthread_create|stopped_hit|userfaultfd|reaper|workers|retire|listener")
function(add_test_programs folder)
  cmake_parse_arguments(PARSE_ARGV 1 given "RACES" "" "ALONE;LIBRARIES;PROPERTIES")
  set(flags pinfold_test_flags)
  if(given_RACES)
    set(flags pinfold_fast_test_flags)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*_test.cpp)
  if(NOT PINFOLD_TEST_SINGLE_THREADED)
    foreach(source IN LISTS sources)
      file(STRINGS ${source} threads REGEX "${threads_of_tests}" LIMIT_COUNT 1)
      if(NOT threads)
        list(REMOVE_ITEM sources ${source})
      endif()
    endforeach()
  endif()
  set(programs "")
  set(together "")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    if(name IN_LIST given_ALONE)
      add_test_program(${name} ${folder} ${flags} ${source} "${given_LIBRARIES}" ${given_PROPERTIES})
      list(APPEND programs ${name})
    else()
      list(APPEND together ${source})
    endif()
  endforeach()
  if(together)
    add_test_program(${folder}_tests ${folder} ${flags} "${together}" "${given_LIBRARIES}" ${given_PROPERTIES})
    list(APPEND programs ${folder}_tests)
  endif()
  add_custom_target(${folder}_programs DEPENDS ${programs})
  set(${folder}_programs ${programs} PARENT_SCOPE)
endfunction()
