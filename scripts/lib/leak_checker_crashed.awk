# Reads the log of CTest. Exits with 0 if tests have failed and in each of them the leak checker itself crashed, which it
# reports only at the end of a program that found no error before.
/^[0-9]+\/[0-9]+ Testing: / { crashed = 0 }
/==LeakSanitizer has encountered a fatal error/ { crashed = 1 }
/^Test (Failed|Timeout)/ { failed++; others += !crashed }
END { exit !(failed > 0 && others == 0) }
