// Lists of parameters, buffers and modules by name. Part of mytorch/nn/module.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::nn {

class Module;

// A parameter, buffer or module with its name: `auto [name, tensor] = item`.
template <class T>
struct NamedItem {
  std::string first;
  T second;
  const std::string& key() const { return first; }  // libtorch's names
  T& value() { return second; }
  const T& value() const { return second; }
};
using NamedTensor = NamedItem<Tensor>;
using NamedModule = NamedItem<Module*>;

// Named items in order. They are found by their index or name.
template <class T>
class NamedList : public std::vector<NamedItem<T>> {
 public:
  using std::vector<NamedItem<T>>::operator[];
  // Throws Error(kValue), listing the names, if there is no such item.
  T& operator[](std::string_view name);
  bool contains(std::string_view name) const;
  std::vector<std::string> keys() const;
  std::vector<T> values() const;
};
extern template class NamedList<Tensor>;
extern template class NamedList<Module*>;

}  // namespace mytorch::nn
