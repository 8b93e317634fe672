// The unwinder is that of exceptions: abseil's follows frame pointers, which optimized code has
// not.
#include "core/types/call_site.h"

#include <cxxabi.h>
#include <errno.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>

#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"

namespace mytorch {
namespace {

// A program or a library in memory.
struct LoadedObject {
  uintptr_t begin = 0, end = 0;
  uintptr_t bias = 0;  // of its addresses
  std::string name;

  bool contains(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= begin && at < end;
  }
};

LoadedObject object_of(const void* address) {
  struct Search {
    const void* address;
    LoadedObject found;
  } search{address, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& search = *static_cast<Search*>(data);
        LoadedObject object{UINTPTR_MAX, 0, info->dlpi_addr, info->dlpi_name};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD) continue;
          object.begin = std::min<uintptr_t>(object.begin, object.bias + part.p_vaddr);
          object.end = std::max<uintptr_t>(object.end, object.bias + part.p_vaddr + part.p_memsz);
        }
        if (!object.contains(search.address)) return 0;
        search.found = std::move(object);
        return 1;
      },
      &search);
  LoadedObject& found = search.found;
  found.name.erase(0, found.name.rfind('/') + 1);
  // The program has no name there.
  if (found.name.empty() && found.end != 0) found.name = program_invocation_short_name;
  return std::move(found);
}

const LoadedObject& library() {
  static const LoadedObject own = object_of(reinterpret_cast<const void*>(&object_of));
  return own;
}

// Returns the name of a function, or "" if the object has no symbols.
std::string function_of(const void* address) {
  // The symbolizer has locks of its own, which ThreadSanitizer cannot see.
  static auto* const mutex = new std::mutex;  // never destroyed: threads may fail until the end
  const std::lock_guard<std::mutex> lock(*mutex);
  char name[512];
  if (!absl::Symbolize(address, name, sizeof(name))) return "";
  // What abseil cannot demangle, such as names with constraints.
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? demangled.get() : name;
}

// Return whether a function is part of the library, or of the standard one, although it lies in the
// program: an instantiation of a template, or an inline function. Tests of the library are in
// unnamed namespaces.
bool is_ours(std::string_view function) {
  return function.starts_with("mytorch::") &&
         function.find("(anonymous namespace)") == std::string_view::npos;
}
bool is_standard(std::string_view function) {
  return function.starts_with("std::") || function.starts_with("__gnu_cxx::");
}

}  // namespace

CallSite CallSite::here() {
  constexpr int kDeepest = 128;
  struct Walk {
    const LoadedObject& own;
    CallSite site;
    int found = 0, depth = 0;
  } walk{library(), {}};
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* data) {
        auto& walk = *static_cast<Walk*>(data);
        const uintptr_t next = _Unwind_GetIP(context);
        if (next == 0) return _URC_END_OF_STACK;  // where a thread begins
        // The return address may be that of the next function.
        const auto* const address = reinterpret_cast<const void*>(next - 1);
        if (!walk.own.contains(address)) walk.site.frames_[walk.found++] = address;
        const bool over = walk.found == kFrames || ++walk.depth == kDeepest;
        return over ? _URC_END_OF_STACK : _URC_NO_REASON;
      },
      &walk);
  return walk.site;
}

std::string CallSite::text() const {
  constexpr int kMost = 3;
  std::string text;
  int written = 0;
  for (const void* const address : frames_) {
    if (address == nullptr || written == kMost) break;
    const LoadedObject object = object_of(address);
    if (object.name.starts_with("libc.so")) break;  // has called main(), or the thread's function
    if (object.name.starts_with("libstdc++.so")) continue;
    const std::string function = function_of(address);
    // A function of the standard library that calls this one has inlined what it was given.
    if (is_ours(function) || (written > 0 && is_standard(function))) continue;
    absl::StrAppend(&text, written++ == 0 ? "" : ", from ", function,
                    function.empty() ? "" : " at ", "0x",
                    absl::Hex(reinterpret_cast<uintptr_t>(address) - object.bias), " in ",
                    object.name.empty() ? "unknown code" : object.name);
    if (function == "main") break;
  }
  return text;
}

std::string called_from(const CallSite& site) {
  const std::string text = site.text();
  return text.empty() ? "" : absl::StrCat(" (called from ", text, ")");
}

}  // namespace mytorch
