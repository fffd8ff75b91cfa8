# SPDX-License-Identifier: BSD-3-Clause
# Finds libibverbs for pinfold::verbs, where PINFOLD_WITH_VERBS allows. Sets PINFOLD_HAS_VERBS, and gives the target
# pinfold_libibverbs.
include(optional_driver)
set(what "the RDMA registrar, pinfold::verbs")

find_driver(VERBS infiniband/verbs.h ibverbs "${what}")
if(PINFOLD_HAS_VERBS)
  include(CheckLibraryExists)
  # The newest that is required: rdma-core 36.
  check_library_exists(${PINFOLD_VERBS_LIBRARY} ibv_is_fork_initialized "" PINFOLD_VERBS_IS_NEW_ENOUGH)
  check_library_exists(${PINFOLD_VERBS_LIBRARY} ibv_reg_dmabuf_mr "" PINFOLD_VERBS_HAS_DMABUF)
  set(PINFOLD_HAS_VERBS ${PINFOLD_VERBS_IS_NEW_ENOUGH})
endif()
add_driver(VERBS pinfold_libibverbs "${what}" "libibverbs-dev 36 or later")

if(PINFOLD_HAS_VERBS AND PINFOLD_VERBS_HAS_DMABUF)
  target_compile_definitions(pinfold_libibverbs INTERFACE PINFOLD_HAS_REG_DMABUF_MR)
endif()
