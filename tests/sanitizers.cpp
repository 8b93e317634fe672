// Options of the sanitizers, linked into every program of tests.

// Tests ask for memory that cannot be had: as without a sanitizer, that is a null pointer.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

// libstdc++ counts the references to an exception inside the library, which the sanitizer does not
// see: the thread that drops the last one seems to race with all that have read the exception.
extern "C" const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
