# Installs the build, moves the installation, and builds and runs tests/linking/consumer against it.
#
#   cmake -DBUILD=... -DFOLDER=... -DSOURCE=... -DCXX=... -P install_test.cmake

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect text)
  string(FIND "${output}" "${text}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "no '${text}' in:\n${output}")
  endif()
endfunction()

# The build tree's own settings must not help.
foreach(variable MYTORCH_BACKEND_PATH MYTORCH_SHARE MYTORCH_PREFER LD_LIBRARY_PATH)
  unset(ENV{${variable}})
endforeach()
file(REMOVE_RECURSE ${FOLDER})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/first)
file(RENAME ${FOLDER}/first ${FOLDER}/moved)
set(prefix ${FOLDER}/moved)

foreach(file include/mytorch/mytorch.h include/mytorch/ops/add.h include/mytorch/backend.h include/mytorch/abi_ops.h
        share/doc/mytorch/ops/index.md share/doc/mytorch/README.md)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
run(${prefix}/bin/mytorch info)
expect("${prefix}/lib/mytorch/backends/mytorch_reference.so")
expect("cpu-openmp")
run(${prefix}/bin/mytorch ops add)
expect("add.Tensor(Tensor self")

run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE} -B ${FOLDER}/build -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${FOLDER}/build)
run(${FOLDER}/build/consumer ${FOLDER}/build/libanswer.so)
expect("weight 3.0")
expect("the backend answers")
