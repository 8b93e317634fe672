// Libraries that are opened when they are first needed, so that a backend loads without them.
//
//   #define FFT_ROUTINES(F) F(fft_create) F(fft_run)  // of the library's header
//   MYTORCH_ROUTINES(Fft, FFT_ROUTINES);
//
//   static const auto* const fft = new sdk::OpenedLibrary<Fft>("libfft.so.2");
//   if (fft->reason() == nullptr) fft->routines().fft_run(...);
#pragma once

#include <dlfcn.h>

#include <string>

// Defines a struct of pointers to the functions in a list, by their names.
// clang-format off
#define MYTORCH_ROUTINES(Struct, list)  \
  struct Struct {                       \
    list(MYTORCH_ROUTINE_)              \
    template <class Visit>              \
    void for_each(const Visit& visit) { \
      list(MYTORCH_VISIT_ROUTINE_)      \
    }                                   \
  }
// clang-format on
#define MYTORCH_ROUTINE_(name) decltype(&::name) name = nullptr;
#define MYTORCH_VISIT_ROUTINE_(name) visit(#name, name);

namespace mytorch::sdk {
inline namespace v1 {

// A library that stays open, with the functions of a struct of MYTORCH_ROUTINES.
template <class Routines>
class OpenedLibrary {
 public:
  explicit OpenedLibrary(const std::string& file)
      : OpenedLibrary(file, file + " cannot be opened: ", file + " lacks ") {}
  // `cannot_open` begins the reason that the linker continues, `lacks` one that ends with the first
  // missing function.
  OpenedLibrary(const std::string& file, const std::string& cannot_open, const std::string& lacks) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* error = dlerror();
      reason_ = cannot_open + (error != nullptr ? error : file);
      return;
    }
    routines_.for_each([&]<class F>(const char* name, F*& function) {
      function = reinterpret_cast<F*>(dlsym(library, name));
      if (function == nullptr && reason_.empty()) reason_ = lacks + name;
    });
  }

  // Returns why the library cannot be used, or nullptr.
  const char* reason() const { return reason_.empty() ? nullptr : reason_.c_str(); }
  // For calls only if reason() is nullptr.
  const Routines& routines() const { return routines_; }

 private:
  Routines routines_;
  std::string reason_;
};

}  // namespace v1
}  // namespace mytorch::sdk
