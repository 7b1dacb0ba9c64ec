# sdk.cmake - tests of the SDK itself: headers, layout, package, bindings.
set(abi_sdk ${CMAKE_SOURCE_DIR}/sdk)
set(abi_work ${CMAKE_CURRENT_BINARY_DIR})

# The layout in C; layout_test compares what C++ sees.
add_executable(abi_layout layout.c)
target_link_libraries(abi_layout PRIVATE moorage::sdk)
add_test(NAME abi_layout_c COMMAND ${CMAKE_COMMAND} -DLAYOUT=$<TARGET_FILE:abi_layout>
  -DGOLDEN=${abi_sdk}/abi/layout_2_1.txt -DWORK=${abi_work}
  -P ${CMAKE_CURRENT_SOURCE_DIR}/layout.cmake)

# Every header alone, with each compiler that is here.
set(abi_compilers ${CMAKE_C_COMPILER}:${CMAKE_CXX_COMPILER})
find_program(abi_gcc gcc)
find_program(abi_gxx g++)
find_program(abi_clang clang)
find_program(abi_clangxx clang++)
if(abi_gcc AND abi_gxx AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND abi_compilers ${abi_gcc}:${abi_gxx})
endif()
if(abi_clang AND abi_clangxx AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND abi_compilers ${abi_clang}:${abi_clangxx})
endif()
add_test(NAME abi_headers COMMAND ${CMAKE_COMMAND} -DSDK=${abi_sdk} -DWORK=${abi_work}/headers
  "-DCOMPILERS=${abi_compilers}" -P ${CMAKE_CURRENT_SOURCE_DIR}/headers.cmake)

# What must not compile, and must say why.
foreach(source no_kind wrong_arguments)
  add_test(NAME abi_refuses_${source} COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only
    -I${abi_sdk}/include ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/${source}.cpp)
  set_tests_properties(abi_refuses_${source} PROPERTIES
    PASS_REGULAR_EXPRESSION "the class answers for no kind")
endforeach()

# Members that have the name of a call and do not fit it: one test per case of misfits.cpp.
set(abi_misfits ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/misfits.cpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${abi_misfits})
file(STRINGS ${abi_misfits} abi_cases REGEX "(refused|accepted)_[a-z_]+")
foreach(line IN LISTS abi_cases)
  string(REGEX MATCH "(refused|accepted)_[a-z_]+" case "${line}")
  string(REGEX REPLACE "^.*// " "" text "${line}")
  string(REGEX REPLACE "([][+.*()^$?|\\])" "\\\\\\1" text "${text}")
  if(TEST abi_${case})
    continue()
  endif()
  add_test(NAME abi_${case} COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only
    -Wall -Wextra -Werror -I${abi_sdk}/include -D${case} ${abi_misfits})
  if(case MATCHES "^refused")
    set_tests_properties(abi_${case} PROPERTIES PASS_REGULAR_EXPRESSION "error: [^\n]*${text}")
  endif()
endforeach()

# The first example of the wrapper is code: taken out of the comment, it compiles.
add_test(NAME abi_example COMMAND ${CMAKE_COMMAND} -DSDK=${abi_sdk} -DWORK=${abi_work}
  -DCXX=${CMAKE_CXX_COMPILER} -P ${CMAKE_CURRENT_SOURCE_DIR}/example.cmake)

# A third party's project, from an installed package and with the SDK as a subdirectory.
add_executable(abi_load load.c)
target_link_libraries(abi_load PRIVATE moorage::sdk ${CMAKE_DL_LIBS})
foreach(how package subdirectory)
  add_test(NAME abi_out_of_tree_${how} COMMAND ${CMAKE_COMMAND} -DHOW=${how} -DSDK=${abi_sdk}
    -DHERE=${CMAKE_CURRENT_SOURCE_DIR} -DWORK=${abi_work}/out_of_tree_${how}
    -DCC=${CMAKE_C_COMPILER} -DCXX=${CMAKE_CXX_COMPILER} "-DGENERATOR=${CMAKE_GENERATOR}" -DLOAD=$<TARGET_FILE:abi_load>
    -P ${CMAKE_CURRENT_SOURCE_DIR}/out_of_tree.cmake)
