# Runs codegen while configuring, so that the list of generated files is known. A change of a record, of codegen,
# of test data or of a header with options reconfigures. A file is rewritten only if its content changes.

set(MYTORCH_GENERATED ${CMAKE_BINARY_DIR}/generated)
find_program(PYTHON3 NAMES python3 REQUIRED)
file(GLOB codegen_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/codegen/*.py ${CMAKE_SOURCE_DIR}/codegen/*.yaml
  ${CMAKE_SOURCE_DIR}/*/emit.py ${CMAKE_SOURCE_DIR}/backends/*/emit.py ${CMAKE_SOURCE_DIR}/conformance/*.py
  ${CMAKE_SOURCE_DIR}/conformance/samples/*.yaml ${CMAKE_SOURCE_DIR}/conformance/goldens/*.json
  ${CMAKE_SOURCE_DIR}/nn/include/mytorch/nn/*.h
  ${CMAKE_SOURCE_DIR}/nn/*/include/mytorch/*.h ${CMAKE_SOURCE_DIR}/nn/*/include/mytorch/nn/*.h
  ${CMAKE_SOURCE_DIR}/nn/*/include/mytorch/nn/*/*.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/ops.yaml ${CMAKE_SOURCE_DIR}/bench/suites.yaml ${CMAKE_SOURCE_DIR}/abi/ops.lock ${codegen_sources})
execute_process(
  COMMAND ${PYTHON3} -m codegen.generate --ops ops.yaml --lock abi/ops.lock --out ${MYTORCH_GENERATED}
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
  OUTPUT_VARIABLE generated RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "codegen refused ops.yaml; the errors are above")
endif()
string(STRIP "${generated}" generated)
string(REPLACE "\n" ";" generated "${generated}")

# mytorch_generated(VARIABLE FOLDER) sets VARIABLE to the generated sources of FOLDER.
function(mytorch_generated variable folder)
  set(sources ${generated})
  list(FILTER sources INCLUDE REGEX "^${folder}/")
  list(TRANSFORM sources PREPEND ${MYTORCH_GENERATED}/)
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()
