# SPDX-License-Identifier: BSD-3-Clause
# use_test_flags(<program> <flags>): precompiles the headers that most tests include, where that is done.
function(use_test_flags program flags)
  target_link_libraries(${program} PRIVATE ${flags})
  if(TARGET headers_with_${flags})
    target_precompile_headers(${program} REUSE_FROM headers_with_${flags})
  endif()
endfunction()

# add_test_programs(<folder> [RACES] [LIBRARIES <target>...] [<test property> <value>...])
#
# Makes one GoogleTest program of each <folder>/*_test.cpp and gives each of its tests to ctest, labelled with the
# folder. Sets <folder>_programs in the caller. A program that exits with 77, or says GTEST_SKIP, counts as skipped.
# With RACES, the programs have to be fast to meet what they look for, and are optimised as the library is.
function(add_test_programs folder)
  cmake_parse_arguments(PARSE_ARGV 1 given "RACES" "" "LIBRARIES")
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*_test.cpp)
  set(programs "")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE pinfold_internal GTest::gtest_main ${given_LIBRARIES})
    if(given_RACES)
      use_test_flags(${name} pinfold_flags)
    else()
      use_test_flags(${name} pinfold_test_flags)
    endif()
    gtest_discover_tests(
      ${name}
      DISCOVERY_MODE PRE_TEST
      TEST_PREFIX ${folder}/
      PROPERTIES LABELS ${folder} SKIP_RETURN_CODE 77 ${given_UNPARSED_ARGUMENTS}
    )
    list(APPEND programs ${name})
  endforeach()
  set(${folder}_programs ${programs} PARENT_SCOPE)
endfunction()