endforeach()

# The Rust bindings, where there is a Rust compiler that runs.
find_program(abi_rustc rustc)
if(abi_rustc)
  execute_process(COMMAND ${abi_rustc} --version RESULT_VARIABLE abi_rustc_code OUTPUT_QUIET ERROR_QUIET)
  if(NOT abi_rustc_code EQUAL 0)
    set(abi_rustc "")
  endif()
endif()
if(abi_rustc)
  add_test(NAME abi_layout_rust COMMAND ${CMAKE_COMMAND} -DRUSTC=${abi_rustc} -DSDK=${abi_sdk}
    -DHERE=${CMAKE_CURRENT_SOURCE_DIR} -DWORK=${abi_work}/rust -DLAYOUT=$<TARGET_FILE:abi_layout>
    -P ${CMAKE_CURRENT_SOURCE_DIR}/rust_layout.cmake)
else()
  add_test(NAME abi_layout_rust COMMAND ${CMAKE_COMMAND} -E echo "skipped: no rustc")
  set_tests_properties(abi_layout_rust PROPERTIES SKIP_REGULAR_EXPRESSION "skipped")
endif()

# A kind more, in a copy of the tree.
find_package(Python3 3.9 COMPONENTS Interpreter QUIET)
if(Python3_Interpreter_FOUND)
  add_test(NAME toy_kind COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/toy_kind --build ${CMAKE_BINARY_DIR}
    --c++ ${CMAKE_CXX_COMPILER} --rustc=${abi_rustc})
endif()

# Every template, as `plugins new` would write it and with the one-line command of its first lines;
# template_test loads what comes out.
set(abi_templates ${abi_work}/templates)
file(GLOB_RECURSE abi_sdk_files CONFIGURE_DEPENDS ${abi_sdk}/include/* ${abi_sdk}/rust/*)
foreach(KIND router cache budget prefetch dispatch transport placement wire)
  foreach(language cpp c rust)
    set(NAME ${language}_${KIND})
    set(library ${abi_templates}/${NAME}.so)
    if(language STREQUAL "cpp")
      set(source ${abi_templates}/${NAME}.cpp)
      set(command ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -fPIC -shared -fvisibility=hidden
        -Wall -Wextra -Wpedantic -Werror -I ${abi_sdk}/include
        -Wl,--version-script=${abi_sdk}/cmake/module.map ${source} -o ${library})
    elseif(language STREQUAL "c")
      set(source ${abi_templates}/${NAME}.c)
      set(command ${CMAKE_C_COMPILER} -std=c11 -O2 -fPIC -shared -fvisibility=hidden
        -Wall -Wextra -Wpedantic -Werror -I ${abi_sdk}/include ${source} -o ${library})
    elseif(abi_rustc)
      set(source ${abi_templates}/${NAME}.rs)
      set(command ${CMAKE_COMMAND} -E env MOORAGE_SDK=${abi_sdk} ${abi_rustc} --edition 2021 -O
        -D warnings --crate-type cdylib -C panic=unwind ${source} -o ${library})
    else()
      continue()
    endif()
    get_filename_component(extension ${source} EXT)
    configure_file(${abi_sdk}/template/${language}/${KIND}${extension}.in ${source} @ONLY)
    add_custom_command(OUTPUT ${library} COMMAND ${command} DEPENDS ${source} ${abi_sdk_files}
      VERBATIM COMMENT "template ${language}/${KIND}")
    list(APPEND abi_template_libraries ${library})
  endforeach()
endforeach()
add_custom_target(abi_templates ALL DEPENDS ${abi_template_libraries})
foreach(name template_test hostile_test)
  if(TARGET ${name})
    add_dependencies(${name} abi_templates)
  endif()
endforeach()
if(TARGET moorage)
  set(abi_check_limit)
  if(MOORAGE_SANITIZE)
    set(abi_check_limit --timeout 60)
  endif()
  foreach(library ${abi_template_libraries})
    get_filename_component(name ${library} NAME_WE)
    add_test(NAME abi_check_${name} COMMAND moorage plugins check ${library} ${abi_check_limit})
  endforeach()
endif()
