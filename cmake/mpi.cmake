# SPDX-License-Identifier: BSD-3-Clause
# Finds MPI for `pinfold perf rma --mpi`, if PINFOLD_WITH_MPI allows. Sets PINFOLD_HAS_MPI. Only a separate program
# links with it.
set(PINFOLD_WITH_MPI AUTO CACHE STRING "Build what starts `pinfold perf rma` through MPI: ON, OFF, or AUTO where possible")
set_property(CACHE PINFOLD_WITH_MPI PROPERTY STRINGS AUTO ON OFF)

set(PINFOLD_HAS_MPI OFF)
if(PINFOLD_WITH_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND AND PINFOLD_HAS_LIBFABRIC)
    set(PINFOLD_HAS_MPI ON)
    add_part("perf rma --mpi")
  elseif(PINFOLD_WITH_MPI STREQUAL ON)
    message(FATAL_ERROR "PINFOLD_WITH_MPI=ON: pinfold perf rma --mpi needs libopenmpi-dev, or another MPI, and "
                        "libfabric-dev")
  elseif(MPI_CXX_FOUND)
    add_part("perf rma --mpi" "needs the libfabric registrar")
  else()
    add_part("perf rma --mpi" "libopenmpi-dev, or another MPI, was not found")
  endif()
else()
  add_part("perf rma --mpi" "PINFOLD_WITH_MPI=${PINFOLD_WITH_MPI}")
endif()
