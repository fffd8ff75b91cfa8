# SPDX-License-Identifier: BSD-3-Clause
# Installs what gdb shows of caches (`docs/operate/dump.md`), in a folder for this SOVERSION, and the file that gdb runs when it
# meets the library: <scripts directory of gdb>/<path of the library>-gdb.py. gdb's own directory is in /usr/share.
get_target_property(soversion pinfold SOVERSION)
set(scripts ${CMAKE_INSTALL_DATADIR}/pinfold/gdb/${soversion})
set(auto_load ${CMAKE_INSTALL_DATADIR}/gdb/auto-load${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH scripts_from_auto_load /${auto_load} /${scripts})
configure_file(${PROJECT_SOURCE_DIR}/contrib/gdb/auto-load.py.in ${PROJECT_BINARY_DIR}/auto-load.py @ONLY)
install(
  FILES ${PROJECT_BINARY_DIR}/auto-load.py
  DESTINATION ${auto_load}
  RENAME $<TARGET_FILE_NAME:pinfold>-gdb.py
  COMPONENT gdb
)
install(FILES ${PROJECT_SOURCE_DIR}/contrib/gdb/pinfold-gdb.py DESTINATION ${scripts} COMPONENT gdb)
install(
  DIRECTORY ${PROJECT_SOURCE_DIR}/contrib/gdb/pinfold_gdb
  DESTINATION ${scripts}
  COMPONENT gdb
  FILES_MATCHING
  PATTERN *.py
  PATTERN __pycache__ EXCLUDE
)
