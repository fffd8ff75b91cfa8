# SPDX-License-Identifier: BSD-3-Clause
# Finds the headers of Open MPI's inner layers, which only some packages have. Sets PINFOLD_HAS_OPAL and
# PINFOLD_OPAL_SERIES, such as 4.1, and makes the target `opal`.
find_path(
  PINFOLD_OPAL_INCLUDE opal/mca/rcache/base/base.h
  PATH_SUFFIXES openmpi ${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include/openmpi
  PATHS /usr/lib
)
find_library(PINFOLD_OPAL_LIBRARY open-pal PATH_SUFFIXES openmpi/lib)
mark_as_advanced(PINFOLD_OPAL_INCLUDE PINFOLD_OPAL_LIBRARY)
set(PINFOLD_OPENMPI_COMPONENTS ${CMAKE_INSTALL_LIBDIR}/pinfold/openmpi
    CACHE STRING "Where the component of Open MPI is installed, below the prefix"
)

set(PINFOLD_HAS_OPAL OFF)
if(PINFOLD_OPAL_INCLUDE AND PINFOLD_OPAL_LIBRARY)
  set(PINFOLD_HAS_OPAL ON)
  file(STRINGS ${PINFOLD_OPAL_INCLUDE}/opal_config.h PINFOLD_OPAL_SERIES REGEX "define OPAL_(MAJOR|MINOR)_VERSION ")
  list(TRANSFORM PINFOLD_OPAL_SERIES REPLACE ".* " "")
  list(JOIN PINFOLD_OPAL_SERIES . PINFOLD_OPAL_SERIES)
  cmake_path(GET PINFOLD_OPAL_INCLUDE PARENT_PATH opal_parent)
  add_library(opal INTERFACE)
  target_include_directories(opal SYSTEM INTERFACE ${PINFOLD_OPAL_INCLUDE} ${opal_parent})
  target_link_libraries(opal INTERFACE ${PINFOLD_OPAL_LIBRARY})
endif()
