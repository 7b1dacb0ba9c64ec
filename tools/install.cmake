# install.cmake - what `cmake --install` puts where; the SDK's own part is in sdk/CMakeLists.txt.
#
#   bin/moorage   lib/moorage/plugins/<kind>/*.so   share/moorage/{configs,hw_profiles,sdk}
#   include/moorage   lib/cmake/moorage-sdk
include(GNUInstallDirs)

install(TARGETS moorage RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
# Not LIBDIR: the program looks for lib/moorage/plugins beside its own folder, on every distribution.
install(DIRECTORY ${CMAKE_BINARY_DIR}/plugins/ DESTINATION lib/moorage/plugins COMPONENT program
  FILES_MATCHING PATTERN "*.so" PATTERN CMakeFiles EXCLUDE)
foreach(folder configs hw_profiles)
  if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${folder})
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/moorage
      COMPONENT program)
  endif()
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program OPTIONAL)
