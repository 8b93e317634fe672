// A minimal host and tensors for kernels. The benchmarks call kernels through function pointers, as
// the dispatcher does.
#pragma once

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/backend/dtype.h"

extern "C" int mytorch_cpu_openmp_init(const mt_host*, mt_backend*);

namespace mytorch::bench {

struct Context : mt_ctx {
  char* arena = nullptr;

  Context() : mt_ctx{} {
    size = sizeof(mt_ctx);
    device = {MT_DEVICE_CPU, 0};
    num_threads = 1;
    parallel_for = [](mt_ctx* ctx, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                      void* user) {
      const int64_t pieces = std::clamp<int64_t>((end - begin) / grain, 1, ctx->num_threads);
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(pieces))
      for (int64_t i = 0; i < pieces; ++i) {
        body(user, begin + (end - begin) * i / pieces, begin + (end - begin) * (i + 1) / pieces);
      }
    };
    scratch = [](mt_ctx* ctx, size_t bytes) -> void* {
      constexpr size_t kArena = size_t{64} << 20;
      Context& self = *static_cast<Context*>(ctx);
      if (self.arena == nullptr) self.arena = static_cast<char*>(std::aligned_alloc(64, kArena));
      return bytes <= kArena ? self.arena : nullptr;
    };
    set_error = [](mt_ctx*, int, const char* message) { std::abort(); };
  }
};

inline Context& context() {
  static Context ctx;
  return ctx;
}

inline const mt_kernel_entry& kernel(std::string_view op) {
  static const mt_backend backend = [] {
    static mt_host host{};
    host.size = sizeof(host);
    host.abi_major = MT_ABI_MAJOR;
    mt_backend filled{};
    filled.size = sizeof(filled);
    mytorch_cpu_openmp_init(&host, &filled);
    return filled;
  }();
  for (int64_t i = 0; i < backend.num_kernels; ++i) {
    if (backend.kernels[i].op == op) return backend.kernels[i];
  }
  std::abort();
}

// A tensor that owns its memory or views another tensor's. Large blocks are on huge pages, as the
// framework allocates them.
class Tensor {
 public:
  Tensor(Tensor&&) = default;  // a copy would point to the shape of the original
  Tensor(mt_dtype dtype, std::vector<int64_t> shape, double value = 1) : shape_(std::move(shape)) {
    strides_.resize(shape_.size());
    int64_t n = 1;
    for (size_t d = shape_.size(); d-- > 0; n *= shape_[d]) strides_[d] = n;
    const size_t bytes = static_cast<size_t>(n * sdk::itemsize(dtype));
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t room = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    memory_.reset(static_cast<char*>(std::aligned_alloc(kHugePage, room)), std::free);
    madvise(memory_.get(), room, MADV_HUGEPAGE);
    set(dtype, MT_TENSOR_CONTIGUOUS);
    sdk::visit_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(reinterpret_cast<T*>(memory_.get()), n, sdk::convert<T>(value));
    });
  }
  // Returns a view of the whole tensor.
  Tensor view(std::vector<int64_t> shape, std::vector<int64_t> strides) const {
    Tensor result;
    result.shape_ = std::move(shape);
    result.strides_ = std::move(strides);
    result.memory_ = memory_;
    result.set(tensor_->dl.dtype, 0);
    return result;
  }

  const mt_tensor* get() const { return tensor_.get(); }
  char* data() const { return memory_.get(); }
  int64_t bytes() const {
    int64_t n = sdk::itemsize(tensor_->dl.dtype);
    for (const int64_t size : shape_) n *= size;
    return n;
  }

 private:
  Tensor() = default;
  void set(mt_dtype dtype, uint32_t flags) {
    tensor_ = std::make_shared<mt_tensor>();
    tensor_->dl = {memory_.get(),
                   {MT_DEVICE_CPU, 0},
                   static_cast<int32_t>(shape_.size()),
                   dtype,
                   shape_.data(),
                   strides_.data(),
                   0};
    tensor_->flags = flags;
  }

  std::vector<int64_t> shape_, strides_;
  std::shared_ptr<char> memory_;
  std::shared_ptr<mt_tensor> tensor_;
};

}  // namespace mytorch::bench
