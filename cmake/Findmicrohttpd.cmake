# SPDX-License-Identifier: BSD-3-Clause
# microhttpd has no CMake package of its own. Gives the target microhttpd::microhttpd.
find_path(microhttpd_INCLUDE_DIR microhttpd.h)
find_library(microhttpd_LIBRARY microhttpd)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(microhttpd REQUIRED_VARS microhttpd_LIBRARY microhttpd_INCLUDE_DIR)
if(microhttpd_FOUND AND NOT TARGET microhttpd::microhttpd)
  add_library(microhttpd::microhttpd UNKNOWN IMPORTED)
  set_target_properties(
    microhttpd::microhttpd PROPERTIES IMPORTED_LOCATION ${microhttpd_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES
                                                                        ${microhttpd_INCLUDE_DIR}
  )
endif()
