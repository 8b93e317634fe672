// Plug-ins: shared libraries that export one init function, backends and engines of process groups.
#pragma once

#include <string>
#include <vector>

#include "mytorch/error.h"

namespace mytorch {

// What a library is to be, for messages.
struct PluginKind {
  const char* tag;        // "backend": what messages begin with, in brackets
  const char* name;       // "a backend"
  const char* init;       // the function that it exports
  const char* header;     // which declares it
  ErrorCode cannot_open;  // if the linker refuses the library
};

// Checks and opens a library for the life of the process, and returns its init function. Throws
// Error: kIo for a file that is no such library, `cannot_open` if the linker refuses it.
void* open_plugin(const std::string& path, const PluginKind& kind);

// Returns the plug-ins to load: the libraries, and those in the folders, that an environment
// variable lists, separated by colons; without it those in mytorch/FOLDER beside libmytorch, or in
// ../lib/mytorch/FOLDER if there are none.
std::vector<std::string> default_plugins(const char* variable, const std::string& folder);

}  // namespace mytorch
