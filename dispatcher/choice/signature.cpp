#include "dispatcher/choice/signature.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/types/errors.h"
#include "dispatcher/table/fields.h"

namespace mytorch {
namespace {

constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;

inline uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * kMultiplier;
  return hash ^ hash >> 32;
}

// The dimension whose neighbours are neighbours in memory, counted from the last; 7: none is.
inline uint64_t fastest_dim(const mt_tensor* t) {
  if ((t->flags & MT_TENSOR_DENSE) != 0) return 0;
  const int n = std::min(t->dl.ndim, 7);
  for (int i = 0; i < n; ++i) {
    const int d = t->dl.ndim - 1 - i;
    if (t->dl.strides[d] == 1 && t->dl.shape[d] != 1) return static_cast<uint64_t>(i);
  }
  return 7;
}

inline uint64_t mix_tensor(uint64_t hash, const mt_tensor* t) {
  if (t == nullptr) return mix(hash, 0);
  uint64_t sizes = 0;
  for (int32_t d = 0; d < t->dl.ndim; ++d) {
    sizes = std::rotl(sizes, 8) ^ size_bucket(t->dl.shape[d]);
  }
  const uint64_t kind = uint64_t{dtype_bits(t->dl.dtype)} << 32 |
                        uint64_t{t->flags & (MT_TENSOR_DENSE | MT_TENSOR_HOST)} << 16 |
                        fastest_dim(t) << 8 | static_cast<uint64_t>(t->dl.ndim);
  return mix(mix(hash, sizes), kind);
}

std::string describe(const mt_tensor* t) {
  if (t->storage == nullptr) return "number";
  const auto layout = [&]() -> std::string {
    if ((t->flags & MT_TENSOR_DENSE) != 0) return "";
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
        tensors.push_back(arg.offset);
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
  threshold = op.meaning == Meaning::kPointwise || op.meaning == Meaning::kReduce ? 16384 : 1024;
}

bool is_worth_looking(const SignaturePlan& plan, const void* args) {
  const mt_tensor* t = nullptr;
  if (!plan.tensors.empty()) {
    t = field<const mt_tensor*>(args, plan.tensors[0]);
  } else if (!plan.lists.empty()) {
    const auto& list = field<mt_tensor_list>(args, plan.lists[0]);
    if (list.size > 0) t = list.data[0];
  }
  if (t == nullptr) return false;
  int64_t n = 1;
  for (int32_t d = 0; d < t->dl.ndim; ++d) n *= t->dl.shape[d];
  return n >= plan.threshold;
}

uint64_t signature(const SignaturePlan& plan, const mt_ctx& ctx, const void* args) {
  const mt_args_header& h = header(args);
  uint64_t hash = mix(uint64_t{dtype_bits(h.compute)} << 32 | uint64_t{h.variant} << 16,
                      static_cast<uint64_t>(ctx.num_threads));
  for (const uint32_t offset : plan.tensors) {
    hash = mix_tensor(hash, field<const mt_tensor*>(args, offset));
  }
  for (const uint32_t offset : plan.lists) {
    const auto& list = field<mt_tensor_list>(args, offset);
    hash = mix(hash, static_cast<uint64_t>(list.size));
    for (int64_t i = 0; i < list.size; ++i) hash = mix_tensor(hash, list.data[i]);
  }
  for (const uint32_t offset : plan.integers) {
    hash = mix(hash, static_cast<uint64_t>(field<int64_t>(args, offset)));
  }
  for (const uint32_t offset : plan.int_lists) {
    const auto& list = field<mt_int_list>(args, offset);
    hash = mix(hash, static_cast<uint64_t>(list.data != nullptr ? list.size : -1));
    for (int64_t i = 0; list.data != nullptr && i < list.size; ++i) {
      hash = mix(hash, static_cast<uint64_t>(list.data[i]));
    }
  }
  return hash;
}

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
