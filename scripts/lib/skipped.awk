# Prints, from CTest's LastTest.log, what was skipped and why: whole tests, and cases of GoogleTest's. Fails for a reason,
# a number of cases or a test that tests/skips.txt, read first, does not have.
FNR == NR {
  if ($0 !~ /^#/) {
    limit = $1
    sub(/^ *[^ ]+ /, "")
    limits[$0] = limit
  }
  next
}
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
  for (i = 1; i <= reasons; ++i) {
    reason = order[i]
    printf "  %d, %s:%s\n", cases[reason], reason, tests[reason]
    known = ""
    for (limit in limits) if (index(reason, limit) == 1) known = limit
    if (known == "") {
      printf "    this reason is not in tests/skips.txt\n"
      bad = 1
    } else if (limits[known] !~ /^[0-9]+$/) {
      size = split(tests[reason], names, " ")
      for (n = 1; n <= size; ++n) {
        if (names[n] ~ limits[known]) continue
        printf "    not in %s\n", names[n]
        bad = 1
      }
    } else if ((total[known] += cases[reason]) > limits[known]) {
      printf "    more than the %d of tests/skips.txt\n", limits[known]
      bad = 1
    }
  }
  exit bad
}
