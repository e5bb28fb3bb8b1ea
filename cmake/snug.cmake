# snug_add_library(exec SOURCES a.cpp b.cpp DEPS nn memory [TORCH | BARE] [LIBS third::party] [CUDA gpu])
# makes the static library snug_exec, alias snug::exec. DEPS are snug folders, and only lower ones. CUDA names
# a source of which there are two: gpu.cpp for programs with CUDA or a simulated GPU, gpu_stub.cpp for those
# without.
function(snug_add_library name)
  cmake_parse_arguments(ARG "TORCH;BARE" "CUDA" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(snug_${name} STATIC ${ARG_SOURCES})
  add_library(snug::${name} ALIAS snug_${name})
  target_include_directories(snug_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  list(TRANSFORM ARG_DEPS PREPEND snug::)
  target_link_libraries(snug_${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  if(ARG_TORCH)
    target_link_libraries(snug_${name} PUBLIC snug_torch)
    snug_precompile_torch(snug_${name})
  elseif(NOT ARG_BARE)
    snug_precompile_plain(snug_${name})
  endif()
  if(ARG_CUDA)
    snug_switch_source(${name} ${ARG_CUDA} "${ARG_DEPS}")
  endif()
  snug_join_sources(snug_${name})
  snug_set_warnings(snug_${name})
  set_property(GLOBAL APPEND PROPERTY SNUG_ROOMS snug_${name})
endfunction()

# snug_add_shared(snug_shared lib OFF): the whole of every room as build/lib/libsnug.so, with what SNUG_ON_CUDA chooses.
# All rooms but the kernels of GPUs, which come with the variant that calls them.
function(snug_add_shared target folder on_cuda)
  get_property(rooms GLOBAL PROPERTY SNUG_ROOMS)
  list(REMOVE_ITEM rooms snug_kernels_cuda snug_kernels_simulated)
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE archives)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/nothing.cpp CONTENT "")
  add_library(${target} SHARED ${CMAKE_BINARY_DIR}/nothing.cpp)
  # The whole of each archive, since nobody knows what a user will call; then once more for what they need from others.
  target_link_libraries(${target} PRIVATE -Wl,--whole-archive ${archives} -Wl,--no-whole-archive ${rooms} snug_torch)
  add_dependencies(${target} ${rooms})
  # Calls within the library stay in it, also where a program has compiled the same inline function otherwise.
  target_link_options(${target} PRIVATE LINKER:-Bsymbolic-functions)
  set_target_properties(${target} PROPERTIES
    SNUG_ON_CUDA ${on_cuda} OUTPUT_NAME snug LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION 0
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
  # What programs that link to it see: headers, and libraries that their own code calls.
  target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} INTERFACE snug_torch fmt::fmt nlohmann_json::nlohmann_json)
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
  snug_add_variant(${name} stub ${source}_stub.cpp PRIVATE snug_${name} snug_torch ${dependencies})
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

# The program on the simulated GPU, as build/simulated/snug.
function(snug_add_simulated_program target program)
  if(SNUG_SIMULATED)
    snug_add_twin(${target} ${program} simulated simulated)
    snug_simulate(${target})
  endif()
endfunction()

# Sets RESULT to the source of each technique below this folder: techniques/<key>.cpp, for the keys of all.def.
function(snug_list_techniques result)
  set(list ${CMAKE_SOURCE_DIR}/src/recipe/techniques/all.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} lines REGEX "^SNUG_TECHNIQUE")
  list(TRANSFORM lines REPLACE "^SNUG_TECHNIQUE\\((.*)\\)$" "techniques/\\1.cpp")
  set(${result} ${lines} PARENT_SCOPE)
endfunction()

# On the simulated GPU: the target gets it whole, and its variants of what knows CUDA.
function(snug_simulate target)
  target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,snug_simulated>)
  # What no library wants of it, but `snug doctor` looks for by name.
  target_link_options(${target} PRIVATE LINKER:--export-dynamic-symbol=cudaRuntimeGetVersion
                      LINKER:--export-dynamic-symbol=cudaDeviceGetPCIBusId LINKER:--export-dynamic-symbol=ncclGetVersion)
  set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH "$ORIGIN")
  add_dependencies(${target} snug_simulated_driver)
endfunction()

# The seconds that tests may take: with sanitizers, which make them several times slower, as much more.
function(snug_limit_tests seconds)
  if(SNUG_SANITIZE)
    math(EXPR seconds "6 * ${seconds}")
  endif()
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${seconds})
endfunction()

