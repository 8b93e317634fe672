# Parsing the same headers and instantiating the same templates takes half of the time of a file. Two remedies:
#
# mytorch_precompile(TARGET KIND) precompiles the framework's common headers for all rooms of a kind, and
# mytorch_precompile_test(TARGET) those of the tests for all tests. Files still include what they use; a build with
# -DMYTORCH_PRECOMPILE=OFF proves it.
#
# mytorch_together(TARGET FILES) compiles FILES sources as one (0: all of them), which instantiates shared templates
# once. Names in unnamed namespaces must then differ within a room: if a call resolves to another file's function, the
# shadowed one is unused, which is an error. With -DMYTORCH_TOGETHER=OFF a full build takes longer, and rebuilding one
# changed file takes less time.
option(MYTORCH_PRECOMPILE "Parse common headers once" ON)
option(MYTORCH_TOGETHER "Compile several sources of a room as one" ON)

set(mytorch_common_headers <algorithm> <atomic> <cmath> <cstring> <functional> <limits> <memory> <mutex>
  <optional> <string> <string_view> <tuple> <utility> <variant> <vector>)

# The first target of a kind owns the precompiled header. The others reuse it, since they have the same flags.
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

function(mytorch_precompile target kind)
  mytorch_precompile_as(${kind} ${target} <absl/container/inlined_vector.h> <absl/strings/str_cat.h>
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
