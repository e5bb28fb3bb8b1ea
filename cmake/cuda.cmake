# libtorch's CUDA half and the CUDA compiler. Included only where SNUG_WITH_CUDA is on; a folder adds
# its .cu files or its stub by that variable. The toolkit inside the wheels is of the version libtorch
# was made with, so it goes first; where only the torch wheel itself is unpacked, an installed toolkit
# does for building (running wants the libraries of scripts/wheels/torch-cuda.txt). CUDACXX or
# -DCMAKE_CUDA_COMPILER choose another compiler.
include(cuda_compiler)
set(wheel_cuda ${SNUG_LIBTORCH_DIR}/nvidia/cu13)
if(NOT EXISTS ${torch_root}/lib/libtorch_cuda.so)
  message(FATAL_ERROR "SNUG_CUDA is on, but ${torch_root}/lib has no libtorch_cuda.so; "
                      "run scripts/build --cuda, which fetches it")
endif()
snug_find_nvcc(${wheel_cuda}/bin)
if(NOT SNUG_NVCC)
  message(FATAL_ERROR "SNUG_CUDA is on, but there is no nvcc in ${wheel_cuda}/bin, on PATH or in "
                      "/usr/local/cuda/bin; run scripts/build --cuda, which fetches it")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # What libtorch's own kernels are made for, Turing to Blackwell, and for what comes later the last
  # one's PTX. CUDA 13 has dropped Volta (70).
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 100-real 120)
endif()
snug_enable_cuda()

set(cuda_root ${wheel_cuda})
if(NOT EXISTS ${wheel_cuda}/lib/libcudart.so.13)
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH nvcc_folder)
  cmake_path(GET nvcc_folder PARENT_PATH cuda_root)
  message(STATUS "snug: CUDA libraries of ${cuda_root}; the program runs where libtorch's are installed")
endif()
find_file(SNUG_CUDART libcudart.so.13 PATHS ${cuda_root}/lib ${cuda_root}/lib64 NO_DEFAULT_PATH REQUIRED)

foreach(library torch_cuda c10_cuda)
  add_library(${library} SHARED IMPORTED)
  set_target_properties(${library} PROPERTIES IMPORTED_LOCATION ${torch_root}/lib/lib${library}.so)
endforeach()
add_library(cudart SHARED IMPORTED)
set_target_properties(cudart PROPERTIES IMPORTED_LOCATION ${SNUG_CUDART})
target_include_directories(cudart SYSTEM INTERFACE ${cuda_root}/include)
# torch_cuda registers its operators when it is loaded; hardly a symbol of it is named by our code. What
# it needs in turn (cuBLAS, cuDNN, NCCL …) is looked for when the program starts, not here.
target_link_libraries(snug_torch INTERFACE -Wl,--no-as-needed torch_cuda c10_cuda -Wl,--as-needed cudart)
target_link_options(snug_torch INTERFACE -Wl,--allow-shlib-undefined)

file(GLOB wheel_libs ${SNUG_LIBTORCH_DIR}/nvidia/*/lib)
list(APPEND torch_rpath ${wheel_libs})
list(TRANSFORM wheel_libs PREPEND -Wl,-rpath-link,)
target_link_options(snug_torch INTERFACE ${wheel_libs})
