# Compiles the example in the first comment of policy.hpp.
#
#   cmake -DSDK=... -DWORK=... -DCXX=... -P example.cmake
file(STRINGS ${SDK}/include/moorage/policy.hpp lines)
set(code "")
foreach(line IN LISTS lines)
  if(line MATCHES "^//    ?(.*)$")
    string(APPEND code "${CMAKE_MATCH_1}\n")
  elseif(NOT line MATCHES "^//")
    break()
  endif()
endforeach()
foreach(part "#include <moorage/moorage.hpp>" "class mine" "MOORAGE_POLICIES")
  string(FIND "${code}" "${part}" at)
  if(at LESS 0)
    message(FATAL_ERROR "the example in policy.hpp has no ${part}:\n${code}")
  endif()
endforeach()
file(WRITE ${WORK}/example.cpp "${code}")
execute_process(COMMAND ${CXX} -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror
  -I${SDK}/include ${WORK}/example.cpp RESULT_VARIABLE code_of_compiler)
if(NOT code_of_compiler EQUAL 0)
  message(FATAL_ERROR "the example in policy.hpp does not compile; clang-format may have wrapped it")
endif()
