// Names of modules in texts.
#pragma once

#include <string>
#include <typeinfo>

#include "mytorch/nn/module.h"

namespace mytorch::nn {

// Returns the name of a class without namespaces.
std::string class_name(const std::type_info& type);
inline std::string class_name(const Module& module) { return class_name(typeid(module)); }

// Returns the path of a member: "net.layer".
std::string join(const std::string& prefix, const std::string& name);

}  // namespace mytorch::nn
