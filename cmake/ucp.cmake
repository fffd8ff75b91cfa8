# SPDX-License-Identifier: BSD-3-Clause
# Finds UCX for pinfold::ucp, where PINFOLD_WITH_UCP allows. Sets PINFOLD_HAS_UCP, and gives the target
# pinfold_ucp_driver.
include(optional_driver)
set(what "UCX's registrar, pinfold::ucp")

find_driver(UCP ucp/api/ucp.h ucp "${what}")
if(PINFOLD_HAS_UCP)
  include(CheckSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${PINFOLD_UCP_INCLUDE})
  # The newest that is required: UCX 1.12.
  check_source_compiles(
    CXX "#include <ucp/api/ucp.h>
    int main() { return UCP_OP_ATTR_FIELD_MEMH; }"
    PINFOLD_UCP_IS_NEW_ENOUGH
  )
  unset(CMAKE_REQUIRED_INCLUDES)
  set(PINFOLD_HAS_UCP ${PINFOLD_UCP_IS_NEW_ENOUGH})
endif()
add_driver(UCP pinfold_ucp_driver "${what}" "libucx-dev 1.12 or later")
