// The kind of a call, as far as measurements distinguish calls: the types, layouts and sizes of its
// operands (sizes in steps of a quarter octave), its integer arguments, and the number of threads.
#pragma once

#include <bit>
#include <string>
#include <vector>

#include "dispatcher/table/fields.h"
#include "dispatcher/table/op.h"

namespace mytorch {

// The locations, in an operator's argument struct, of the values that make up its signature.
struct SignaturePlan {
  explicit SignaturePlan(const OpInfo& op);

  static constexpr int kMaxTensors = 6;  // further tensors are ignored
  uint32_t tensors[kMaxTensors] = {};
  int num_tensors = 0;
  // Calls whose first tensor has fewer elements are not looked up: they take less than 100 times as
  // long as the lookup.
  int64_t threshold;
  bool only_tensors = true;         // whether the vectors below are empty
  std::vector<uint32_t> lists;      // of tensors
  std::vector<uint32_t> integers;   // int64_t: ints and bools
  std::vector<uint32_t> int_lists;  // mt_int_list
};

// Maps sizes that are measured as one kind to the same value: the exponent of a float64 and two
// bits of its fraction.
inline uint64_t size_bucket(int64_t size) {
  return std::bit_cast<uint64_t>(static_cast<double>(size)) >> 50;
}

namespace signatures {

// Each word is multiplied by its own constant and the products are summed, so that no
// multiplication waits for another.
inline constexpr uint64_t kFactor[2 * SignaturePlan::kMaxTensors + 1] = {
    0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0xd6e8feb86659fd93,
    0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53, 0x87c37b91114253d5, 0x4cf5ad432745937f,
    0x52dce729da3ed7a9, 0x38495ab5a5b2a3c1, 0xa0761d6478bd642f, 0xe7037ed1a0b428db,
    0x8ebc6af09c88c6e3};

// The upper bits depend on the whole sum; tables use them as the index. Never 0, which marks an
// empty entry.
inline uint64_t finish(uint64_t sum) { return sum * kFactor[0] | 1; }

inline uint64_t sizes_of(const mt_tensor* t) {
  const auto joined = [](uint64_t sizes, int64_t size) {
    return std::rotl(sizes, 13) ^ size_bucket(size);
  };
  // The common case, without a loop.
  if (t->dl.ndim == 2) return joined(size_bucket(t->dl.shape[0]), t->dl.shape[1]);
  uint64_t sizes = 0;
  const int64_t* const end = t->dl.shape + t->dl.ndim;
  for (const int64_t* size = t->dl.shape; size != end; ++size) {
    sizes = joined(sizes, *size);
  }
  return sizes;
}
inline uint64_t kind_of(const mt_tensor* t) {
  const uint64_t type = uint64_t{dtype_bits(t->dl.dtype)} << 32 | static_cast<uint32_t>(t->dl.ndim);
  return type + (uint64_t{t->flags & (MT_TENSOR_CONTIGUOUS | MT_TENSOR_HOST)} << 16);
}
inline uint64_t start(const mt_ctx& ctx, const void* args) {
  const mt_args_header& h = header(args);
  const uint64_t type = uint64_t{h.variant} << 32 | dtype_bits(h.compute);
  return type + (static_cast<uint64_t>(ctx.num_threads) << 48);
}

// Returns the signature of any call.
uint64_t general(const SignaturePlan& plan, const mt_ctx& ctx, const void* args);

// Computes the same signature for calls whose arguments are contiguous tensors only; returns false
// for other calls.
inline bool simple(const SignaturePlan& plan, const mt_ctx& ctx, const void* args, uint64_t* key) {
  if (!plan.only_tensors) return false;
  uint64_t sum = start(ctx, args);
  const uint64_t* factor = kFactor + 1;
  const uint32_t* const end = plan.tensors + plan.num_tensors;
  for (const uint32_t* at = plan.tensors; at != end; ++at, factor += 2) {
    const mt_tensor* t = field<const mt_tensor*>(args, *at);
    if (t == nullptr) continue;
    if ((t->flags & MT_TENSOR_CONTIGUOUS) == 0) return false;
    sum += sizes_of(t) * factor[0] + kind_of(t) * factor[1];
  }
  *key = finish(sum);
  return true;
}

}  // namespace signatures

// Returns whether the call is large enough for a lookup.
inline bool is_worth_looking(const SignaturePlan& plan, const void* args) {
  const mt_tensor* t = nullptr;
  if (plan.num_tensors > 0) [[likely]] {
    t = field<const mt_tensor*>(args, plan.tensors[0]);
  } else if (!plan.lists.empty()) {
    const auto& list = field<mt_tensor_list>(args, plan.lists[0]);
    t = list.size > 0 ? list.data[0] : nullptr;
  }
  if (t == nullptr) return false;
  int64_t n = 1;
  for (int32_t d = 0; d < t->dl.ndim; ++d) n *= t->dl.shape[d];
  return n >= plan.threshold;
}

inline uint64_t signature(const SignaturePlan& plan, const mt_ctx& ctx, const void* args) {
  return signatures::general(plan, ctx, args);
}

// Returns dtypes, shapes and threads as text: "float32[64,784] float32[784,32] threads=2".
std::string describe_call(const OpInfo& op, const mt_ctx& ctx, const void* args);

}  // namespace mytorch
