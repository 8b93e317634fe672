// A minimal host, context and tensors for tests of a backend alone, without libmytorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/tensor.h"

extern "C" int mytorch_reference_init(const mt_host*, mt_backend*);

namespace mytorch::testing {

using Shape = std::vector<int64_t>;

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

// A tensor, or a view of one: they share storage. Converts to the operand that kernels take.
class TestTensor {
 public:
  TestTensor() = default;

  // Contiguous; every value converted to T.
  template <class T, class V = double>
  static TestTensor of(Shape shape, const std::vector<V>& values) {
    TestTensor tensor = empty(sdk::dtype_of<T>, std::move(shape));
    for (size_t i = 0; i < values.size(); ++i) {
      tensor.view().data<T>()[i] = sdk::convert<T>(static_cast<V>(values[i]));
    }
    return tensor;
  }
  // Contiguous, filled with bytes 0xA5, to reveal elements that a kernel fails to write.
  static TestTensor empty(mt_dtype dtype, Shape shape) {
    TestTensor tensor;
    int64_t numel = 1;
    Shape strides(shape.size());
    for (size_t d = shape.size(); d-- > 0;) {
      strides[d] = numel;
      numel *= shape[d];
    }
    tensor.bytes_ =
        std::make_shared<std::vector<char>>(static_cast<size_t>(numel * sdk::itemsize(dtype)) + 1);
    std::fill(tensor.bytes_->begin(), tensor.bytes_->end(), '\xA5');
    tensor.set(dtype, std::move(shape), std::move(strides), tensor.bytes_->data());
    return tensor;
  }
  template <class T>
  static TestTensor host(T value) {
    TestTensor tensor = of<T, T>({}, {value});
    tensor.state_->tensor.flags |= MT_TENSOR_HOST;
    return tensor;
  }

  // A view with other strides; `offset` is in elements.
  TestTensor as_strided(Shape shape, Shape strides, int64_t offset = 0) const {
    TestTensor view;
    view.bytes_ = bytes_;
    view.set(dtype(), std::move(shape), std::move(strides),
             static_cast<char*>(this->view().raw()) + offset * sdk::itemsize(dtype()));
    return view;
  }
  // Every dimension reversed.
  TestTensor reversed() const {
    const sdk::TensorView v = view();
    return as_strided(Shape(v.shape().rbegin(), v.shape().rend()),
                      Shape(v.strides().rbegin(), v.strides().rend()));
  }

  operator const mt_tensor*() const { return state_ ? &state_->tensor : nullptr; }  // NOLINT
  sdk::TensorView view() const { return &state_->tensor; }
  mt_dtype dtype() const { return state_->tensor.dl.dtype; }

  // Row-major, converted to T.
  template <class T>
  std::vector<T> values() const;

 private:
  struct State {
    mt_tensor tensor{};
    Shape shape;
    Shape strides;
  };

  void set(mt_dtype dtype, Shape shape, Shape strides, char* data) {
    state_ = std::make_shared<State>();
    state_->shape = std::move(shape);
    state_->strides = std::move(strides);
    mt_dltensor& dl = state_->tensor.dl;
    dl.data = data;
    dl.device = {MT_DEVICE_CPU, 0};
    dl.ndim = static_cast<int32_t>(state_->shape.size());
    dl.dtype = dtype;
    dl.shape = state_->shape.data();
    dl.strides = state_->strides.data();
  }

  std::shared_ptr<std::vector<char>> bytes_;
  std::shared_ptr<State> state_;
};

// Returns where the i-th element is, in row-major order.
inline int64_t offset_of(const sdk::TensorView& v, int64_t i) {
  int64_t offset = 0;
  for (int d = v.ndim() - 1; d >= 0; --d) {
    offset += i % v.size(d) * v.stride(d);
    i /= v.size(d);
  }
  return offset;
}

// Outside of the class, so that a program of many files can instantiate it in one of them.
template <class T>
std::vector<T> TestTensor::values() const {
  std::vector<T> result;
  const sdk::TensorView v = view();
  for (int64_t i = 0; i < v.numel(); ++i) {
    result.push_back(sdk::visit_dtype(v.dtype(), [&](auto tag) {
      using E = typename decltype(tag)::type;
      return sdk::convert<T>(v.data<E>()[offset_of(v, i)]);
    }));
  }
  return result;
}

// A context that records the last error and the created outputs. With threads > 1, loops are cut
// into pieces of `grain`, which run one after another, from the last to the first.
class TestContext {
 public:
  explicit TestContext(int32_t threads = 1) {
    ctx_.base.size = sizeof(mt_ctx);
    ctx_.base.device = {MT_DEVICE_CPU, 0};
    ctx_.base.num_threads = threads;
    ctx_.owner = this;
    ctx_.base.parallel_for = [](mt_ctx*, int64_t begin, int64_t end, int64_t grain,
                                mt_range_fn body, void* user) {
      for (int64_t e = end; e > begin;) {
        const int64_t b = begin + (e - begin - 1) / grain * grain;
        body(user, b, e);
        e = b;
      }
    };
    ctx_.base.scratch = [](mt_ctx* ctx, size_t bytes) -> void* {
      TestContext& self = owner(ctx);
      if (self.out_of_memory) return nullptr;
      self.scratch_.emplace_back(bytes + 64);
      const auto address = reinterpret_cast<uintptr_t>(self.scratch_.back().data());
      return reinterpret_cast<void*>((address + 63) / 64 * 64);
    };
    ctx_.base.set_error = [](mt_ctx* ctx, int, const char* message) { owner(ctx).error = message; };
    ctx_.base.make_output = [](mt_ctx* ctx, int32_t, const int64_t* shape,
                               int32_t ndim) -> const mt_tensor* {
      TestContext& self = owner(ctx);
      self.outputs.push_back(TestTensor::empty(sdk::dtype_of<int64_t>, Shape(shape, shape + ndim)));
      return self.outputs.back();
    };
  }
  TestContext(const TestContext&) = delete;

