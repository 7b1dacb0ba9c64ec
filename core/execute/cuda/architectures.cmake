# architectures.cmake - which GPUs the kernels can be compiled for; of others this is told before a compiler is asked.
#
# Products use instructions of sm_80 (mma of bf16, cp.async, ldmatrix): for less nothing would be left of them.
function(moorage_check_cuda_architectures architectures)
  foreach(architecture IN LISTS architectures)
    if(architecture MATCHES "^all")
      message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES ${architecture}: it has GPUs below sm_80, which have not got the "
        "instructions that the kernels use; name those from 80 on, such as 80-real;90")
    elseif(architecture MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES ${architecture}: sm_${CMAKE_MATCH_1} has not got the instructions "
        "that the kernels use; name architectures from 80 on, or build without MOORAGE_CUDA")
    endif()
  endforeach()
endfunction()
