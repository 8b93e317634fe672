// Helpers of recording.h and of generated gradient formulas, beyond mytorch/autograd/record.h.
#pragma once

#include <string>
#include <vector>

#include "core/types/dims.h"
#include "dispatcher/table/op.h"
#include "mytorch/autograd/record.h"
#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

// A saved Operand: a saved tensor or a number.
class SavedOperand {
 public:
  SavedOperand() = default;
  explicit SavedOperand(const Operand& operand) {
    if (operand.is_tensor()) {
      tensor_ = SavedTensor(operand);
    } else {
      set_scalar(operand);
    }
  }
  static SavedOperand before_write(const Operand& operand, const Tensor& written) {
    SavedOperand saved;
    if (operand.is_tensor()) {
      saved.tensor_ = SavedTensor::before_write(operand.tensor(), written);
    } else {
      saved.set_scalar(operand);
    }
    return saved;
  }
  void release() {
    if (!is_scalar_) tensor_.release();
  }

 private:
  friend class UnpackedOperand;
  void set_scalar(const Operand& operand) {
    is_scalar_ = operand.is_scalar();
    if (is_scalar_) scalar_ = operand.scalar();
  }
  SavedTensor tensor_;
  Scalar scalar_;
  bool is_scalar_ = false;
};

// A saved operand during one apply(). `otherwise` replaces a tensor that was not saved because no
// wanted gradient reads it.
class UnpackedOperand {
 public:
  UnpackedOperand(const SavedOperand& saved, const Node* owner, const Tensor& otherwise = {})
      : scalar_(saved.scalar_), is_scalar_(saved.is_scalar_) {
    if (!is_scalar_) tensor_ = saved.tensor_.defined() ? saved.tensor_.unpack(owner) : otherwise;
  }
  Operand operand() const {
    if (is_scalar_) return Operand(scalar_);
    return tensor_.defined() ? Operand(tensor_) : Operand();
  }

 private:
  Tensor tensor_;
  Scalar scalar_;
  bool is_scalar_;
};

struct GeneratedNode : Node {
  explicit GeneratedNode(bool is_part) : Node(is_part ? kPart : kUnfitted) {}
};

// Returns zeros in the shape, type and device of the input of edge i.
Tensor zero_gradient(const Node* node, uint32_t i, const Tensor& like);

// Throws Error(kUnsupported) if an argument requires a gradient that the operator does not have.
[[noreturn]] void fail_no_gradient(const char* op, const char* arg);
template <class T>
void refuse_gradient(const T& value, const OpInfo& op, int arg) {
  if (requires_grad(value)) [[unlikely]]
    fail_no_gradient(op.base, op.args[arg].name);
}

inline const Tensor* given_gradient(const Tensor* grads, int n) {
  for (int i = 0; i < n; ++i) {
    if (grads[i].defined()) return &grads[i];
  }
  return nullptr;
}
inline bool wants_any(const Node* node, uint32_t first, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    if (node->wants(first + i)) return true;
  }
  return false;
}

// Returns the saved tensor, or `otherwise` if it was not saved because no wanted gradient reads it.
inline Tensor unpack(const SavedTensor& saved, const Node* owner, const Tensor& otherwise = {}) {
  return saved.defined() ? saved.unpack(owner) : otherwise;
}

// Moves result i to `out` if it is wanted.
template <size_t i>
void give(Tensor& out, const bool* wanted, Tensor& result) {
  if (wanted[i]) out = std::move(result);
}
template <size_t i, class... T>
void give(Tensor& out, const bool* wanted, std::tuple<T...>& results) {
  if (wanted[i]) out = std::move(std::get<i>(results));
}

// ---- facts about values, and arguments that outlive the call ----

inline Dims shape_of(const Tensor& t) { return t.defined() ? to_dims(t.sizes()) : Dims(); }
inline Dims shape_of(const Operand& o) {
  return o.is_tensor() ? to_dims(o.impl()->sizes()) : Dims();
}
inline ScalarType dtype_of(const Tensor& t) { return t.defined() ? t.dtype() : kFloat32; }
inline ScalarType dtype_of(const Operand& o) {
  return o.is_tensor() ? o.impl()->dtype : o.scalar().type();
}
inline Device device_of(const Tensor& t) { return t.defined() ? t.device() : kCPU; }
inline Device device_of(const Operand& o) { return o.is_tensor() ? o.impl()->device() : kCPU; }
inline int64_t ndim_of(const Tensor& t) { return t.defined() ? t.dim() : 0; }
inline int64_t ndim_of(const Operand& o) { return o.is_tensor() ? o.impl()->abi.dl.ndim : 0; }
inline int64_t numel_of(const Tensor& t) { return t.defined() ? t.numel() : 0; }
inline int64_t numel_of(const Operand& o) { return o.is_tensor() ? o.impl()->numel : 1; }
inline bool is_given(const Tensor& t) { return t.defined(); }
inline bool is_given(const Operand& o) { return o.present(); }
template <class T>
bool is_given(const std::optional<T>& x) {
  return x.has_value();
}
inline bool is_given(const OptionalIntList& x) { return x.has_value(); }
inline std::vector<Dims> shapes_of(TensorList list) {
  std::vector<Dims> shapes;
  for (const Tensor& t : list) shapes.push_back(shape_of(t));
  return shapes;
}

struct ShapeOf {
  auto operator()(const auto& x) const { return shape_of(x); }
  auto operator()(TensorList list) const { return shapes_of(list); }
};
struct StridesOf {
  auto operator()(const Tensor& t) const { return to_dims(t.strides()); }
};
struct DTypeOf {
  auto operator()(const auto& x) const { return dtype_of(x); }
};
struct DeviceOf {
  auto operator()(const auto& x) const { return device_of(x); }
};
struct NDimOf {
  auto operator()(const auto& x) const { return ndim_of(x); }
};
struct NumelOf {
  auto operator()(const auto& x) const { return numel_of(x); }
};
struct LengthOf {
  auto operator()(TensorList list) const { return static_cast<int64_t>(list.size()); }
};
struct IsGiven {
  auto operator()(const auto& x) const { return is_given(x); }
};

inline int64_t element(IntList list, int64_t i) {
  return list[static_cast<size_t>(i < 0 ? i + static_cast<int64_t>(list.size()) : i)];
}

inline Dims keep(IntList list) { return to_dims(list); }
inline std::optional<Dims> keep(const OptionalIntList& list) {
  return list.has_value() ? std::optional<Dims>(to_dims(*list)) : std::nullopt;
}
inline std::string keep(const Str& text) { return std::string(text); }
inline std::optional<std::string> keep(const std::optional<std::string_view>& text) {
  return text.has_value() ? std::optional<std::string>(std::string(*text)) : std::nullopt;
}
inline std::vector<double> keep(FloatList list) { return {list.begin(), list.end()}; }
template <class T>
T keep(const T& value) {
  return value;
}

// Converts a kept argument back to the type of its parameter.
template <class P, class T>
auto given(const T& kept) {
  if constexpr (std::is_same_v<T, Dims>) {
    return as_list(kept);
  } else if constexpr (std::is_same_v<T, std::optional<Dims>>) {
    return kept.has_value() ? OptionalIntList(as_list(*kept)) : OptionalIntList();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return Str(kept);
  } else if constexpr (std::is_same_v<T, std::optional<std::string>>) {
    return kept.has_value() ? std::optional<std::string_view>(*kept) : std::nullopt;
  } else {
    return kept;
  }
}

// Fills the columns of autograd and autocast in the operator table. Generated.
void install_wrappers();

}  // namespace mytorch::autograd
