# SPDX-License-Identifier: BSD-3-Clause
# The programs that `pinfold perf rma` becomes: separate ones, so that the tool itself neither needs nor loads libfabric
# or MPI. They differ only in how the ranks meet.
set(rma_directory ${PROJECT_SOURCE_DIR}/tools/pinfold/perf/rma)
file(GLOB rma_sources CONFIGURE_DEPENDS ${rma_directory}/*.cpp)
list(FILTER rma_sources EXCLUDE REGEX "/(with|without)_mpi.cpp$")

add_library(pinfold_rma_objects OBJECT ${rma_sources})
target_link_libraries(
  pinfold_rma_objects
  PUBLIC pinfold_tool_parts pinfold::libfabric pinfold_libfabric_driver
  PRIVATE pinfold_caller_flags
)
target_precompile_headers(pinfold_rma_objects REUSE_FROM pinfold_tool_parts)

file(RELATIVE_PATH library_from_libexec ${CMAKE_INSTALL_FULL_LIBEXECDIR}/pinfold ${CMAKE_INSTALL_FULL_LIBDIR})
function(add_rma_program target name source)
  add_executable(${target} ${rma_directory}/${source})
  set_target_properties(
    ${target}
    PROPERTIES OUTPUT_NAME ${name}
               RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
               INSTALL_RPATH $ORIGIN/${library_from_libexec}
  )
  target_link_libraries(${target} PRIVATE pinfold_rma_objects pinfold_caller_flags ${ARGN})
endfunction()

add_rma_program(pinfold_rma pinfold-rma without_mpi.cpp)
if(PINFOLD_HAS_MPI)
  add_rma_program(pinfold_rma_mpi pinfold-rma-mpi with_mpi.cpp MPI::MPI_CXX)
endif()
