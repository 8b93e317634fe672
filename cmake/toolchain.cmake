# Compiler flags, and a compiler cache and a fast linker if they are installed.

find_program(CCACHE ccache)
if(CCACHE)
  # Paths below the root are relative to ccache, so that a clone in another folder finds what this one compiled.
  set(ccache env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR})
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")  # a debugger needs the folder of this clone
    list(APPEND ccache CCACHE_NOHASHDIR=1)
  endif()
  # With precompiled headers, ccache must ignore macros and timestamps, and generated headers are newer than it trusts.
  # It takes a file's includes from the compiler instead of preprocessing the file again.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache} CCACHE_DEPEND=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache} ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ccache} ${CCACHE})
endif()
foreach(linker mold lld)
  find_program(LINKER_${linker} NAMES ${linker} ld.${linker})
  if(LINKER_${linker} AND (linker STREQUAL "lld" OR CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR
     CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1))
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()

set(MYTORCH_OPTIMIZE -O2 CACHE STRING "The optimization of Release builds; -O1 compiles faster, for checks")
set(CMAKE_CXX_FLAGS_RELEASE "${MYTORCH_OPTIMIZE} -DNDEBUG")
# The code of the host beside CUDA kernels launches them; nvcc optimizes the kernels whatever stands here.
set(CMAKE_CUDA_FLAGS_RELEASE "-O1 -DNDEBUG")
# Tests and tools take longer to compile than to run. The undefined-behaviour sanitizer checks the library only: it
# would triple the compile time of tests and tools.
set(MYTORCH_QUICK_COMPILE $<$<CONFIG:Release>:-O1>)
if(MYTORCH_SANITIZE MATCHES undefined)
  list(APPEND MYTORCH_QUICK_COMPILE $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=undefined>)
endif()
# Modules, operators that consist of others, and the compiler of programs run for microseconds, in kernels that are
# optimized. GCC compiles them in two thirds of the time if it inlines small functions and does little else.
set(MYTORCH_OPTIMIZE_HOST "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release" AND MYTORCH_OPTIMIZE STREQUAL "-O2")
  set(MYTORCH_OPTIMIZE_HOST -O1 -finline-small-functions)
endif()
# Generated wrappers of operators are half of the library, and instantiate a few templates for each record. Under
# sanitizers, optimization more than doubles their compile time, and finds nothing.
set(MYTORCH_OPTIMIZE_WRAPPERS "" CACHE STRING "The optimization of generated wrappers, if it differs from the others'")
if(MYTORCH_SANITIZE AND NOT MYTORCH_OPTIMIZE_WRAPPERS)
  set(MYTORCH_OPTIMIZE_WRAPPERS -O0)
endif()
# Calls within the library bypass the procedure linkage table.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fno-semantic-interposition>
  $<$<COMPILE_LANGUAGE:C,CXX>:-fno-plt>)
add_link_options(-Wl,-z,now -Wl,-Bsymbolic-functions)
# Empty, or what hides the symbols of the C++ runtime if the compiler has no shared one.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so
  OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
set(MYTORCH_HIDE_RUNTIME "")
if(NOT IS_ABSOLUTE "${runtime}")
  set(MYTORCH_HIDE_RUNTIME -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/static_runtime.exports)
  message(STATUS "The compiler links the C++ runtime statically: its symbols are hidden")
endif()
set(MYTORCH_WARNINGS -Wall -Wextra -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 reports these for inlined containers without cause.
  list(APPEND MYTORCH_WARNINGS -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12 calls a deprecated function of its own in std::stable_sort. GCC reports deprecated names of ours.
  list(APPEND MYTORCH_WARNINGS -Wno-deprecated-declarations)
endif()

if(MYTORCH_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${MYTORCH_SANITIZE}>
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${MYTORCH_SANITIZE})
  # Checks the positions of elements of vectors, spans and strings.
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  # GCC's names, which clang does not define.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND MYTORCH_SANITIZE MATCHES "address")
    add_compile_definitions(__SANITIZE_ADDRESS__=1)
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND MYTORCH_SANITIZE MATCHES "thread")
    add_compile_definitions(__SANITIZE_THREAD__=1)
  endif()
endif()
