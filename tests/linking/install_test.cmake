# Installs the build, moves the installation, and builds and runs examples/consumer against it:
# by CMake with the compiler of this build, and by pkg-config with another one where there is one.
#
#   cmake -DBUILD=... -DFOLDER=... -DSOURCE=... -DCC=... -DCXX=... -P install_test.cmake

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
        share/mytorch/ops.json
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
    -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${FOLDER}/build)
run(${FOLDER}/build/consumer ${FOLDER}/build/answer.so ${FOLDER}/build/answer_c.so)
expect("weight 3.0")
expect("answer answers 42")
expect("answer-c answers 43")

# Other compilers work with this build: a plug-in shares only the contract with it.
find_program(PKG_CONFIG NAMES pkg-config pkgconf)
find_program(CLANG clang)
find_program(CLANGXX clang++)
if(PKG_CONFIG)
  set(ENV{PKG_CONFIG_PATH} ${prefix}/lib/pkgconfig)
  foreach(package mytorch mytorch-backend-sdk)
    run(${PKG_CONFIG} --cflags --libs ${package})
    separate_arguments(flags_${package} UNIX_COMMAND "${output}")
  endforeach()
  set(strict -std=c11 -Wall -Wextra -Wpedantic -Werror -O1 -shared -fPIC)
  set(compilers ${CC})
  if(CLANG)
    list(APPEND compilers ${CLANG})
  endif()
  foreach(compiler ${compilers})
    get_filename_component(name ${compiler} NAME)
    run(${compiler} ${strict} ${SOURCE}/backend.c ${flags_mytorch-backend-sdk} -o ${FOLDER}/${name}_c.so)
    run(${FOLDER}/build/consumer ${FOLDER}/${name}_c.so)
    expect("answer-c answers 43")
    # A saved program in C.
    list(REMOVE_ITEM strict -shared -fPIC)
    run(${compiler} ${strict} ${SOURCE}/../program_c/main.c ${flags_mytorch} -o ${FOLDER}/${name}_program)
    list(APPEND strict -shared -fPIC)
    run(${FOLDER}/${name}_program ${SOURCE}/../../tests/graph/saved/training-1.mtg)
    expect("loss: float32 ()")
  endforeach()
  if(CLANGXX)
    run(${CLANGXX} -std=c++20 -O1 -shared -fPIC ${SOURCE}/backend.cpp ${flags_mytorch-backend-sdk}
        -o ${FOLDER}/clang.so)
    run(${CLANGXX} -std=c++20 ${SOURCE}/program.cpp ${flags_mytorch} -o ${FOLDER}/clang_consumer)
    run(${FOLDER}/clang_consumer ${FOLDER}/clang.so ${FOLDER}/build/answer_c.so)
    expect("answer answers 42")
    expect("answer-c answers 43")
  endif()
endif()
