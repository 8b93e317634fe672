// Lists of parameters, buffers and modules by name. Part of mytorch/nn/module.h.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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
  std::pair<std::string, T> pair() const { return {first, second}; }
  T& operator*() { return second; }
  const T& operator*() const { return second; }
  T* operator->() { return &second; }
  const T* operator->() const { return &second; }
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
  // Return the value, or null if there is no such item.
  const T* find(std::string_view name) const;
  T* find(std::string_view name) { return const_cast<T*>(std::as_const(*this).find(name)); }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  std::vector<std::string> keys() const;
  std::vector<T> values() const;
  // libtorch's names.
  bool is_empty() const { return this->empty(); }
  const std::vector<NamedItem<T>>& items() const { return *this; }
  std::vector<std::pair<std::string, T>> pairs() const;
};
extern template class NamedList<Tensor>;
extern template class NamedList<Module*>;

}  // namespace mytorch::nn

namespace mytorch {

// libtorch's name of what the functions of modules return: OrderedDict<std::string, Tensor>.
template <class Key, class Value>
requires(std::is_same_v<Key, std::string>) using OrderedDict = nn::NamedList<Value>;

}  // namespace mytorch
