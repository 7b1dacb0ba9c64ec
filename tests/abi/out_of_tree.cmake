# out_of_tree.cmake - builds the project out_of_tree/ against the SDK, loads the result (cmake -P).
#
# Needs HOW (package | subdirectory), SDK, HERE, WORK (an own folder), CXX, CC, GENERATOR, LOAD (load.c).
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(compilers -G ${GENERATOR} -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_BUILD_TYPE=Release)

function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${line}\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

if(HOW STREQUAL "package")
  run(${CMAKE_COMMAND} -S ${SDK} -B ${WORK}/sdk ${compilers})
  run(${CMAKE_COMMAND} --install ${WORK}/sdk --prefix ${WORK}/prefix)
  set(how -DCMAKE_PREFIX_PATH=${WORK}/prefix)
  # The installed tree has the shape of sdk/, so "SDK" in a command line may name either.
  foreach(file include/moorage/moorage.hpp include/moorage/cache.h template/cpp/cache.cpp.in
               template/c/cache.c.in template/rust/cache.rs.in rust/moorage.rs rust/abi.rs README.md
               abi/layout_2_1.txt cmake/module.map)
    if(NOT EXISTS ${WORK}/prefix/share/moorage/sdk/${file})
      message(FATAL_ERROR "${file} is not in the installed tree share/moorage/sdk")
    endif()
  endforeach()
else()
  set(how -DMOORAGE_SDK_SOURCE=${SDK})
endif()

run(${CMAKE_COMMAND} -S ${HERE}/out_of_tree -B ${WORK}/build ${how} ${compilers})
run(${CMAKE_COMMAND} --build ${WORK}/build)
if(HOW STREQUAL "package")
  run(${CMAKE_COMMAND} -S ${HERE}/out_of_tree -B ${WORK}/build-c -G ${GENERATOR} ${how}
    -DCMAKE_C_COMPILER=${CC}
    -DOUTSIDE_LANGUAGES=C)
  run(${CMAKE_COMMAND} --build ${WORK}/build-c)
endif()
run(${LOAD} ${WORK}/build/outside.so outside moorage.cache/1)
run(${LOAD} ${WORK}/build/outside_c.so)
run(${LOAD} ${WORK}/build/outside_placement.so outside_placement moorage.placement/1)
foreach(library outside outside_placement outside_c)
  run(nm -D --defined-only ${WORK}/build/${library}.so)
  string(REGEX MATCHALL "[^\n]+" symbols "${out}")
  list(LENGTH symbols count)
  if(NOT count EQUAL 1 OR NOT symbols MATCHES " moorage_module_v2$")
    message(FATAL_ERROR "${library}.so must export moorage_module_v2 only:\n${out}")
  endif()
endforeach()
