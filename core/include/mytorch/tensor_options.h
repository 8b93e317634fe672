// The dtype and device of a new tensor, as one argument.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <type_traits>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/tensor.h"

namespace mytorch {

// How the elements lie in memory: every tensor has strides.
enum class Layout : int8_t { kStrided };
inline constexpr Layout kStrided = Layout::kStrided;

// Settings of a new tensor, in any order; what is not set has the function's default:
//
//   zeros({2, 3}, dtype(kFloat64).device("cuda").requires_grad(true))
//   ones({3}, x.options())
//
// Functions that create tensors take options in place of their dtype and device, or a device alone.
class TensorOptions {
 public:
  constexpr TensorOptions() = default;
  constexpr TensorOptions(ScalarType dtype) : dtype_(dtype), has_dtype_(true) {}  // NOLINT
  constexpr TensorOptions(Device device) : device_(device), has_device_(true) {}  // NOLINT
  TensorOptions(const char* device) : TensorOptions(Device(device)) {}            // NOLINT

  constexpr TensorOptions dtype(ScalarType dtype) const {
    TensorOptions result = *this;
    result.dtype_ = dtype;
    result.has_dtype_ = true;
    return result;
  }
  template <class T>
  constexpr TensorOptions dtype() const {
    return dtype(scalar_type_of<T>());
  }
  constexpr TensorOptions device(Device device) const {
    TensorOptions result = *this;
    result.device_ = device;
    result.has_device_ = true;
    return result;
  }
  constexpr TensorOptions device(Device type, int index) const {
    return device(Device(type, index));
  }
  constexpr TensorOptions requires_grad(bool requires_grad) const {
    TensorOptions result = *this;
    result.requires_grad_ = requires_grad;
    return result;
  }
  constexpr TensorOptions layout(Layout) const { return *this; }
  // In memory of the host from which copies to a GPU need not be waited for.
  constexpr TensorOptions pinned_memory(bool pinned_memory) const {
    TensorOptions result = *this;
    result.pinned_memory_ = pinned_memory;
    return result;
  }

  constexpr ScalarType dtype() const { return dtype_; }
  constexpr Device device() const { return device_; }
  constexpr bool requires_grad() const { return requires_grad_; }
  constexpr bool pinned_memory() const { return pinned_memory_; }
  constexpr Layout layout() const { return kStrided; }
  constexpr bool has_dtype() const { return has_dtype_; }
  constexpr bool has_device() const { return has_device_; }
  constexpr std::optional<ScalarType> dtype_opt() const {
    if (has_dtype_) return dtype_;
    return {};
  }
  constexpr std::optional<Device> device_opt() const {
    if (has_device_) return device_;
    return {};
  }

  // Returns the new tensor, in pinned memory and requiring a gradient if the options say so.
  Tensor finish(Tensor made) const {
    if (pinned_memory_) made = made.pin_memory();
    if (requires_grad_) made.requires_grad_();
    return made;
  }

 private:
  ScalarType dtype_ = kFloat32;
  Device device_ = kCPU;
  bool has_dtype_ = false;
  bool has_device_ = false;
  bool requires_grad_ = false;
  bool pinned_memory_ = false;
};
// Writes the settings, as dtype=float32, device=cpu, requires_grad=false.
std::ostream& operator<<(std::ostream& out, const TensorOptions& options);

constexpr TensorOptions dtype(ScalarType dtype) { return TensorOptions(dtype); }
constexpr TensorOptions device(Device device) { return TensorOptions(device); }
constexpr TensorOptions requires_grad(bool requires_grad = true) {
  return TensorOptions().requires_grad(requires_grad);
}

namespace detail {
// What a function that creates tensors takes in place of its dtype and device. Deduced, so that
// `{}` still leaves the dtype out.
template <class T>
concept Options = std::is_same_v<T, TensorOptions> || std::is_same_v<T, Device>;
}  // namespace detail

inline TensorOptions Tensor::options() const { return TensorOptions(dtype()).device(device()); }
inline Layout Tensor::layout() const {
  checked();
  return kStrided;
}

}  // namespace mytorch
