# SPDX-License-Identifier: BSD-3-Clause
# Static probes, docs/operate/probes.md: nothing but a header is needed, and nothing at run time.
find_path(PINFOLD_SDT_INCLUDE sys/sdt.h)
mark_as_advanced(PINFOLD_SDT_INCLUDE)
if(PINFOLD_SDT_INCLUDE)
  add_compile_definitions(PINFOLD_PROBES)
  set(PINFOLD_PROBES ON)
  add_part("probes")
else()
  set(PINFOLD_PROBES OFF)
  add_part("probes" "needs systemtap-sdt-dev")
endif()
