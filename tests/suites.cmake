# Writes a CTest entry for each test suite of a GoogleTest program. An entry runs all cases of its suite in one process.
#
#   cmake -DPROGRAM=... -DPREFIX=... -DLABELS=... -DENTRIES=FILE -P suites.cmake
#
# The suite `Name` has the cases `Name.*`, `Name/0.*` (typed) and `Instance/Name.*` (parameterized). CTest reports it as
# skipped if all of its cases are. The cases of an instance `Full` are an entry of their own, `Name.full`, with the
# label `full`.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n[A-Za-z0-9_/]+\\." suites "\n${listing}")
list(TRANSFORM suites REPLACE "^\n(.*/)?([A-Za-z_][A-Za-z0-9_]*)(/[0-9]+)?\\.$" "\\2")
list(REMOVE_DUPLICATES suites)

set(skipped "\\[  PASSED  \\] 0 tests\\.(\n\\[  SKIPPED \\] [^\n]*)+\n*$")
set(content "")
macro(entry name filter labels)
  string(APPEND content "add_test(${PREFIX}${name} \"${PROGRAM}\" --gtest_filter=${filter})\n"
    "set_tests_properties(${PREFIX}${name} PROPERTIES LABELS \"${labels}\""
    " SKIP_REGULAR_EXPRESSION [=[${skipped}]=])\n")
endmacro()
foreach(suite ${suites})
  set(cases "${suite}.*:${suite}/*:*/${suite}.*:*/${suite}/*")
  if("\n${listing}" MATCHES "\nFull/${suite}\\.")
    entry(${suite}.full "Full/${suite}.*" full)
    string(APPEND cases "-Full/*")
  endif()
  entry(${suite} "${cases}" "${LABELS}")
endforeach()
file(WRITE ${ENTRIES} "${content}")
