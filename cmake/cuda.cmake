# libtorch's CUDA half and the CUDA compiler. Included only where SNUG_WITH_CUDA is on; a folder adds
# its .cu files or its stub by that variable. The compiler in the wheels is of the version libtorch
# was made with, so it goes first; CUDACXX or -DCMAKE_CUDA_COMPILER choose another.
set(wheel_cuda ${SNUG_LIBTORCH_DIR}/nvidia/cu13)
if(NOT EXISTS ${torch_root}/lib/libtorch_cuda.so OR NOT EXISTS ${wheel_cuda}/lib/libcublas.so.13)
  message(FATAL_ERROR "SNUG_CUDA is on, but ${SNUG_LIBTORCH_DIR} has no CUDA libraries; "
                      "run scripts/build --cuda, which fetches them")
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS ${wheel_cuda}/bin/nvcc)
  set(CMAKE_CUDA_COMPILER ${wheel_cuda}/bin/nvcc)
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # Ampere to Blackwell, and for what comes later the last one's PTX.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90-real 100-real 120)
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # CMake before 3.25.2 does not know that this compiler speaks C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)

foreach(library torch_cuda c10_cuda)
  add_library(${library} SHARED IMPORTED)
  set_target_properties(${library} PROPERTIES IMPORTED_LOCATION ${torch_root}/lib/lib${library}.so)
endforeach()
add_library(cudart SHARED IMPORTED)
set_target_properties(cudart PROPERTIES IMPORTED_LOCATION ${wheel_cuda}/lib/libcudart.so.13)
target_include_directories(cudart SYSTEM INTERFACE ${wheel_cuda}/include)
# torch_cuda registers its operators when it is loaded; no symbol of it is named by our code.
target_link_libraries(snug_torch INTERFACE -Wl,--no-as-needed torch_cuda c10_cuda -Wl,--as-needed cudart)

file(GLOB wheel_libs ${SNUG_LIBTORCH_DIR}/nvidia/*/lib)
list(APPEND torch_rpath ${wheel_libs})
list(TRANSFORM wheel_libs PREPEND -Wl,-rpath-link,)
target_link_options(snug_torch INTERFACE ${wheel_libs})
