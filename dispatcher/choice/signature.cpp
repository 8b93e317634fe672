#include "dispatcher/choice/signature.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/types/errors.h"

namespace mytorch {
namespace {

std::string describe(const mt_tensor* t) {
  if (t->storage == nullptr) return "number";
  const auto layout = [&]() -> std::string {
    if ((t->flags & MT_TENSOR_CONTIGUOUS) != 0) return "";
    return absl::StrCat(
        "/", absl::StrJoin(IntList(t->dl.strides, static_cast<size_t>(t->dl.ndim)), ","));
  };
  return absl::StrCat(dtype_name(from_abi(t->dl.dtype)), "[",
                      absl::StrJoin(IntList(t->dl.shape, static_cast<size_t>(t->dl.ndim)), ","),
                      layout(), "]");
}

}  // namespace

SignaturePlan::SignaturePlan(const OpInfo& op) {
  for (int i = 0; i < op.num_args; ++i) {
    const ArgInfo& arg = op.args[i];
    if (arg.offset == kNoField) continue;
    switch (arg.type) {
      case ArgType::kTensor:
      case ArgType::kOperand:
        if (num_tensors < kMaxTensors) tensors[num_tensors++] = arg.offset;
        break;
      case ArgType::kTensorList:
        lists.push_back(arg.offset);
        break;
      case ArgType::kInt:
      case ArgType::kBool:
        if (!arg.optional) integers.push_back(arg.offset);
        break;
      case ArgType::kIntList:
        int_lists.push_back(arg.offset);
        break;
      default:
        break;
    }
  }
  only_tensors = lists.empty() && integers.empty() && int_lists.empty();
  threshold = op.meaning == Meaning::kPointwise || op.meaning == Meaning::kReduce ? 16384 : 1024;
}

namespace {

// Returns the dimension of stride 1, counted from the last; 7 if there is none.
uint64_t fastest_dim(const mt_tensor* t) {
  const int n = std::min(t->dl.ndim, 7);
  for (int i = 0; i < n; ++i) {
    const int d = t->dl.ndim - 1 - i;
    if (t->dl.strides[d] == 1 && t->dl.shape[d] != 1) return static_cast<uint64_t>(i);
  }
  return 7;
}

uint64_t kind_with_layout(const mt_tensor* t) {
  const uint64_t kind = signatures::kind_of(t);
  return (t->flags & MT_TENSOR_CONTIGUOUS) != 0 ? kind : kind | (1 + fastest_dim(t)) << 8;
}

}  // namespace

namespace signatures {

uint64_t general(const SignaturePlan& plan, const mt_ctx& ctx, const void* args) {
  uint64_t sum = start(ctx, args);
  for (int i = 0; i < plan.num_tensors; ++i) {
    const mt_tensor* t = field<const mt_tensor*>(args, plan.tensors[i]);
    if (t == nullptr) continue;
    sum += sizes_of(t) * kFactor[2 * i + 1] + kind_with_layout(t) * kFactor[2 * i + 2];
  }
  const auto add = [&](uint64_t word) { sum = finish(sum ^ word); };
  for (const uint32_t offset : plan.lists) {
    const auto& list = field<mt_tensor_list>(args, offset);
    add(static_cast<uint64_t>(list.size));
    for (int64_t i = 0; i < list.size; ++i) {
      if (list.data[i] == nullptr) continue;
      add(sizes_of(list.data[i]));
      add(kind_with_layout(list.data[i]));
    }
  }
  for (const uint32_t offset : plan.integers) {
    add(static_cast<uint64_t>(field<int64_t>(args, offset)));
  }
  for (const uint32_t offset : plan.int_lists) {
    const auto& list = field<mt_int_list>(args, offset);
    add(static_cast<uint64_t>(list.data != nullptr ? list.size : -1));
    for (int64_t i = 0; list.data != nullptr && i < list.size; ++i) {
      add(static_cast<uint64_t>(list.data[i]));
    }
  }
  return finish(sum);
}

}  // namespace signatures

std::string describe_call(const OpInfo& op, const mt_ctx& ctx, const void* args) {
  std::vector<std::string> parts;
  for (int i = 0; i < op.num_args; ++i) {
    const ArgInfo& arg = op.args[i];
    if (arg.offset == kNoField) continue;
    switch (arg.type) {
      case ArgType::kTensor:
      case ArgType::kOperand: {
        const auto* t = field<const mt_tensor*>(args, arg.offset);
        parts.push_back(t != nullptr ? describe(t) : "None");
        break;
      }
      case ArgType::kTensorList: {
        const auto& list = field<mt_tensor_list>(args, arg.offset);
        std::vector<std::string> items;
        for (int64_t k = 0; k < list.size; ++k) items.push_back(describe(list.data[k]));
        parts.push_back(absl::StrCat("(", absl::StrJoin(items, " "), ")"));
        break;
      }
      case ArgType::kInt:
      case ArgType::kBool:
        if (!arg.optional) {
          parts.push_back(absl::StrCat(arg.name, "=", field<int64_t>(args, arg.offset)));
        }
        break;
      case ArgType::kIntList: {
        const auto& list = field<mt_int_list>(args, arg.offset);
        if (list.data != nullptr) {
          parts.push_back(absl::StrCat(
              arg.name, "=(",
              absl::StrJoin(IntList(list.data, static_cast<size_t>(list.size)), ","), ")"));
        }
        break;
      }
      default:
        break;
    }
  }
  parts.push_back(absl::StrCat("threads=", ctx.num_threads));
  return absl::StrJoin(parts, " ");
}

}  // namespace mytorch
