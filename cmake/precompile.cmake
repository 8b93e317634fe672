# Parsing the same headers and instantiating the same templates takes half of the time of a file. Two remedies:
#
# mytorch_precompile(TARGET KIND) precompiles the framework's common headers for all rooms of a kind,
# mytorch_precompile_test(TARGET) those of the tests for all tests, and mytorch_precompile_programs(TARGET) the umbrella
# header for small programs of users. Files still include what they use; a build with -DMYTORCH_PRECOMPILE=OFF proves it.
#
# mytorch_together(TARGET FILES [PLACES...]) compiles FILES sources as one (0: all of them), which instantiates shared
# templates once; sources of CUDA apart from those of C++. With PLACES, only these files and those in these folders. Names
# in unnamed namespaces must then differ among the files: if a call resolves to another file's function, the shadowed one
# is unused, which is an error. With -DMYTORCH_TOGETHER=OFF a full build takes longer, and rebuilding one changed file
# takes less time.
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

function(mytorch_precompile_programs target)
  mytorch_precompile_as(programs ${target} <mytorch/mytorch.h>)
endfunction()

# CMake's own unity builds name the sources by absolute paths, so a compiler cache would not find them in another clone.
function(mytorch_together target files)
  if(MYTORCH_TOGETHER)
    # At the end of the folder, when its sources have their properties.
    cmake_language(EVAL CODE "cmake_language(DEFER CALL mytorch_compile_together ${target} ${files} [[${ARGN}]])")
  endif()
endfunction()

function(mytorch_compile_together target files places)
  get_target_property(sources ${target} SOURCES)
  get_target_property(base ${target} SOURCE_DIR)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/together/${target}/)
  if(places)
    list(GET places 0 first)
    string(MAKE_C_IDENTIFIER ${first} first)
    string(APPEND out ${first}_)
  endif()
  foreach(language cpp cu)
    set(batch "")
    set(number 0)
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${base})
      if(NOT source MATCHES "\\.${language}$")
        continue()
      endif()
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${base} OUTPUT_VARIABLE file)
      cmake_path(GET file PARENT_PATH folder)
      set(alone OFF)
      if(places AND NOT file IN_LIST places AND NOT folder IN_LIST places)
        set(alone ON)
      endif()
      get_target_property(known ${target} MYTORCH_COMPILED_TOGETHER)
      if(source IN_LIST known)
        set(alone ON)
      endif()
      foreach(property SKIP_UNITY_BUILD_INCLUSION COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES)
        get_source_file_property(value ${source} ${property})
        if(value)
          set(alone ON)
        endif()
      endforeach()
      if(alone)
        continue()
      endif()
      list(APPEND batch ${source})
      list(LENGTH batch length)
      if(length EQUAL files)
        mytorch_write_together(${target} ${out}${number}.${language} ${batch})
        math(EXPR number "${number} + 1")
        set(batch "")
      endif()
    endforeach()
    if(batch)
      mytorch_write_together(${target} ${out}${number}.${language} ${batch})
    endif()
  endforeach()
endfunction()

function(mytorch_write_together target file)
  cmake_path(GET file PARENT_PATH folder)
  set(text "")
  foreach(source IN LISTS ARGN)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${folder} OUTPUT_VARIABLE path)
    string(APPEND text "#include \"${path}\"\n")
  endforeach()
  # Targets of a folder share the property of a source: each that has it compiles it together with others.
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  set_property(TARGET ${target} APPEND PROPERTY MYTORCH_COMPILED_TOGETHER ${ARGN})
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
  target_sources(${target} PRIVATE ${file})
endfunction()
