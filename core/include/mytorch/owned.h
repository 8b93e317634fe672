// The pointer of an object to a part that its header only declares.
#pragma once

#include <utility>

namespace mytorch {

// A std::unique_ptr, which costs each file that includes its owner 7 ms of compile time, without
// what owners do not need. The owner's destructor and moves are defined where T is.
template <class T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T* object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    Owned old(std::move(other));
    std::swap(object_, old.object_);
    return *this;
  }
  ~Owned() { delete object_; }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace mytorch
