# rust_layout.cmake - compiles layout.rs and compares what it prints with what C prints (cmake -P).
#
# Needs RUSTC, SDK, HERE (this folder), WORK (an own folder), LAYOUT (the program of layout.c).
file(MAKE_DIRECTORY ${WORK})
file(READ ${HERE}/layout_list.h list)
# Stable part and draft part, without comments and directives; `type` is a word of Rust.
string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" list "${list}")
string(REGEX REPLACE "#(ifndef|endif)[^\n]*" "" list "${list}")
string(REPLACE "FIELD(type)" "FIELD(r#type)" list "${list}")
string(REPLACE "#else" "" list "${list}")
file(WRITE ${WORK}/list.rs "{ layout! {\n${list}\n} }\n")

set(ENV{MOORAGE_SDK} ${SDK})
set(ENV{LAYOUT_LIST} ${WORK}/list.rs)
execute_process(COMMAND ${RUSTC} --edition 2021 -D warnings ${HERE}/layout.rs -o ${WORK}/layout_rust
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/layout_rust OUTPUT_VARIABLE rust COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${LAYOUT} OUTPUT_VARIABLE stable COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${LAYOUT} draft OUTPUT_VARIABLE draft COMMAND_ERROR_IS_FATAL ANY)
if(NOT rust STREQUAL "${stable}${draft}")
  file(WRITE ${WORK}/rust.txt "${rust}")
  file(WRITE ${WORK}/c.txt "${stable}${draft}")
  execute_process(COMMAND diff -u ${WORK}/c.txt ${WORK}/rust.txt)
  message(FATAL_ERROR "sdk/rust/abi.rs differs from the C headers")
endif()
