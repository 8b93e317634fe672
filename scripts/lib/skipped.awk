# Prints, from CTest's LastTest.log, what was skipped and why: whole tests, and cases of GoogleTest's.
/^[0-9]+\/[0-9]+ Testing: / { name = $3 }
/^SKIPPED: / { note(substr($0, 10)) }
/lacks the instruction set; / && !/^SKIPPED/ { sub(/.*MYTORCH_CPU/, "MYTORCH_CPU"); note($0) }
message { note($0) }
{ message = /: Skipped$/ }
function note(reason) {
  if (!((name, reason) in seen)) tests[reason] = tests[reason] " " name
  if (!(reason in cases)) order[++reasons] = reason
  seen[name, reason] = 1
  ++cases[reason]
  ++count
}
END {
  printf "skipped: %d\n", count
  for (i = 1; i <= reasons; ++i) printf "  %d, %s:%s\n", cases[order[i]], order[i], tests[order[i]]
}
