# snug_add_library(exec SOURCES a.cpp b.cpp DEPS nn memory [TORCH] [LIBS third::party] [CUDA gpu])
# makes the static library snug_exec, alias snug::exec. DEPS are snug folders, and only lower ones. CUDA names
# a source of which there are two: gpu.cpp for programs with CUDA or a simulated GPU, gpu_stub.cpp for those
# without.
function(snug_add_library name)
  cmake_parse_arguments(ARG "TORCH" "CUDA" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(snug_${name} STATIC ${ARG_SOURCES})
  add_library(snug::${name} ALIAS snug_${name})
  target_include_directories(snug_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  list(TRANSFORM ARG_DEPS PREPEND snug::)
  target_link_libraries(snug_${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  if(ARG_TORCH)
    target_link_libraries(snug_${name} PUBLIC snug_torch)
    snug_precompile_torch(snug_${name})
  endif()
  if(ARG_CUDA)
    snug_switch_source(${name} ${ARG_CUDA} "${ARG_DEPS}")
  endif()
  snug_join_sources(snug_${name})
  snug_set_warnings(snug_${name})
endfunction()

# Compiles a target's sources a dozen at a time (CMake's unity build): most of what a source costs are the
# headers it shares with its neighbours, 30 minutes of processor time for the program without, 8 with. What
# unnamed namespaces hold must therefore have different names within a folder.
function(snug_join_sources target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SNUG_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  # g++ takes joined sources for headers, whose types must not hold those of an unnamed namespace.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# Each of the two is a library of its own, snug_exec_cuda and snug_exec_stub; the first once more as
# snug_exec_simulated, on core/simulated instead of CUDA. Which one goes with snug_exec is for the executable to
# say, by its property SNUG_ON_CUDA (ON, simulated or unset): so a tree that builds everything without CUDA can
# make programs with it as well and compile the rest once.
function(snug_switch_source name source dependencies)
  if(SNUG_WITH_CUDA)
    snug_add_variant(${name} cuda ${source}.cpp PRIVATE snug_${name} PUBLIC snug_torch_cuda)
    target_link_libraries(snug_${name} INTERFACE snug_${name}_cuda)
    return()
  endif()
  snug_add_variant(${name} stub ${source}_stub.cpp PRIVATE snug_torch ${dependencies})
  set(chosen snug_${name}_stub)
  if(SNUG_CUDA_LIBTORCH_DIR)
    snug_add_variant(${name} cuda ${source}.cpp PRIVATE snug_${name} PUBLIC snug_torch_cuda)
    set(chosen $<IF:$<STREQUAL:$<TARGET_PROPERTY:SNUG_ON_CUDA>,ON>,snug_${name}_cuda,${chosen}>)
  endif()
  if(SNUG_SIMULATED)
    snug_add_variant(${name} simulated ${source}.cpp PRIVATE snug_${name} PUBLIC snug_torch_simulated)
    set(chosen $<IF:$<STREQUAL:$<TARGET_PROPERTY:SNUG_ON_CUDA>,simulated>,snug_${name}_simulated,${chosen}>)
  endif()
  target_link_libraries(snug_${name} INTERFACE ${chosen})
endfunction()

function(snug_add_variant name variant source)
  set(target snug_${name}_${variant})
  add_library(${target} STATIC ${source})
  if(NOT variant STREQUAL stub)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    # fmt 9 leaves constexpr out beside CUDA's headers, but not consteval, which then does not compile.
    target_compile_definitions(${target} PRIVATE FMT_USE_CONSTEXPR=1)
  endif()
  target_link_libraries(${target} ${ARGN})
  snug_precompile_torch(${target})
  snug_set_warnings(${target})
endfunction()

# snug_add_twin(snug_cuda snug cuda ON): the program snug once more as build/cuda/snug, from the same objects,
# with what SNUG_ON_CUDA chooses.
function(snug_add_twin target program folder on_cuda)
  add_executable(${target} $<TARGET_OBJECTS:${program}>)
  get_target_property(libraries ${program} LINK_LIBRARIES)
  target_link_libraries(${target} PRIVATE ${libraries})
  set_target_properties(${target} PROPERTIES
    SNUG_ON_CUDA ${on_cuda} LINKER_LANGUAGE CXX OUTPUT_NAME ${program}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
endfunction()

# With CUDA, made when asked for, and only by a build that has no CUDA but knows where to find it.
function(snug_add_cuda_program target program)
  if(SNUG_WITH_CUDA OR NOT SNUG_CUDA_LIBTORCH_DIR)
    return()
  endif()
  snug_add_twin(${target} ${program} cuda ON)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON BUILD_RPATH "${cuda_rpath}")
endfunction()

# On the simulated GPU, as build/simulated/snug.
function(snug_add_simulated_program target program)
  if(SNUG_SIMULATED)
    snug_add_twin(${target} ${program} simulated simulated)
    target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,snug_simulated>)
    # What no library wants of it, but `snug doctor` looks for by name.
    target_link_options(${target} PRIVATE LINKER:--export-dynamic-symbol=cudaRuntimeGetVersion
                        LINKER:--export-dynamic-symbol=cudaDeviceGetPCIBusId LINKER:--export-dynamic-symbol=ncclGetVersion)
    set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH "$ORIGIN")
    add_dependencies(${target} snug_simulated_driver)
  endif()
endfunction()

# The seconds that tests may take: with sanitizers, which make them several times slower, as much more.
function(snug_limit_tests seconds)
  if(SNUG_SANITIZE)
    math(EXPR seconds "6 * ${seconds}")
  endif()
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${seconds})
endfunction()

# snug_add_test(tokenizer SOURCES x_test.cpp DEPS tokenizer [TORCH] [LABELS unit])
# SOURCES_ALONE: those whose unnamed namespaces hold names (Case, kShapes) that others of the program have too.
function(snug_add_test name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;SOURCES_ALONE;DEPS;LIBS;LABELS" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES} ${ARG_SOURCES_ALONE})
  set_source_files_properties(${ARG_SOURCES_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  list(TRANSFORM ARG_DEPS PREPEND snug::)
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPS} ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name}_test PRIVATE SNUG_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             SNUG_BINARY="${CMAKE_BINARY_DIR}/snug")
  if(ARG_TORCH)
    target_link_libraries(${name}_test PRIVATE snug_torch)
    snug_precompile_torch(${name}_test)
  endif()
  snug_set_warnings(${name}_test)
  snug_join_sources(${name}_test)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" PROCESSORS 2)
  snug_limit_tests(900 ${name})
endfunction()

# Tests that have one thread, and so leave a core to another; the others have two (scripts/test).
function(snug_use_one_thread)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT OMP_NUM_THREADS=1)
  endforeach()
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 1)
endfunction()

