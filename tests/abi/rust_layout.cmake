# rust_layout.cmake - compiles layout.rs and compares what it prints with what C prints (cmake -P).
#
# Needs RUSTC, SDK, HERE (this folder), WORK (an own folder), LAYOUT (the program of layout.c).
file(MAKE_DIRECTORY ${WORK})
file(READ ${HERE}/layout_list.h list)
# Without comments; `type` is a word of Rust.
string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" list "${list}")
string(REPLACE "FIELD(type)" "FIELD(r#type)" list "${list}")
file(WRITE ${WORK}/list.rs "{ layout! {\n${list}\n} }\n")

set(ENV{MOORAGE_SDK} ${SDK})
set(ENV{LAYOUT_LIST} ${WORK}/list.rs)
execute_process(COMMAND ${RUSTC} --edition 2021 -D warnings ${HERE}/layout.rs -o ${WORK}/layout_rust
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/layout_rust OUTPUT_VARIABLE rust COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${LAYOUT} OUTPUT_VARIABLE c COMMAND_ERROR_IS_FATAL ANY)
if(NOT rust STREQUAL c)
  file(WRITE ${WORK}/rust.txt "${rust}")
  file(WRITE ${WORK}/c.txt "${c}")
  execute_process(COMMAND diff -u ${WORK}/c.txt ${WORK}/rust.txt)
  message(FATAL_ERROR "sdk/rust/abi.rs differs from the C headers")
endif()
