# moorage_add_policy(name source...): one policy library name.so, C or C++, that exports moorage_module_v2 only.
function(moorage_add_policy name)
  set(map ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/module.map)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE moorage::sdk)
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so"
    C_STANDARD 11 CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # Equal decisions on every machine: a * b + c is never contracted into one rounding.
  target_compile_options(${name} PRIVATE -ffp-contract=off)
  target_link_options(${name} PRIVATE -Wl,--version-script=${map})
  set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${map})
endfunction()
