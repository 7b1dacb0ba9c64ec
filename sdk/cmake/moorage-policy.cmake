# moorage_add_policy(name source...): one policy library NAME.so that exports moorage_module_v1 only.
function(moorage_add_policy name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE moorage::sdk)
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_options(${name} PRIVATE
    -Wl,--version-script=${MOORAGE_SDK_CMAKE_DIR}/module.map)
endfunction()
if(NOT DEFINED MOORAGE_SDK_CMAKE_DIR)
  set(MOORAGE_SDK_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})
endif()
set(MOORAGE_SDK_CMAKE_DIR ${MOORAGE_SDK_CMAKE_DIR} CACHE INTERNAL "")
