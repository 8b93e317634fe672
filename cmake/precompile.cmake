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
set(precompile ON)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Clang's precompiled headers hold the folder of the build, so a compiler cache would find nothing in another clone.
  set(precompile OFF)
endif()
option(MYTORCH_PRECOMPILE "Parse common headers once" ${precompile})
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

# CMake's own unity builds name the sources by absolute paths, so a compiler cache would not find them in another clone.
function(mytorch_together target files)
  if(MYTORCH_TOGETHER)
    # At the end of the folder, when its sources have their properties.
    cmake_language(EVAL CODE "cmake_language(DEFER CALL mytorch_compile_together ${target} ${files})")
  endif()
endfunction()

function(mytorch_compile_together target files)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/together/${target})
  set(batch "")
  set(number 0)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
    set(alone OFF)
    if(NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    foreach(property SKIP_UNITY_BUILD_INCLUSION COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES)
      get_source_file_property(value ${source} ${property})
      if(value)
        set(alone ON)
      endif()
    endforeach()
    if(NOT alone)
      set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
      list(APPEND batch ${source})
      list(LENGTH batch length)
      if(length EQUAL files)
        mytorch_write_together(${target} ${out}/${number}.cpp ${batch})
        math(EXPR number "${number} + 1")
        set(batch "")
      endif()
    endif()
  endforeach()
  if(batch)
    mytorch_write_together(${target} ${out}/${number}.cpp ${batch})
  endif()
endfunction()

function(mytorch_write_together target file)
  cmake_path(GET file PARENT_PATH folder)
  set(text "")
  foreach(source IN LISTS ARGN)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${folder})
    string(APPEND text "#include \"${source}\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
  target_sources(${target} PRIVATE ${file})
endfunction()
