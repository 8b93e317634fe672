// Operators that a backend defines: docs/custom_operators.md.
//
//   struct args_scale {  // the arguments in the schema's order, then the results
//     mt_args_header header;
//     const mt_tensor* x;
//     double by;
//     const mt_tensor* out;
//   };
//   void infer_scale(const args_scale& args, mt_result* results) {
//     sdk::describe(results[0], sdk::TensorView(args.x).shape(), args.x->dl.dtype);
//   }
//   constexpr mt_operator kOperators[] = {
//       sdk::custom_operator<&infer_scale>("chip::scale(Tensor x, *, float by=2) -> Tensor",
//                                          "by * x", "none"),
//   };
//
// and in mt_backend_init, after fill_backend: sdk::bring_operators(*backend, kOperators).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mytorch/abi.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/kernel.h"

namespace mytorch::sdk {
inline namespace v1 {

namespace internal {
template <class Args>
struct ArgsOf<void (*)(const Args&, mt_result*)> {
  using type = Args;
};
}  // namespace internal

// Sets the shape, of at most MT_MAX_DIMS dimensions, and the dtype of a result.
inline void describe(mt_result& result, std::span<const int64_t> shape, mt_dtype dtype) {
  result.ndim = static_cast<int32_t>(shape.size());
  result.dtype = dtype;
  std::copy(shape.begin(), shape.end(), result.shape);
}

// Converts `void infer(const Args&, mt_result*)` to mt_operator::infer. The function throws
// sdk::Error for invalid arguments.
template <auto infer_fn>
int infer_entry(void* /*self*/, const void* args, mt_result* results) noexcept {
  using Args = typename internal::ArgsOf<decltype(infer_fn)>::type;
  return status_of(
      [&] { internal::with_args<Args>(args, [&](const Args& full) { infer_fn(full, results); }); },
      [](int status, const char* message) {
        if (host() != nullptr && host()->set_error != nullptr) host()->set_error(status, message);
      });
}

// Returns a record of an operator. `gradient` is "none", or the name of an earlier operator that
// computes the gradient.
template <auto infer_fn>
constexpr mt_operator custom_operator(const char* schema, const char* doc, const char* gradient) {
  return {sizeof(mt_operator), schema, doc, gradient, &infer_entry<infer_fn>, nullptr};
}

// Adds operators to the backend. Hosts that do not support them ignore them.
inline void bring_operators(mt_backend& backend, std::span<const mt_operator> operators) {
  if (backend.size < offsetof(mt_backend, num_operators) + sizeof(backend.num_operators)) return;
  backend.operators = operators.data();
  backend.num_operators = static_cast<int64_t>(operators.size());
}

}  // namespace v1
}  // namespace mytorch::sdk
