# Writes a CTest entry for each test suite of a GoogleTest program. An entry runs all cases of its suite in one process.
#
#   cmake -DPROGRAM=... -DPREFIX=... -DTIMEOUT=... -DLABELS=... -DENTRIES=FILE -P suites.cmake
#
# The suite `Name` has the cases `Name.*`, `Name/0.*` (typed) and `Instance/Name.*` (parameterized). CTest reports it as
# skipped if all of its cases are.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n[A-Za-z0-9_/]+\\." suites "\n${listing}")
list(TRANSFORM suites REPLACE "^\n(.*/)?([A-Za-z_][A-Za-z0-9_]*)(/[0-9]+)?\\.$" "\\2")
list(REMOVE_DUPLICATES suites)

set(skipped "\\[  PASSED  \\] 0 tests\\.(\n\\[  SKIPPED \\] [^\n]*)+\n*$")
set(content "")
foreach(suite ${suites})
  string(APPEND content "add_test(${PREFIX}${suite} \"${PROGRAM}\""
    " --gtest_filter=${suite}.*:${suite}/*:*/${suite}.*:*/${suite}/*)\n"
    "set_tests_properties(${PREFIX}${suite} PROPERTIES TIMEOUT ${TIMEOUT} LABELS \"${LABELS}\""
    " SKIP_REGULAR_EXPRESSION [=[${skipped}]=])\n")
endforeach()
file(WRITE ${ENTRIES} "${content}")