# The same test program once more with its tensors on a GPU, on a simulated one where there can be none, else
# skipped. For programs that take their device from tests/support/test_device.h. SIMULATED: what of it runs on a
# simulated GPU (of gtest's filter), which is slow; its samples are the least.
function(snug_add_cuda_run name)
  cmake_parse_arguments(ARG "" "SIMULATED" "" ${ARGN})
  snug_add_cuda_program(${name}_cuda_test ${name}_test)
  snug_add_simulated_program(${name}_simulated_test ${name}_test)
  set(command ${name}_test)
  set(environment SNUG_TEST_DEVICE=cuda)
  if(SNUG_SIMULATED)
    set(command ${name}_simulated_test)
    list(APPEND environment SNUG_TEST_SAMPLE=1)
    if(ARG_SIMULATED)
      list(APPEND command --gtest_filter=${ARG_SIMULATED})
    endif()
  endif()
  add_test(NAME ${name}_cuda COMMAND ${command})
  set_tests_properties(${name}_cuda PROPERTIES LABELS cuda TIMEOUT 1500 ENVIRONMENT "${environment}"
                       SKIP_REGULAR_EXPRESSION "no CUDA device" PROCESSORS 2)
  if(SNUG_SIMULATED)
    snug_use_one_thread(${name}_cuda)
  endif()
endfunction()

function(snug_set_warnings target)
  # A designated initializer says what it sets; the rest is default by intent.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
    $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SNUG_WERROR}>>:-Werror>)
  if(SNUG_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SNUG_SANITIZE}>
      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
      # With them g++ 12 takes what std::regex sets for unset.
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
    if(SNUG_SANITIZE STREQUAL "thread")
      # Fences, which it cannot follow: they order what processes share (core/dist/status_page.cpp), and it sees one.
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${SNUG_SANITIZE})
  endif()
endfunction()

# One precompiled libtorch header for all targets. It holds tensors and how to make them, not all of ATen or
# autograd: whatever it has is instantiated again by every source, 3 s for the whole of ATen, 1 s for this.
function(snug_precompile_torch target)
  if(NOT TARGET snug_torch_pch)
    file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cpp "")
    add_library(snug_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
    target_link_libraries(snug_torch_pch PUBLIC snug_torch)
    target_compile_options(snug_torch_pch PRIVATE -Wall -Wextra $<$<BOOL:${SNUG_WERROR}>:-Werror>)
    if(SNUG_SANITIZE)
      target_compile_options(snug_torch_pch PRIVATE -fsanitize=${SNUG_SANITIZE} -fno-omit-frame-pointer)
    endif()
    target_precompile_headers(snug_torch_pch PRIVATE <ATen/core/Tensor.h> <ATen/ops/empty.h>
                              <string> <vector> <memory> <functional>)
  endif()
  target_precompile_headers(${target} REUSE_FROM snug_torch_pch)
endfunction()
