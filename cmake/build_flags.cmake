# SPDX-License-Identifier: BSD-3-Clause
# The compile flags of every target of this tree: an interface library, linked privately.
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(PINFOLD_CCACHE ccache)
mark_as_advanced(PINFOLD_CCACHE)
if(PINFOLD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PINFOLD_CCACHE})
endif()

add_library(pinfold_flags INTERFACE)
target_compile_features(pinfold_flags INTERFACE cxx_std_20)
target_compile_options(pinfold_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(pinfold_flags INTERFACE -Wthread-safety)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Collects garbage from 600 MB on: a tenth less time.
  target_compile_options(pinfold_flags INTERFACE --param=ggc-min-heapsize=600000)
  # g++ 12 and 14 report accesses behind the end of a std::string or std::vector that cannot be.
  target_compile_options(pinfold_flags INTERFACE -Wno-array-bounds)
endif()
if(PINFOLD_WERROR)
  target_compile_options(pinfold_flags INTERFACE -Werror)
endif()

# Sources that are compiled together see each other's anonymous namespaces. scripts/check-includes compiles each by itself.
if(CMAKE_UNITY_BUILD)
  target_compile_options(pinfold_flags INTERFACE -Wno-shadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(pinfold_flags INTERFACE -Wno-subobject-linkage)
  endif()
endif()

# Debug and sanitizer builds check the assertions of src/os/check.hpp.
if(PINFOLD_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(PINFOLD_ASSERTIONS)
endif()

if(PINFOLD_SANITIZE)
  # Without `vptr`: to check an object it makes a pipe, and when descriptors have run out it reports a good object as
  # bad.
  add_compile_options(-fsanitize=${PINFOLD_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${PINFOLD_SANITIZE})
endif()

# For code that only calls the library: line numbers are enough to debug it. With sanitizers nearly all time goes into
# compiling, which is twice as fast without optimisation.
add_library(pinfold_caller_flags INTERFACE)
target_link_libraries(pinfold_caller_flags INTERFACE pinfold_flags)
target_compile_options(pinfold_caller_flags INTERFACE -g1)
if(PINFOLD_SANITIZE)
  target_compile_options(pinfold_caller_flags INTERFACE -O0)
endif()

# For tests that have to be fast.
add_library(pinfold_fast_test_flags INTERFACE)
target_link_libraries(pinfold_fast_test_flags INTERFACE pinfold_flags)
target_compile_options(pinfold_fast_test_flags INTERFACE -g1)

# For the other tests: nearly all their time goes into compiling.
add_library(pinfold_test_flags INTERFACE)
target_link_libraries(pinfold_test_flags INTERFACE pinfold_caller_flags)
target_compile_options(pinfold_test_flags INTERFACE -O0)

set(CMAKE_CXX_EXTENSIONS OFF)