# snug_add_test(tokenizer SOURCES x_test.cpp [TORCH] [LIBS third::party] [ROOMS kernels] [LABELS unit])
# SOURCES_ALONE: those whose unnamed namespaces hold names (Case, kShapes) that others of the program have too.
# ROOMS: these alone are linked, in place of libsnug.so.
function(snug_add_test name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;SOURCES_ALONE;ROOMS;LIBS;LABELS" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES} ${ARG_SOURCES_ALONE} $<TARGET_OBJECTS:snug_test_main>)
  set_source_files_properties(${ARG_SOURCES_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  snug_set_up_test(${name}_test ${ARG_TORCH} "${ARG_ROOMS}" "${ARG_LIBS}")
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" PROCESSORS 2)
  snug_limit_tests(900 ${name})
endfunction()

function(snug_set_up_test target with_torch rooms libraries)
  if(rooms)
    list(TRANSFORM rooms PREPEND snug_)
  else()
    set(rooms snug_shared)
    snug_precompile_tests(${target} ${with_torch})
  endif()
  target_link_libraries(${target} PRIVATE ${rooms} ${libraries} GTest::gtest)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE SNUG_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             SNUG_BINARY="${CMAKE_BINARY_DIR}/snug")
  target_compile_options(${target} PRIVATE ${SNUG_TEST_OPTIMIZATION})
  snug_set_warnings(${target})
  snug_join_sources(${target})
endfunction()

# snug_draw_cases(16 2 property): of the long lists of these tests `scripts/test` runs one case of 16 and `scripts/test
# --all` one of 2, drawn by the commit (tests/support/drawn_cases.h).
function(snug_draw_cases quick all)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT SNUG_TEST_SHARES=quick:${quick},all:${all})
  endforeach()
endfunction()

# Draws tests of each suite likewise: for programs whose single tests take long.
function(snug_draw_tests quick all)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT SNUG_TEST_SUITES=quick:${quick},all:${all})
  endforeach()
endfunction()

# Those that `scripts/test` leaves to `scripts/test --all`, since what they hold others hold in part.
function(snug_only_in_all)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY LABELS long)
  endforeach()
endfunction()

# Tests that have one thread, and so leave a core to another; the others have two (scripts/test).
function(snug_use_one_thread)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT OMP_NUM_THREADS=1)
  endforeach()
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 1)
endfunction()

# The same test program once more with its tensors on a GPU, on a simulated one where there can be none, else
# skipped: the libsnug.so that it loads decides. For programs that take their device from tests/support/test_device.h.
# SIMULATED: what of it runs on a simulated GPU (of gtest's filter), which is slow; its samples are the least.
function(snug_add_cuda_run name)
  cmake_parse_arguments(ARG "" "SIMULATED" "" ${ARGN})
  set(command ${name}_test)
  if(SNUG_SIMULATED AND ARG_SIMULATED)
    list(APPEND command --gtest_filter=${ARG_SIMULATED})
  endif()
  add_test(NAME ${name}_cuda COMMAND ${command})
  set_tests_properties(${name}_cuda PROPERTIES LABELS cuda TIMEOUT 1500 ENVIRONMENT SNUG_TEST_DEVICE=cuda
                       SKIP_REGULAR_EXPRESSION "no CUDA device" PROCESSORS 2)
  if(SNUG_SIMULATED)
    set_property(TEST ${name}_cuda APPEND PROPERTY ENVIRONMENT SNUG_TEST_SAMPLE=1)
    set_tests_properties(${name}_cuda PROPERTIES
      ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${CMAKE_BINARY_DIR}/simulated/lib)
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

# Precompiled headers, one of each kind for all targets: what most sources include. With libtorch they hold tensors and
# how to make them, for tests all of ATen, since those name many operators; sources of src name few, and would pay for
# the rest. What a program adds to the options (-O1, -fopenmp) has to be the same for header and sources.
set(SNUG_COMMON_HEADERS <nlohmann/json.hpp> <fmt/format.h> <algorithm> <filesystem> <fstream> <functional> <map> <memory>
    <optional> <string> <vector>)

function(snug_precompile_torch target)
  snug_precompile(${target} snug_torch_pch snug_torch "" ${SNUG_COMMON_HEADERS} <ATen/core/Tensor.h> <ATen/ops/empty.h>)
endfunction()

function(snug_precompile_plain target)
  snug_precompile(${target} snug_plain_pch "" "" ${SNUG_COMMON_HEADERS})
endfunction()

function(snug_precompile_tests target with_torch)
  set(headers <gtest/gtest.h> ${SNUG_COMMON_HEADERS} <random> <sstream> <thread>)
  if(with_torch)
    snug_precompile(${target} snug_test_torch_pch "snug_torch;GTest::gtest" "${SNUG_TEST_OPTIMIZATION}" ${headers} <ATen/ATen.h>)
  else()
    snug_precompile(${target} snug_test_pch "snug_torch;GTest::gtest" "${SNUG_TEST_OPTIMIZATION}" ${headers})
  endif()
endfunction()

function(snug_precompile target from libraries options)
  if(NOT TARGET ${from})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${from}.cpp CONTENT "")
    add_library(${from} OBJECT ${CMAKE_BINARY_DIR}/${from}.cpp)
    target_link_libraries(${from} PUBLIC fmt::fmt nlohmann_json::nlohmann_json ${libraries})
    target_compile_options(${from} PRIVATE ${options})
    snug_set_warnings(${from})
    target_precompile_headers(${from} PRIVATE ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${from})
endfunction()
