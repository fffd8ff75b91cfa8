# SPDX-License-Identifier: BSD-3-Clause
# What is written from the headers' comments and the tool's --help: the man pages in <build>/man, with everything else,
# and by the target `reference` the public headers and the documents in HTML, in <build>/html. What a public header does
# not explain is an error of the latter. Adds a line to the table of the build's contents.
find_program(PINFOLD_DOXYGEN doxygen)
find_program(PINFOLD_HELP2MAN help2man)
mark_as_advanced(PINFOLD_DOXYGEN PINFOLD_HELP2MAN)
find_package(Python3 QUIET COMPONENTS Interpreter)

set(missing "")
foreach(need IN ITEMS PINFOLD_DOXYGEN:doxygen PINFOLD_HELP2MAN:help2man Python3_Interpreter_FOUND:python3)
  string(REPLACE ":" ";" need ${need})
  list(POP_FRONT need found)
  if(NOT ${found})
    list(APPEND missing ${need})
  endif()
endforeach()
if(NOT TARGET pinfold_tool OR CMAKE_CROSSCOMPILING)
  list(APPEND missing "the tool, which can run here")
endif()
if(PINFOLD_SANITIZE)
  list(APPEND missing "a build without sanitizers")
endif()
if(missing)
  list(JOIN missing ", " missing)
  add_part("man pages" "needs ${missing}")
  add_custom_target(
    reference
    COMMAND ${CMAKE_COMMAND} -E echo "The reference needs ${missing}"
    COMMAND ${CMAKE_COMMAND} -E false
    VERBATIM
  )
  return()
endif()
add_part("man pages")

set(texts ${PROJECT_SOURCE_DIR}/docs/man)
set(work ${PROJECT_BINARY_DIR}/documents) # not installed
configure_file(${PROJECT_SOURCE_DIR}/docs/reference/Doxyfile.in ${work}/reference.doxyfile @ONLY)
configure_file(${texts}/Doxyfile.in ${work}/man.doxyfile @ONLY)

add_custom_command(
  OUTPUT ${work}/settings.dox
  COMMAND ${texts}/settings $<TARGET_FILE:pinfold_tool> ${work}/settings.dox
  DEPENDS pinfold_tool ${texts}/settings
  VERBATIM
)
set(header ${PROJECT_SOURCE_DIR}/include/pinfold/pinfold.h)
add_custom_command(
  OUTPUT ${work}/errors.dox
  COMMAND ${texts}/errors ${header} ${PROJECT_SOURCE_DIR}/docs/use/errors.md ${work}/errors.dox
  DEPENDS ${texts}/errors ${header} ${PROJECT_SOURCE_DIR}/docs/use/errors.md
  VERBATIM
)
file(GLOB texts_of_pages CONFIGURE_DEPENDS ${texts}/* ${PROJECT_SOURCE_DIR}/examples/*.c)
add_custom_command(
  OUTPUT ${work}/man_pages
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${work}/xml ${PROJECT_BINARY_DIR}/man
  COMMAND ${PINFOLD_DOXYGEN} ${work}/man.doxyfile
  COMMAND ${Python3_EXECUTABLE} -B ${texts}/render.py ${work}/xml ${PROJECT_VERSION} ${PROJECT_BINARY_DIR}/man
  COMMAND ${texts}/tool_pages $<TARGET_FILE:pinfold_tool> ${PROJECT_VERSION} ${PROJECT_BINARY_DIR}/man/man1
  COMMAND ${CMAKE_COMMAND} -E touch ${work}/man_pages
  DEPENDS ${work}/settings.dox
          ${work}/errors.dox
          ${work}/man.doxyfile
          ${texts_of_pages}
          ${PROJECT_SOURCE_DIR}/docs/reference/headers.sed
          ${header}
          ${PROJECT_SOURCE_DIR}/include/pinfold/background.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/cache_set.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/remote_key.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/node_budget.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/verbs.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/libfabric.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/release.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/release_carried.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/segments.h
          ${PROJECT_SOURCE_DIR}/include/pinfold/ucp.h
  COMMENT "Writing the man pages"
  VERBATIM
)
add_custom_target(man_pages ALL DEPENDS ${work}/man_pages)

add_custom_target(
  reference
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${PROJECT_BINARY_DIR}/html
  COMMAND ${PINFOLD_DOXYGEN} ${work}/reference.doxyfile
  DEPENDS ${work}/settings.dox
  COMMENT "Writing the reference: ${PROJECT_BINARY_DIR}/html/index.html"
  VERBATIM
)
