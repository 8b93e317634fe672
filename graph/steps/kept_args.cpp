#include "graph/steps/kept_args.h"

#include <cstring>

#include "dispatcher/table/fields.h"

namespace mytorch::graph {

template <class T>
const T* KeptArgs::keep(const T* data, size_t size) {
  if (data == nullptr) return nullptr;
  parts_.push_back(std::make_unique<char[]>(size * sizeof(T)));
  std::memcpy(parts_.back().get(), data, size * sizeof(T));
  return reinterpret_cast<const T*>(parts_.back().get());
}

// A host operand that was made from a number has no storage, and lies in the frame of its call.
const mt_tensor* KeptArgs::keep_number(const mt_tensor* number) {
  auto* kept = const_cast<mt_tensor*>(keep(number, 1));
  kept->dl.data = const_cast<char*>(keep(static_cast<const char*>(number->dl.data),
                                         static_cast<size_t>(number->dl.dtype.bits) / 8));
  return kept;
}

KeptArgs::KeptArgs(const OpInfo& op, const void* args, const Replace& replace)
    : bytes_(std::make_unique<char[]>(op.args_size)) {
  std::memcpy(bytes_.get(), args,
              header(args).size < op.args_size ? header(args).size : op.args_size);
  const auto replaced = [&](const mt_tensor* tensor) {
    return tensor->storage == nullptr ? keep_number(tensor) : replace(tensor);
  };
  for (int i = 0; i < op.num_args; ++i) {
    const ArgInfo& arg = op.args[i];
    if (arg.offset == kNoField) continue;
    switch (arg.type) {
      case ArgType::kTensor:
      case ArgType::kOperand: {
        auto& tensor = field<const mt_tensor*>(get(), arg.offset);
        if (tensor != nullptr) tensor = replaced(tensor);
        break;
      }
      case ArgType::kTensorList: {
        auto& list = field<mt_tensor_list>(get(), arg.offset);
        auto* tensors =
            const_cast<const mt_tensor**>(keep(list.data, static_cast<size_t>(list.size)));
        for (int64_t k = 0; k < list.size; ++k) {
          if (tensors[k] != nullptr) tensors[k] = replaced(tensors[k]);
        }
        list.data = tensors;
        break;
      }
      case ArgType::kIntList: {
        auto& list = field<mt_int_list>(get(), arg.offset);
        list.data = keep(list.data, static_cast<size_t>(list.size));
        break;
      }
      case ArgType::kFloatList: {
        auto& list = field<mt_float_list>(get(), arg.offset);
        list.data = keep(list.data, static_cast<size_t>(list.size));
        break;
      }
      case ArgType::kStr: {
        auto& text = field<const char*>(get(), arg.offset);
        if (text != nullptr) text = keep(text, std::strlen(text) + 1);
        break;
      }
      case ArgType::kScalar: {
        auto& number = field<mt_scalar>(get(), arg.offset);
        if (number.kind == MT_SCALAR_COMPLEX) number.v.z = keep(number.v.z, 2);
        break;
      }
      default:
        break;
    }
  }
  for_each_output(op, get(),
                  [&](const mt_tensor*& tensor, const OutputInfo&) { tensor = replaced(tensor); });
}

}  // namespace mytorch::graph
