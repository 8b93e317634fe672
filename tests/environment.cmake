# Runs in CTest before the tests.
# Tests share the processors, so threads that wait for others must not spin.
if(NOT DEFINED ENV{OMP_WAIT_POLICY})
  set(ENV{OMP_WAIT_POLICY} passive)
endif()
# For the projects that tests build.
find_program(CCACHE ccache)
if(CCACHE AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} ${CCACHE})
endif()
