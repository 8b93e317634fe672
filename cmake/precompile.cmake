# Half of the time that a file takes is the parsing of the same headers, and the instantiation of the same
# templates. Two remedies:
#
# Headers are parsed once: mytorch_precompile(TARGET) has those of the framework kept for all rooms,
# mytorch_precompile_test(TARGET) those of the tests for all tests. Files still include what they use:
# build with -DMYTORCH_PRECOMPILE=OFF to see that they do.
#
# mytorch_together(TARGET FILES) compiles so many sources as one (0: all of them), which instantiates once
# what they share. Names in unnamed namespaces then have to differ within a room: a function whose calls
# another file's took would go unused, which is an error.
# -DMYTORCH_TOGETHER=OFF builds all longer, and one changed file sooner.
option(MYTORCH_PRECOMPILE "Parse common headers once" ON)
option(MYTORCH_TOGETHER "Compile several sources of a room as one" ON)

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

function(mytorch_together target files)
  if(MYTORCH_TOGETHER)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  endif()
endfunction()
