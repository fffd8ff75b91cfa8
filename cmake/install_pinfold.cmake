# SPDX-License-Identifier: BSD-3-Clause
# The files that `cmake --install` installs: library, headers, tool, find_package and pkg-config files, licence.
include(CMakePackageConfigHelpers)

# One target for everything that has files to install. Installing fails before it writes anything if a part is not
# built.
get_property(adapters GLOBAL PROPERTY PINFOLD_ADAPTERS)
set(installed pinfold pinfold_static ${adapters})
foreach(target pinfold_tool pinfold_verbs pinfold_verbs_facts pinfold_libfabric pinfold_libfabric_facts pinfold_ucp)
  if(TARGET ${target})
    list(APPEND installed ${target})
  endif()
endforeach()
add_custom_target(pinfold_installed DEPENDS ${installed})
if(TARGET man_pages)
  add_dependencies(pinfold_installed man_pages)
  install(
    CODE "if(NOT EXISTS \"${PROJECT_BINARY_DIR}/man/man1\")
  message(FATAL_ERROR \"Nothing was installed: the man pages are not written; build the target pinfold_installed\")
endif()"
  )
endif()
foreach(target IN LISTS installed)
  install(
    CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
  message(FATAL_ERROR \"Nothing was installed: ${target} is not built; build the target pinfold_installed\")
endif()"
  )
endforeach()

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/pinfold)
install(
  TARGETS pinfold pinfold_static
  EXPORT pinfoldTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
)
if(TARGET pinfold_tool)
  install(TARGETS pinfold_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(
    FILES ${PROJECT_SOURCE_DIR}/contrib/bash/pinfold DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  )
endif()
foreach(adapter IN LISTS adapters)
  get_target_property(folder ${adapter} PINFOLD_FOLDER)
  install(TARGETS ${adapter} LIBRARY DESTINATION ${folder})
endforeach()
# Export sets of their own, so that each can be a package of its own: find_package(pinfold COMPONENTS verbs).
set(components verbs libfabric ucp)
foreach(component IN LISTS components)
  if(TARGET pinfold_${component}_facts)
    install(TARGETS pinfold_${component}_facts LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/pinfold)
  endif()
  if(TARGET pinfold_${component})
    install(
      TARGETS pinfold_${component}
      EXPORT pinfold-${component}Targets
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
      FILE_SET HEADERS
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    )
    install(
      EXPORT pinfold-${component}Targets
      NAMESPACE pinfold::
      DESTINATION ${package_directory}
    )
  endif()
endforeach()
install(EXPORT pinfoldTargets NAMESPACE pinfold:: DESTINATION ${package_directory})

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/pinfoldConfig.cmake.in ${PROJECT_BINARY_DIR}/pinfoldConfig.cmake
  INSTALL_DESTINATION ${package_directory}
  NO_SET_AND_CHECK_MACRO
)
# Before 1.0 a minor version may break its users.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pinfoldConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pinfoldConfig.cmake ${PROJECT_BINARY_DIR}/pinfoldConfigVersion.cmake
        DESTINATION ${package_directory})

# Relative to the file itself, so that a prefix given to `cmake --install` works too.
file(RELATIVE_PATH prefix_from_pkgconfig ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/pinfold.pc.in ${PROJECT_BINARY_DIR}/pinfold.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/pinfold.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(component IN LISTS components)
  if(TARGET pinfold_${component})
    configure_file(
      ${PROJECT_SOURCE_DIR}/cmake/pinfold-${component}.pc.in ${PROJECT_BINARY_DIR}/pinfold-${component}.pc @ONLY
    )
    install(FILES ${PROJECT_BINARY_DIR}/pinfold-${component}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET man_pages)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
endif()
# The reference, if it is written.
install(DIRECTORY ${PROJECT_BINARY_DIR}/html DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
