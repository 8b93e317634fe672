# mytorch_backend(NAME sources...): a backend as a shared library in lib/mytorch/backends, with hidden
# symbols, against the SDK alone. Its objects, under the init function NAME_init (dashes become
# underscores), are also there as mytorch_backend_NAME_objects, for static and sanitizer builds.

function(mytorch_backend name)
  string(REPLACE "-" "_" id ${name})
  add_library(mytorch_backend_${id} MODULE ${ARGN})
  target_link_libraries(mytorch_backend_${id} PRIVATE mytorch_backend_sdk)
  target_include_directories(mytorch_backend_${id} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(mytorch_backend_${id} PRIVATE ${MYTORCH_WARNINGS})
  set_target_properties(mytorch_backend_${id} PROPERTIES
    PREFIX "" OUTPUT_NAME mytorch_${id} CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/mytorch/backends)
endfunction()
