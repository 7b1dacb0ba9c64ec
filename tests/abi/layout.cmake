# layout.cmake - compares what the program of layout.c prints with the golden file (cmake -P).
#
# Needs LAYOUT (the program), GOLDEN, WORK. To freeze a new minor: LAYOUT > sdk/abi/layout_2_N.txt.
execute_process(COMMAND ${LAYOUT} OUTPUT_FILE ${WORK}/layout_c.txt COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND diff -u ${GOLDEN} ${WORK}/layout_c.txt RESULT_VARIABLE differ)
if(NOT differ EQUAL 0)
  message(FATAL_ERROR "the C layout is not the one of ${GOLDEN}")
endif()
