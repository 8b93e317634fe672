# mytorch_backend(NAME sources...) builds a backend as a shared library in lib/mytorch/backends, with hidden
# symbols, against the SDK alone. Static and sanitizer builds link its objects instead: the target
# mytorch_backend_NAME_objects, with the init function mytorch_NAME_init (dashes become underscores).
#
# mytorch_backend_on_host_threads(NAME) makes the OpenMP regions of its libraries run on the host's threads.
#
# mytorch_backend_options(NAME DEFINITIONS ... INCLUDES ... LIBRARIES ...) adds requirements of its sources.

# mytorch_engine(NAME sources...) builds an engine of process groups, in lib/mytorch/comm, in the same way.

function(mytorch_plugin name contract folder property)
  string(REPLACE "-" "_" id ${name})
  set(objects mytorch_backend_${id}_objects)
  add_library(${objects} OBJECT ${ARGN})
  target_link_libraries(${objects} PUBLIC mytorch_backend_sdk)
  target_include_directories(${objects} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${objects} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${MYTORCH_WARNINGS}>")
  target_compile_definitions(${objects} PRIVATE MYTORCH_BACKEND_INIT=mytorch_${id}_init)
  set_target_properties(${objects} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

  # The symbol that the loader looks up.
  set(entry ${CMAKE_CURRENT_BINARY_DIR}/${id}_entry.c)
  file(CONFIGURE OUTPUT ${entry} CONTENT [[
#include "mytorch/abi_comm.h"
int mytorch_@id@_init(const mt_host* host, mt_@contract@* table);
MT_EXPORT int mt_@contract@_init(const mt_host* host, mt_@contract@* table) {
  return mytorch_@id@_init(host, table);
}
]] @ONLY)
  add_library(mytorch_backend_${id} MODULE ${entry})
  target_link_libraries(mytorch_backend_${id} PRIVATE ${objects})
  # Hidden visibility does not cover instantiated templates of the standard library.
  target_link_options(mytorch_backend_${id} PRIVATE
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/${contract}$<$<BOOL:$<TARGET_PROPERTY:ON_HOST_THREADS>>:_openmp>.exports)
  set_target_properties(mytorch_backend_${id} PROPERTIES
    PREFIX "" OUTPUT_NAME mytorch_${id} LINKER_LANGUAGE CXX C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/mytorch/${folder})
  # Installed without changing the RPATH, which would invalidate the checksum.
  set_target_properties(mytorch_backend_${id} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "")
  add_custom_command(TARGET mytorch_backend_${id} POST_BUILD VERBATIM
    COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/cmake/seal.py $<TARGET_FILE:mytorch_backend_${id}>)
  set_property(GLOBAL APPEND PROPERTY ${property} mytorch_backend_${id})
endfunction()

function(mytorch_backend name)
  mytorch_plugin(${name} backend backends MYTORCH_BACKENDS ${ARGN})
endfunction()

function(mytorch_engine name)
  mytorch_plugin(${name} comm comm MYTORCH_ENGINES ${ARGN})
endfunction()

# The regions of libraries that were built for OpenMP run on the host's threads (mytorch/backend/openmp.h).
function(mytorch_backend_on_host_threads name)
  string(REPLACE "-" "_" id ${name})
  target_sources(mytorch_backend_${id} PRIVATE ${CMAKE_SOURCE_DIR}/backends/sdk/openmp/entries.cpp)
  set_target_properties(mytorch_backend_${id} PROPERTIES ON_HOST_THREADS ON CXX_VISIBILITY_PRESET hidden)
endfunction()

function(mytorch_backend_options name)
  string(REPLACE "-" "_" id ${name})
  cmake_parse_arguments(given "" "" "DEFINITIONS;INCLUDES;LIBRARIES" ${ARGN})
  set(objects mytorch_backend_${id}_objects)
  target_compile_definitions(${objects} PRIVATE ${given_DEFINITIONS})
  target_include_directories(${objects} PRIVATE ${given_INCLUDES})
  target_link_libraries(${objects} PUBLIC ${given_LIBRARIES})
endfunction()