  mt_ctx* get() { return &ctx_.base; }

  std::string error;
  std::vector<TestTensor> outputs;
  bool out_of_memory = false;

 private:
  struct Ctx {
    mt_ctx base{};
    TestContext* owner = nullptr;
  };
  static TestContext& owner(mt_ctx* ctx) { return *reinterpret_cast<Ctx*>(ctx)->owner; }

  Ctx ctx_;
  std::deque<std::vector<char>> scratch_;
};

// A backend, loaded once through its init function.
template <int (*init)(const mt_host*, mt_backend*)>
const mt_backend& loaded() {
  static mt_host host{};
  static const mt_backend backend = [] {
    host.size = sizeof(mt_host);
    host.abi_major = MT_ABI_MAJOR;
    host.abi_minor = MT_ABI_MINOR;
    host.set_error = [](int, const char* message) { std::fprintf(stderr, "%s\n", message); };
    mt_backend filled{};
    filled.size = sizeof(mt_backend);
    if (init(&host, &filled) != MT_OK) std::abort();
    return filled;
  }();
  return backend;
}
inline const mt_backend& reference() { return loaded<mytorch_reference_init>(); }

// Returns the kernel that takes the call, or NULL, with the reason of every kernel, if none does.
template <class Args>
const mt_kernel_entry* taker(const mt_backend& backend, std::string_view op, Args& args,
                             std::string* reasons) {
  args.header.size = sizeof(Args);
  for (int64_t i = 0; i < backend.num_kernels; ++i) {
    const mt_kernel_entry& kernel = backend.kernels[i];
    if (kernel.op != op) continue;
    const char* why = kernel.supports == nullptr ? nullptr : kernel.supports(kernel.self, &args);
    if (why == nullptr) return &kernel;
    *reasons += std::string(kernel.name) + ": " + why + "\n";
  }
  if (reasons->empty()) *reasons = "no such op: " + std::string(op);
  return nullptr;
}

// Runs that kernel on an argument struct, after completing the struct's header. Returns the status;
// the message is in context.error.
template <class Args>
int run_on(const mt_backend& backend, std::string_view op, Args& args, mt_dtype compute,
           TestContext& context) {
  args.header.compute = compute;
  const mt_kernel_entry* kernel = taker(backend, op, args, &context.error);
  return kernel == nullptr ? -1 : kernel->run(kernel->self, context.get(), &args);
}
// Like run(), but returns an empty string or the error message.
template <class Args>
std::string run_on(const mt_backend& backend, std::string_view op, Args& args, mt_dtype compute,
                   int threads = 1) {
  TestContext context(threads);
  const int status = run_on(backend, op, args, compute, context);
  return status == MT_OK ? "" : "status " + std::to_string(status) + ": " + context.error;
}

// Does the same for the reference backend.
template <class Args>
int run_op(std::string_view op, Args& args, mt_dtype compute, TestContext& context) {
  return run_on(reference(), op, args, compute, context);
}
template <class Args>
std::string run_op(std::string_view op, Args& args, mt_dtype compute) {
  return run_on(reference(), op, args, compute);
}

inline mt_int_list list(const std::vector<int64_t>& values) {
  static const int64_t none = 0;
  return {values.empty() ? &none : values.data(), static_cast<int64_t>(values.size())};
}
inline mt_scalar scalar(int64_t value) {
  mt_scalar s{};
  s.v.i = value;
  s.kind = MT_SCALAR_INT;
  return s;
}
inline mt_scalar scalar(int value) { return scalar(int64_t{value}); }
inline mt_scalar scalar(double value) {
  mt_scalar s{};
  s.v.d = value;
  s.kind = MT_SCALAR_FLOAT;
  return s;
}

}  // namespace mytorch::testing
