# Builds examples/image_folder against an installation, with nothing of the build tree, and trains, resumes and reads what
# it writes. The program has at most 80 lines.
#
#   cmake -DPREFIX=... -DFOLDER=... -DSOURCE=main.cpp -DTEST=image_folder_test.py -DCXX=... -DPYTHON3=... -P
#   image_folder_test.cmake

foreach(variable MYTORCH_BACKEND_PATH MYTORCH_SHARE MYTORCH_PREFER LD_LIBRARY_PATH)
  unset(ENV{${variable}})
endforeach()
file(READ ${SOURCE} text)
string(REGEX MATCHALL "\n" lines "${text}")
list(LENGTH lines count)
if(count GREATER 80)
  message(FATAL_ERROR "${SOURCE} has ${count} lines")
endif()
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND ${CXX} -std=c++20 -O1 ${SOURCE} -I${PREFIX}/include -L${PREFIX}/lib
  -lmytorch -Wl,-rpath,${PREFIX}/lib -o ${FOLDER}/image_folder)
execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND ${PYTHON3} ${TEST} ${FOLDER}/image_folder)
