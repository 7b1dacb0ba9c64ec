# install.cmake - what `cmake --install` puts where, and the packages that `cpack` makes of it; the SDK's
# own part is in sdk/CMakeLists.txt.
#
#   bin/moorage   lib/moorage/plugins/<kind>/*.so   share/moorage/{configs,hw_profiles,sdk}
#   share/man/man1   share/{bash-completion,zsh,fish}   include/moorage   lib/cmake/moorage-sdk
include(GNUInstallDirs)

install(TARGETS moorage RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
# Not LIBDIR: the program looks for lib/moorage/plugins beside its own folder, on every distribution.
install(DIRECTORY ${CMAKE_BINARY_DIR}/plugins/ DESTINATION lib/moorage/plugins COMPONENT program
  FILES_MATCHING PATTERN "*.so" PATTERN CMakeFiles EXCLUDE)
foreach(folder configs hw_profiles)
  if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${folder})
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/moorage
      COMPONENT program PATTERN __pycache__ EXCLUDE REGEX "hw_profiles/measured/[^/]*/" EXCLUDE)
  endif()
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program OPTIONAL)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

# What the program says of its own command line: the manual page and completions.
set(MOORAGE_TEXTS ${CMAKE_BINARY_DIR}/texts)
add_custom_command(OUTPUT ${MOORAGE_TEXTS}/moorage.1.gz
  COMMAND ${CMAKE_COMMAND} -E make_directory ${MOORAGE_TEXTS}
  COMMAND moorage man | gzip -9n > ${MOORAGE_TEXTS}/moorage.1.gz
  COMMAND moorage completion bash > ${MOORAGE_TEXTS}/moorage
  COMMAND moorage completion zsh > ${MOORAGE_TEXTS}/_moorage
  COMMAND moorage completion fish > ${MOORAGE_TEXTS}/moorage.fish
  BYPRODUCTS ${MOORAGE_TEXTS}/moorage ${MOORAGE_TEXTS}/_moorage ${MOORAGE_TEXTS}/moorage.fish
  DEPENDS moorage VERBATIM COMMENT "manual page and completions")
add_custom_target(texts ALL DEPENDS ${MOORAGE_TEXTS}/moorage.1.gz)
# Optional: a build of the program alone, as quickstart's, has none of them.
install(FILES ${MOORAGE_TEXTS}/moorage.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program
  OPTIONAL)
install(FILES ${MOORAGE_TEXTS}/moorage DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  COMPONENT program OPTIONAL)
# Debian's zsh looks into vendor-completions, others into site-functions.
install(FILES ${MOORAGE_TEXTS}/_moorage DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions
  COMPONENT program OPTIONAL)
install(FILES ${MOORAGE_TEXTS}/moorage.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program OPTIONAL)

# Packages: `cpack --config build/release/CPackConfig.cmake` writes moorage_*.deb and moorage-dev_*.deb.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME moorage)
set(CPACK_PACKAGE_CONTACT "moorage <moorage@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Mixture-of-Experts models whose experts do not fit")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program sdk)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME moorage)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
  "Runs and emulates Mixture-of-Experts models under exchangeable policies for moving their experts.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "moorage-dev, libucx0, python3")
set(CPACK_DEBIAN_SDK_PACKAGE_NAME moorage-dev)
set(CPACK_COMPONENT_SDK_DESCRIPTION "Headers and templates of policies for moorage, in C++, C and Rust.")
set(CPACK_DEBIAN_SDK_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_SDK_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_SDK_PACKAGE_RECOMMENDS "g++, pkg-config, moorage (= ${PROJECT_VERSION})")
include(CPack)
