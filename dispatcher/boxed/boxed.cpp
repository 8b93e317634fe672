#include "dispatcher/boxed/boxed.h"

#include <string>
#include <variant>

namespace mytorch::unbox {

const Tensor& As<const Tensor&>::get(const Value& v) {
  static const Tensor* const undefined = new Tensor;
  return v.is_none() ? *undefined : v.tensor();
}
Operand As<const Operand&>::get(const Value& v) {
  if (v.is_none()) return {};
  if (std::holds_alternative<Tensor>(v.variant())) return Operand(v.tensor());
  return Operand(v.scalar());
}
Scalar As<const Scalar&>::get(const Value& v) { return v.scalar(); }
int64_t As<int64_t>::get(const Value& v) { return v.scalar().to_int(); }
double As<double>::get(const Value& v) { return v.scalar().to_double(); }
bool As<bool>::get(const Value& v) { return v.scalar().to_bool(); }
IntList As<IntList>::get(const Value& v) { return std::get<std::vector<int64_t>>(v.variant()); }
OptionalIntList As<OptionalIntList>::get(const Value& v) {
  if (v.is_none()) return {};
  return OptionalIntList(As<IntList>::get(v));
}
FloatList As<FloatList>::get(const Value& v) { return std::get<std::vector<double>>(v.variant()); }
OptionalFloatList As<OptionalFloatList>::get(const Value& v) {
  if (v.is_none()) return {};
  return OptionalFloatList(As<FloatList>::get(v));
}
TensorList As<TensorList>::get(const Value& v) { return v.tensors(); }
std::string_view As<std::string_view>::get(const Value& v) {
  return std::get<std::string>(v.variant());
}
ScalarType As<ScalarType>::get(const Value& v) { return std::get<ScalarType>(v.variant()); }
Device As<Device>::get(const Value& v) { return std::get<Device>(v.variant()); }
Generator As<Generator>::get(const Value& v) { return std::get<Generator>(v.variant()); }
Handle As<const Handle&>::get(const Value& v) {
  return v.is_none() ? Handle() : std::get<Handle>(v.variant());
}

void append(std::vector<Value>* results, const Tensor& result) { results->emplace_back(result); }
void append(std::vector<Value>* results, Tensor&& result) {
  results->emplace_back(std::move(result));
}
void append(std::vector<Value>* results, std::vector<Tensor>&& result) {
  results->emplace_back(std::move(result));
}

void* enter(const FormInfo& form, const Value* args, int size) {
  uint32_t flags = 0;
  for (int i = 0; i < size; ++i) {
    if (form.written_lists != 0 && (form.written_lists >> i & 1) == 0) continue;
    if (const auto* tensor = std::get_if<Tensor>(&args[i].variant())) {
      flags |= layer_flags(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&args[i].variant())) {
      flags |= layer_flags(TensorList(*list));
    }
  }
  return mytorch::enter(form, wanted_layers(flags));
}

void append_written(const FormInfo& form, const Value* args, std::vector<Value>* results) {
  for (int i = 0; i < form.outs; ++i) results->push_back(args[i]);
  for (int i = 0; i < 32; ++i) {
    if ((form.written_lists >> i & 1) != 0) results->push_back(args[i]);
  }
}

}  // namespace mytorch::unbox
