# Every third-party library, in one place. Why each one: docs/decisions/0002-dependencies.md.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CURL REQUIRED)
# libcrypto is there already, as what libcurl's HTTPS stands on; its SHA-256 uses the CPU's own instructions.
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(OpenMP REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
# Checksums; inlined from its header, so there is nothing to link.
find_path(SNUG_XXHASH_DIR xxhash.h REQUIRED)
# Pictures.
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
pkg_check_modules(webp REQUIRED IMPORTED_TARGET libwebp libwebpdemux)
# Its C interface alone: the C++ one is gone from newer releases.
pkg_check_modules(mpi REQUIRED IMPORTED_TARGET ompi-c)
find_package(ICU REQUIRED COMPONENTS uc i18n)
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

# libtorch: the C++ half of the PyPI wheel. On a machine without CUDA only torch_cpu and c10 are linked.
# Without SNUG_LIBTORCH_DIR it is looked for where scripts/setup puts it. SNUG_CUDA=auto means: on where
# this machine shows a GPU and libtorch's CUDA half has been fetched.
find_program(SNUG_NVIDIA_SMI nvidia-smi)
set(SNUG_SEES_GPU OFF)
if(EXISTS /dev/nvidia0)
  set(SNUG_SEES_GPU ON)
elseif(SNUG_NVIDIA_SMI)
  execute_process(COMMAND ${SNUG_NVIDIA_SMI} -L OUTPUT_VARIABLE gpus ERROR_QUIET)
  if(gpus MATCHES "^GPU ")
    set(SNUG_SEES_GPU ON)
  endif()
endif()
set(torch_version 2.11.0)
if(NOT SNUG_LIBTORCH_DIR)
  cmake_path(SET cache_dir "$ENV{HOME}/.cache/snug")
  if(DEFINED ENV{SNUG_CACHE})
    set(cache_dir "$ENV{SNUG_CACHE}")
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(cache_dir "$ENV{XDG_CACHE_HOME}/snug")
  endif()
  set(cuda_suffix "")
  if(SNUG_CUDA STREQUAL "on" OR (SNUG_CUDA STREQUAL "auto" AND SNUG_SEES_GPU AND
                                 EXISTS ${cache_dir}/torch-${torch_version}-cuda/.complete))
    set(cuda_suffix -cuda)
  endif()
  set(SNUG_LIBTORCH_DIR ${cache_dir}/torch-${torch_version}${cuda_suffix})
endif()
if(NOT EXISTS ${SNUG_LIBTORCH_DIR}/torch/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no libtorch in ${SNUG_LIBTORCH_DIR}; run scripts/setup, which fetches it")
endif()
set(torch_root ${SNUG_LIBTORCH_DIR}/torch)
set(torch_rpath ${torch_root}/lib ${SNUG_LIBTORCH_DIR}/nvidia/cu13/lib)
add_library(torch_cpu SHARED IMPORTED)
set_target_properties(torch_cpu PROPERTIES IMPORTED_LOCATION ${torch_root}/lib/libtorch_cpu.so)
target_include_directories(torch_cpu SYSTEM INTERFACE ${torch_root}/include
                                                      ${torch_root}/include/torch/csrc/api/include)
add_library(torch_c10 SHARED IMPORTED)
set_target_properties(torch_c10 PROPERTIES IMPORTED_LOCATION ${torch_root}/lib/libc10.so)
add_library(snug_torch INTERFACE)
# Operators by their own headers (ATen/ops/...), so that a source pays for those it names.
target_compile_definitions(snug_torch INTERFACE AT_PER_OPERATOR_HEADERS)
# The wheel carries fmt's headers of another version without its library. A folder in front of the wheel's
# that holds nothing but a link to the system's fmt keeps one version in the whole program.
find_path(fmt_include_dir fmt/format.h NO_CMAKE_PATH REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/system_fmt)
file(CREATE_LINK ${fmt_include_dir}/fmt ${CMAKE_BINARY_DIR}/system_fmt/fmt SYMBOLIC)
target_include_directories(snug_torch SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/system_fmt)
# The wheel's own libgomp, so that libtorch and our kernels share one OpenMP thread pool.
target_link_libraries(snug_torch INTERFACE torch_cpu torch_c10 OpenMP::OpenMP_CXX)
target_link_options(snug_torch INTERFACE
  -Wl,-rpath-link,${torch_root}/lib -Wl,-rpath-link,${SNUG_LIBTORCH_DIR}/nvidia/cu13/lib)

set(SNUG_WITH_CUDA OFF)
if(SNUG_CUDA STREQUAL "on" OR (SNUG_CUDA STREQUAL "auto" AND SNUG_SEES_GPU AND
                               EXISTS ${torch_root}/lib/libtorch_cuda.so))
  set(SNUG_WITH_CUDA ON)
  set(SNUG_CUDA_LIBTORCH_DIR ${SNUG_LIBTORCH_DIR})
elseif(SNUG_SANITIZE)
  set(SNUG_CUDA_LIBTORCH_DIR "")
endif()
if(SNUG_CUDA_LIBTORCH_DIR)
  include(cuda)
endif()
# The simulated GPU for tests (core/simulated) stands on libtorch's own allocator and streams for CUDA.
set(SNUG_SIMULATED OFF)
find_library(SNUG_C10_CUDA c10_cuda PATHS ${torch_root}/lib ${SNUG_CUDA_LIBTORCH_DIR}/torch/lib NO_DEFAULT_PATH)
find_path(SNUG_CUDA_CRT crt/host_config.h
          PATHS ${SNUG_LIBTORCH_DIR}/../cuda-headers-13.0.88/nvidia/cu13/include NO_DEFAULT_PATH)
if(SNUG_TESTS AND SNUG_C10_CUDA AND SNUG_CUDA_CRT AND NOT SNUG_WITH_CUDA AND NOT SNUG_SANITIZE AND
   EXISTS ${SNUG_LIBTORCH_DIR}/nvidia/cu13/include/cuda_runtime_api.h)
  set(SNUG_SIMULATED ON)
  add_library(torch_c10_cuda SHARED IMPORTED)
  set_target_properties(torch_c10_cuda PROPERTIES IMPORTED_LOCATION ${SNUG_C10_CUDA})
  cmake_path(GET SNUG_C10_CUDA PARENT_PATH c10_cuda_folder)
  list(APPEND torch_rpath ${c10_cuda_folder})
endif()
if(SNUG_WITH_CUDA)
  list(APPEND torch_rpath ${cuda_rpath})
endif()
list(REMOVE_DUPLICATES torch_rpath)
message(STATUS "snug: libtorch ${SNUG_LIBTORCH_DIR}, CUDA ${SNUG_WITH_CUDA}, simulated GPU ${SNUG_SIMULATED}")

set(CMAKE_BUILD_RPATH ${torch_rpath})
set(CMAKE_INSTALL_RPATH ${torch_rpath})

if(SNUG_TESTS)
  find_package(GTest REQUIRED)
endif()
