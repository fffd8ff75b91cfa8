# SPDX-License-Identifier: BSD-3-Clause
# Finds libfabric for pinfold::libfabric, where PINFOLD_WITH_LIBFABRIC allows. Sets PINFOLD_HAS_LIBFABRIC, and gives the
# target pinfold_libfabric_driver.
include(optional_driver)
set(what "libfabric's registrar, pinfold::libfabric")

find_driver(LIBFABRIC rdma/fi_domain.h fabric "${what}")
if(PINFOLD_HAS_LIBFABRIC)
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
add_driver(LIBFABRIC pinfold_libfabric_driver "${what}" "libfabric-dev 1.16 or later")
