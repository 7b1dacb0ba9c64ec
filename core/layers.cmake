# layers.cmake - the libraries of core and tools: one for each folder, with the layers that it uses.
# What a run does once, and what waits for a network: not worth optimising where everything is checked.
set(unhurried)
if(MOORAGE_SANITIZE MATCHES address)
  set(unhurried OPTIONS ${MOORAGE_UNOPTIMISED})
endif()

# moorage_layer(folder of this directory USES layers... [PUBLIC|PRIVATE libraries of others...] [OPTIONS of its code...]
#   [APART expression for the files that are units of their own])
function(moorage_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "APART" "USES;PUBLIC;PRIVATE;OPTIONS")
  list(TRANSFORM layer_USES PREPEND moorage-)
  foreach(used ${layer_USES})
    if(NOT TARGET ${used})
      message(FATAL_ERROR "${name} uses ${used}, which does not come before it")
    endif()
  endforeach()
  file(GLOB layer_sources CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.cpp)
  list(FILTER layer_sources EXCLUDE REGEX "/module/")
  moorage_take_faults(layer_sources)
  add_library(moorage-${name} STATIC ${layer_sources})
  target_include_directories(moorage-${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(moorage-${name} PUBLIC ${layer_USES} ${layer_PUBLIC} PRIVATE ${layer_PRIVATE})
  target_compile_options(moorage-${name} PRIVATE ${layer_OPTIONS})
  moorage_one_unit(moorage-${name})
  if(layer_APART)
    set(layer_apart ${layer_sources})
    list(FILTER layer_apart INCLUDE REGEX "${layer_APART}")
    set_source_files_properties(${layer_apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  # An archive needs no other archive: layers are compiled and packed side by side.
  set_target_properties(moorage-${name} PROPERTIES OPTIMIZE_DEPENDENCIES ON)
  target_link_libraries(moorage-core INTERFACE moorage-${name})
  set_property(GLOBAL APPEND PROPERTY MOORAGE_LAYERS moorage-${name})
endfunction()

# moorage_program_part(folder/name SOURCES... PRIVATE libraries of others... OPTIONS of its code...): a
# library plugins/folder/name.so that is opened on demand (core/host/program_part.h).
function(moorage_program_part name)
  cmake_parse_arguments(PARSE_ARGV 1 part "" "" "SOURCES;PRIVATE;OPTIONS")
  string(REPLACE "/" "-" target moorage-part-${name})
  get_filename_component(folder ${name} DIRECTORY)
  get_filename_component(file ${name} NAME)
  list(TRANSFORM part_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/)
  moorage_take_faults(part_SOURCES)
  add_library(${target} MODULE ${part_SOURCES})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE moorage::sdk fmt::fmt nlohmann_json::nlohmann_json ${part_PRIVATE})
  target_compile_options(${target} PRIVATE ${part_OPTIONS})
  target_compile_definitions(${target} PRIVATE MOORAGE_BUILD_VERSION="${PROJECT_VERSION}")
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX .so
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins/${folder})
  if(NOT MOORAGE_SANITIZE)  # whose runtime is the program's
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  moorage_one_unit(${target})
  add_dependencies(plugins ${target})
endfunction()
