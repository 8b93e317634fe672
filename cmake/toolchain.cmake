# Compiler flags, a compiler cache and a fast linker where there are any.

find_program(CCACHE ccache)
if(CCACHE)
  # Of precompiled headers the cache has to believe that macros and times do not matter; what a file
  # includes it takes from the compiler, rather than preprocessing the file once more.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
foreach(linker mold lld)
  find_program(LINKER_${linker} NAMES ${linker} ld.${linker})
  if(LINKER_${linker} AND (linker STREQUAL "lld" OR CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR
     CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1))
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# Tests and tools ask, compare and print: the time that they take to compile outweighs the time they run.
# Undefined behaviour is looked for in the library; in them that would triple the time once more.
set(MYTORCH_QUICK_COMPILE $<$<CONFIG:Release>:-O1>)
if(MYTORCH_SANITIZE MATCHES undefined)
  list(APPEND MYTORCH_QUICK_COMPILE $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=undefined>)
endif()
# Calls between the library's own functions need no detour through the linkage table.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fno-semantic-interposition>
  $<$<COMPILE_LANGUAGE:C,CXX>:-fno-plt>)
add_link_options(-Wl,-z,now -Wl,-Bsymbolic-functions)
set(MYTORCH_WARNINGS -Wall -Wextra -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees these in inlined containers where they are not.
  list(APPEND MYTORCH_WARNINGS -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized)
endif()

if(MYTORCH_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${MYTORCH_SANITIZE}>
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${MYTORCH_SANITIZE})
endif()
