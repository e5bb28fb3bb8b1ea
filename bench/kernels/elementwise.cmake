add_executable(bench_elementwise ${CMAKE_CURRENT_LIST_DIR}/elementwise.cpp)
target_link_libraries(bench_elementwise PRIVATE snug::kernels)
snug_set_warnings(bench_elementwise)
