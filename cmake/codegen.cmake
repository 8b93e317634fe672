# Runs codegen while configuring, so that the list of generated files is known; a change of a record, of
# codegen or of test data configures again. Files are rewritten only when their content changes.

set(MYTORCH_GENERATED ${CMAKE_BINARY_DIR}/generated)
find_program(PYTHON3 NAMES python3 REQUIRED)
file(GLOB codegen_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/codegen/*.py
  ${CMAKE_SOURCE_DIR}/tests/samples/*.yaml ${CMAKE_SOURCE_DIR}/tests/goldens/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/ops.yaml ${CMAKE_SOURCE_DIR}/bench/suites.yaml ${CMAKE_SOURCE_DIR}/abi/ops.lock ${codegen_sources})
execute_process(
  COMMAND ${PYTHON3} -m codegen.generate --ops ops.yaml --lock abi/ops.lock --out ${MYTORCH_GENERATED} --write-lock
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
  OUTPUT_VARIABLE generated RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "codegen refused ops.yaml; the errors are above")
endif()
string(STRIP "${generated}" generated)
string(REPLACE "\n" ";" generated "${generated}")
set(MYTORCH_GENERATED_OPS ${generated})
list(FILTER MYTORCH_GENERATED_OPS INCLUDE REGEX "/src/")
set(MYTORCH_GENERATED_AUTOGRAD ${generated})
list(FILTER MYTORCH_GENERATED_AUTOGRAD INCLUDE REGEX "/autograd/")
set(MYTORCH_GENERATED_CPU ${generated})
list(FILTER MYTORCH_GENERATED_CPU INCLUDE REGEX "/cpu/")
