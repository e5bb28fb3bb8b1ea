# What a person may choose when configuring. `auto` means: on where the machine has it.
option(SNUG_TESTS "Build the tests" ON)
option(SNUG_BENCH "Build the benchmarks" OFF)
option(SNUG_UNITY "Compile several sources of a folder as one: a build from nothing is quick, a change costs more" ON)
# The environment has a say, so that scripts/demo can be tested with it too.
option(SNUG_WERROR "Warnings are errors" $ENV{SNUG_WERROR})
set(SNUG_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined or thread")
set(SNUG_FUZZ "" CACHE FILEPATH "libFuzzer's archive: the fuzzers are libFuzzers, and all is compiled for them")
set(SNUG_CUDA auto CACHE STRING "CUDA support: auto, on, off")
set(SNUG_LIBTORCH_DIR "" CACHE PATH "Folder that holds torch/ (and nvidia/) as unpacked from the wheels")
set(SNUG_CUDA_LIBTORCH_DIR "" CACHE PATH
    "For a build without CUDA: such a folder with the CUDA half, from which build/cuda/snug can be made too")
set(SNUG_CUDA_CHECK_ARCHITECTURES 80-real 90-real 120-real CACHE STRING "GPUs that build/cuda/snug is for")

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION} is too old for the C++20 used here; "
                      "install g++ 12 or newer and choose it: CXX=g++-12 scripts/build")
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(SNUG_FUZZ)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize-coverage=trace-pc,trace-cmp>)
endif()
# One flag for programs and libraries alike, or they could not share the precompiled header.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
# fmt 9 leaves constexpr out beside CUDA's headers, but not consteval, which then does not compile.
add_compile_definitions(FMT_USE_CONSTEXPR=1)

find_program(SNUG_CCACHE ccache)
if(SNUG_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SNUG_CCACHE})
  # With a precompiled header ccache hits only under CCACHE_SLOPPINESS=pch_defines,time_macros, which
  # has to be set while building: scripts/build and the presets do so.
endif()
