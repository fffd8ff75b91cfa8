# SPDX-License-Identifier: BSD-3-Clause
# Finds libfabric for pinfold::libfabric, where PINFOLD_WITH_LIBFABRIC allows. Sets PINFOLD_HAS_LIBFABRIC, and gives the
# target pinfold_libfabric_driver.
set(PINFOLD_WITH_LIBFABRIC AUTO CACHE STRING "Build libfabric's registrar, pinfold::libfabric: ON, OFF, or AUTO where possible")
set_property(CACHE PINFOLD_WITH_LIBFABRIC PROPERTY STRINGS AUTO ON OFF)

set(PINFOLD_HAS_LIBFABRIC OFF)
if(PINFOLD_WITH_LIBFABRIC)
  find_path(PINFOLD_LIBFABRIC_INCLUDE rdma/fi_domain.h)
  find_library(PINFOLD_LIBFABRIC_LIBRARY fabric)
  mark_as_advanced(PINFOLD_LIBFABRIC_INCLUDE PINFOLD_LIBFABRIC_LIBRARY)
  if(PINFOLD_LIBFABRIC_INCLUDE AND PINFOLD_LIBFABRIC_LIBRARY)
    include(CheckSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${PINFOLD_LIBFABRIC_INCLUDE})
    # The newest that is required: libfabric 1.16.
    check_source_compiles(
      CXX "#include <rdma/fi_domain.h>
      int main() { return FI_HMEM_SYNAPSEAI; }"
      PINFOLD_LIBFABRIC_IS_NEW_ENOUGH
    )
    unset(CMAKE_REQUIRED_INCLUDES)
    set(PINFOLD_HAS_LIBFABRIC ${PINFOLD_LIBFABRIC_IS_NEW_ENOUGH})
  endif()
  if(NOT PINFOLD_HAS_LIBFABRIC)
    set(missing "libfabric's registrar, pinfold::libfabric, needs libfabric-dev 1.16 or later")
    if(PINFOLD_WITH_LIBFABRIC STREQUAL ON)
      message(FATAL_ERROR "PINFOLD_WITH_LIBFABRIC=ON: ${missing}")
    endif()
    message(STATUS "Without what is not there: ${missing}")
  endif()
endif()

if(PINFOLD_HAS_LIBFABRIC)
  add_library(pinfold_libfabric_driver INTERFACE)
  target_include_directories(pinfold_libfabric_driver SYSTEM INTERFACE ${PINFOLD_LIBFABRIC_INCLUDE})
  target_link_libraries(pinfold_libfabric_driver INTERFACE ${PINFOLD_LIBFABRIC_LIBRARY})
endif()
