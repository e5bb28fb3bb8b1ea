# libtorch's CUDA half and the CUDA compiler, from SNUG_CUDA_LIBTORCH_DIR; included only where that is known.
# With SNUG_WITH_CUDA everything built here is on CUDA. Without it the programs that snug_add_cuda_program names
# can be built once more with CUDA, which takes no GPU: nothing but the sources that snug_switch_source names
# and the kernels is compiled for it.
#
# The toolkit inside the wheels is of the version libtorch was made with, so it goes first; where only the
# torch wheel itself is unpacked, an installed toolkit does for building (running wants the libraries of
# scripts/wheels/torch-cuda.txt). CUDACXX or -DCMAKE_CUDA_COMPILER choose another compiler.
set(wheel_cuda ${SNUG_CUDA_LIBTORCH_DIR}/nvidia/cu13)
set(cuda_torch_lib ${SNUG_CUDA_LIBTORCH_DIR}/torch/lib)
if(NOT EXISTS ${cuda_torch_lib}/libtorch_cuda.so)
  message(FATAL_ERROR "${cuda_torch_lib} has no libtorch_cuda.so; run scripts/build --cuda, which fetches it")
endif()
if(CMAKE_CUDA_COMPILER)
  set(SNUG_NVCC ${CMAKE_CUDA_COMPILER} CACHE FILEPATH "CUDA compiler")
elseif(DEFINED ENV{CUDACXX})
  set(SNUG_NVCC $ENV{CUDACXX} CACHE FILEPATH "CUDA compiler")
endif()
find_program(SNUG_NVCC nvcc HINTS ${wheel_cuda}/bin /usr/local/cuda/bin DOC "CUDA compiler")
if(NOT SNUG_NVCC)
  message(FATAL_ERROR "there is no nvcc in ${wheel_cuda}/bin, on PATH or in /usr/local/cuda/bin; "
                      "run scripts/build --cuda, which fetches it")
endif()

if(NOT SNUG_WITH_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${SNUG_CUDA_CHECK_ARCHITECTURES})
elseif(NOT CMAKE_CUDA_ARCHITECTURES)
  # What libtorch's own kernels are made for, Turing to Blackwell, and for what comes later the last
  # one's PTX. CUDA 13 has dropped Volta (70).
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 100-real 120)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${SNUG_NVCC})
endif()
if(SNUG_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${SNUG_CCACHE})
endif()
# The wheels' nvcc looks for its libraries in lib64, where an installed toolkit has them. CMake links a program
# to see whether the compiler works.
cmake_path(IS_PREFIX wheel_cuda ${CMAKE_CUDA_COMPILER} from_wheel)
if(from_wheel)
  string(APPEND CMAKE_CUDA_FLAGS " -L${wheel_cuda}/lib")
endif()
# libtorch's own shared one, not a second inside the program.
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # CMake before 3.25.2 does not know that this compiler speaks C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)

set(cuda_root ${wheel_cuda})
if(NOT EXISTS ${wheel_cuda}/lib/libcudart.so.13)
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH nvcc_folder)
  cmake_path(GET nvcc_folder PARENT_PATH cuda_root)
  message(STATUS "snug: CUDA libraries of ${cuda_root}; the program runs where libtorch's are installed")
endif()
find_file(SNUG_CUDART libcudart.so.13 PATHS ${cuda_root}/lib ${cuda_root}/lib64 NO_DEFAULT_PATH REQUIRED)
# NCCL's header comes with its wheel or with an installed toolkit; the library is libtorch's.
find_path(SNUG_NCCL_INCLUDE nccl.h HINTS ${SNUG_CUDA_LIBTORCH_DIR}/nvidia/nccl/include ${cuda_root}/include
          ${cuda_root}/targets/x86_64-linux/include REQUIRED)

foreach(library torch_cuda c10_cuda)
  add_library(${library} SHARED IMPORTED)
  set_target_properties(${library} PROPERTIES IMPORTED_LOCATION ${cuda_torch_lib}/lib${library}.so)
endforeach()
add_library(cudart SHARED IMPORTED)
set_target_properties(cudart PROPERTIES IMPORTED_LOCATION ${SNUG_CUDART})
target_include_directories(cudart SYSTEM INTERFACE ${cuda_root}/include)
# torch_cuda registers its operators when it is loaded; hardly a symbol of it is named by our code. What
# it needs in turn (cuBLAS, cuDNN, NCCL …) is looked for when the program starts, not here.
add_library(snug_torch_cuda INTERFACE)
target_link_libraries(snug_torch_cuda INTERFACE
  snug_torch -Wl,--no-as-needed torch_cuda c10_cuda -Wl,--as-needed cudart)
target_include_directories(snug_torch_cuda SYSTEM INTERFACE ${SNUG_NCCL_INCLUDE})
target_link_options(snug_torch_cuda INTERFACE -Wl,--allow-shlib-undefined)

file(GLOB wheel_libs ${SNUG_CUDA_LIBTORCH_DIR}/nvidia/*/lib)
set(cuda_rpath ${cuda_torch_lib} ${wheel_libs})
list(TRANSFORM wheel_libs PREPEND -Wl,-rpath-link,)
target_link_options(snug_torch_cuda INTERFACE ${wheel_libs})
