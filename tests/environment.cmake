# Runs in CTest before the tests.
# Tests share the processors, so threads that wait for others must not spin.
if(NOT DEFINED ENV{OMP_WAIT_POLICY})
  set(ENV{OMP_WAIT_POLICY} passive)
endif()
# A report of the undefined-behaviour sanitizer fails the test.
if(NOT DEFINED ENV{UBSAN_OPTIONS})
  set(ENV{UBSAN_OPTIONS} halt_on_error=1:print_stacktrace=1)
endif()
# What this machine is to lack (needs.py).
if("$ENV{MYTORCH_TEST_WITHOUT}" MATCHES "(^|,)gpu(,|$)")
  set(ENV{CUDA_VISIBLE_DEVICES} -1)  # CMake does not promise that an empty value is one
endif()
# For the projects that tests build.
find_program(CCACHE ccache)
if(CCACHE AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} ${CCACHE})
endif()
