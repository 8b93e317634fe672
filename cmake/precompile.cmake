# Half of the time that a file takes is the parsing of the same headers. mytorch_precompile(TARGET) has
# them parsed once for all rooms; mytorch_precompile_test(TARGET) for all tests of the framework, and
# mytorch_precompile_tool(TARGET) for the tools and the libraries behind them. Files still include what
# they use: build with -DMYTORCH_PRECOMPILE=OFF to see that they do.
option(MYTORCH_PRECOMPILE "Parse common headers once" ON)

set(mytorch_common_headers <algorithm> <atomic> <cmath> <cstring> <functional> <limits> <memory> <mutex>
  <optional> <string> <string_view> <tuple> <utility> <variant> <vector>)

# The first target of a kind owns the header, the others use it: they have the same flags.
function(mytorch_precompile_as kind target)
  if(NOT MYTORCH_PRECOMPILE)
    return()
  endif()
  get_property(owner GLOBAL PROPERTY MYTORCH_PRECOMPILED_${kind})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${mytorch_common_headers} ${ARGN})
    set_property(GLOBAL PROPERTY MYTORCH_PRECOMPILED_${kind} ${target})
  endif()
endfunction()

function(mytorch_precompile target)
  mytorch_precompile_as(rooms ${target} <absl/container/inlined_vector.h> <absl/strings/str_cat.h>
    <absl/strings/str_join.h> <mytorch/tensor.h>)
endfunction()

function(mytorch_precompile_test target)
  mytorch_precompile_as(tests ${target} <gtest/gtest.h> <mytorch/tensor.h>)
endfunction()

function(mytorch_precompile_tool target)
  # A library's code is not compiled as a program's is: they cannot share a header.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    mytorch_precompile_as(programs ${target} <iostream> <CLI/CLI.hpp> <nlohmann/json.hpp> <mytorch/tensor.h>)
  else()
    mytorch_precompile_as(harness ${target} <nlohmann/json.hpp> <mytorch/tensor.h>)
  endif()
endfunction()
