# nvcc, and CUDA as a language of this project.

# Into SNUG_NVCC: what CUDACXX or -DCMAKE_CUDA_COMPILER choose, or what lies in the folders given, on
# PATH or where a toolkit is installed.
function(snug_find_nvcc)
  if(CMAKE_CUDA_COMPILER)
    set(SNUG_NVCC ${CMAKE_CUDA_COMPILER} CACHE FILEPATH "CUDA compiler")
  elseif(DEFINED ENV{CUDACXX})
    set(SNUG_NVCC $ENV{CUDACXX} CACHE FILEPATH "CUDA compiler")
  endif()
  find_program(SNUG_NVCC nvcc HINTS ${ARGN} /usr/local/cuda/bin DOC "CUDA compiler")
endfunction()

# SNUG_NVCC compiles the .cu files of this folder and those below it, as C++20 that shared libraries may hold.
macro(snug_enable_cuda)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${SNUG_NVCC})
  endif()
  if(SNUG_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${SNUG_CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    # CMake before 3.25.2 does not know that this compiler speaks C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)
endmacro()
