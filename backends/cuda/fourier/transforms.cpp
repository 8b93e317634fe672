// Fourier transforms by cuFFT, of up to three dimensions at once. The library takes the transformed
// dimensions last and without gaps, or one dimension of any stride whose lines are at equal
// distances, such as the columns of matrices: other operands are copied. As its transforms to real
// points overwrite their input and want spectra of real points, those have one dimension and a
// copy.
#if __has_include(<cufft.h>)

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backends/cuda/fourier/plans.h"
#include "backends/cuda/fourier/points.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/_fft_c2c.h"
#include "mytorch/abi_ops/_fft_c2r.h"
#include "mytorch/abi_ops/_fft_r2c.h"
#include "mytorch/backend.h"
#include "mytorch/backend/fourier.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr size_t kMostTransformed = 3;

// A view with other dimensions, or contiguous scratch memory of its shape.
class Points {
 public:
  explicit Points(const TensorView& x) : tensor_(*x.get()) {
    shape_.assign(x.shape().begin(), x.shape().end());
    strides_.assign(x.strides().begin(), x.strides().end());
    attach();
  }
  // The dimensions in another order.
  Points(const TensorView& x, std::span<const int> order) : tensor_(*x.get()) {
    for (const int d : order) {
      shape_.push_back(x.size(d));
      strides_.push_back(x.stride(d));
    }
    attach();
  }
  static Points scratch_like(mt_ctx& ctx, const TensorView& x, mt_dtype dtype) {
    Points made(x);
    int64_t step = 1;
    for (size_t d = made.shape_.size(); d-- > 0;) {
      made.strides_[d] = step;
      step *= made.shape_[d];
    }
    made.tensor_.dl.dtype = dtype;
    made.tensor_.dl.byte_offset = 0;
    made.tensor_.dl.data =
        scratch_bytes(ctx, static_cast<size_t>(std::max<int64_t>(step, 1) * sdk::itemsize(dtype)));
    return made;
  }
  Points(Points&& other) noexcept
      : tensor_(other.tensor_),
        shape_(std::move(other.shape_)),
        strides_(std::move(other.strides_)) {
    attach();
  }
  Points(const Points&) = delete;
  Points& operator=(const Points&) = delete;

  TensorView view() const { return &tensor_; }

 private:
  void attach() {
    tensor_.dl.shape = shape_.data();
    tensor_.dl.strides = strides_.data();
    tensor_.flags = 0;
  }

  mt_tensor tensor_;
  std::vector<int64_t> shape_, strides_;
};

// Whether the memory is aligned as complex numbers are.
bool is_aligned(const TensorView& x) {
  const int64_t aligned = sdk::is_complex(x.dtype()) ? x.itemsize() : 2 * x.itemsize();
  return reinterpret_cast<uintptr_t>(x.raw()) % static_cast<uint64_t>(aligned) == 0;
}

// Whether the library can use the memory: without gaps, and aligned.
bool is_usable(const TensorView& x) { return x.is_contiguous() && is_aligned(x); }

// Returns where the lines along the last dimension lie, if the other dimensions are one of equal
// steps, else nothing.
std::optional<FourierLines> lines_of(const TensorView& x) {
  std::optional<int64_t> step;
  int64_t count = 1;
  for (int d = x.ndim() - 2; d >= 0; --d) {
    if (x.size(d) == 1) continue;
    if (!step.has_value()) step = x.stride(d);
    if (x.stride(d) != *step * count) return {};
    count *= x.size(d);
  }
  // A single line may be at any distance from a next one.
  const FourierLines found{x.stride(-1), step.value_or(x.stride(-1) * x.size(-1))};
  if (found.point <= 0 || found.line <= 0 || !is_aligned(x)) return {};
  return found;
}

struct Kind {
  cufftType type;
  bool forward;
};

// Transforms `dims`, at most three, of `from` into `to`, which may be the same, and multiplies by
// `factor`.
void pass(mt_ctx& ctx, Kind kind, const TensorView& from, const TensorView& to,
          std::span<const int> dims, double factor) {
  std::vector<int> order;
  for (int d = 0; d < from.ndim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  }
  order.insert(order.end(), dims.begin(), dims.end());
  const Points in(from, order), out(to, order);
  const bool to_real = kind.type == CUFFT_C2R || kind.type == CUFFT_Z2D;
  std::vector<int64_t> sizes;
  int64_t batch = 1;
  const Points& points = to_real ? out : in;  // n of them, not n / 2 + 1
  for (int d = 0; d < from.ndim(); ++d) {
    const int64_t size = points.view().size(d);
    if (d < from.ndim() - static_cast<int>(dims.size())) {
      batch *= size;
    } else {
      sizes.push_back(size);
    }
  }
  TensorView source = in.view(), target = out.view();
  if (dims.size() == 1 && !to_real && !(is_usable(source) && is_usable(target))) {
    const auto read = lines_of(source), written = lines_of(target);
    if (read.has_value() && written.has_value()) {
      FourierPlan plan(ctx, kind.type, sizes[0], batch, *read, *written);
      plan.run(ctx, source.raw(), target.raw(), kind.forward);
      if (factor != 1) copy_points(ctx, to, to, factor);
      return;
    }
  }
  Points copy = to_real || !is_usable(source) ? Points::scratch_like(ctx, source, source.dtype())
                                              : Points(source);
  if (copy.view().raw() != source.raw()) {
    copy_points(ctx, source, copy.view(), 1);
    source = copy.view();
  }
  if (to_real) {
    make_ends_real(ctx, source, source.ndim() - 1, sizes.back() % 2 == 0);
  }
  const bool direct = is_usable(target);
  const Points result = direct ? Points(target) : Points::scratch_like(ctx, target, target.dtype());
  FourierPlan plan(ctx, kind.type, sizes, batch);
  plan.run(ctx, source.raw(), result.view().raw(), kind.forward);
  if (!direct || factor != 1) copy_points(ctx, result.view(), target, factor);
}

// Passes over up to three of `dims` each, from the last on.
void complex_passes(mt_ctx& ctx, bool forward, const TensorView& from, const TensorView& to,
                    std::span<const int> dims, double factor) {
  const Kind kind{to.dtype().bits == 64 ? CUFFT_C2C : CUFFT_Z2Z, forward};
  TensorView source = from;
  while (!dims.empty()) {
    const size_t count = std::min(dims.size(), kMostTransformed);
    const bool last = count == dims.size();
    pass(ctx, kind, source, to, dims.last(count), last ? factor : 1);
    dims = dims.first(dims.size() - count);
    source = to;
  }
}

template <class Args>
const char* transform_supports(const Args& /*args*/) {
  return fourier_reason();
}

void c2c(mt_ctx& ctx, const mt_args__fft_c2c& args) {
  if (TensorView(args.out).numel() == 0) return;
  const std::vector<int> dims = sdk::fourier_dims(args.dim, args.self);
  complex_passes(ctx, args.forward != 0, args.self, args.out, dims,
                 sdk::fourier_factor(args.normalization, args.self, dims));
}

void r2c(mt_ctx& ctx, const mt_args__fft_r2c& args) {
  const TensorView self = args.self, out = args.out;
  if (out.numel() == 0) return;
  const std::vector<int> dims = sdk::fourier_dims(args.dim, self);
  const double factor = sdk::fourier_factor(args.normalization, self, dims);
  if (args.onesided == 0) {
    const Points complex = Points::scratch_like(ctx, self, out.dtype());
    copy_points(ctx, self, complex.view(), 1);
    return complex_passes(ctx, true, complex.view(), out, dims, factor);
  }
  const size_t count = std::min(dims.size(), kMostTransformed);
  const std::span<const int> all = dims;
  const Kind kind{out.dtype().bits == 64 ? CUFFT_R2C : CUFFT_D2Z, true};
  const bool last = count == dims.size();
  pass(ctx, kind, self, out, all.last(count), last ? factor : 1);
  if (!last) complex_passes(ctx, true, out, out, all.first(dims.size() - count), factor);
}

void c2r(mt_ctx& ctx, const mt_args__fft_c2r& args) {
  const TensorView self = args.self, out = args.out;
  if (out.numel() == 0) return;
  const std::vector<int> dims = sdk::fourier_dims(args.dim, self);
  const double factor = sdk::fourier_factor(args.normalization, out, dims);
  const std::span<const int> all = dims;
  const Kind kind{self.dtype().bits == 64 ? CUFFT_C2R : CUFFT_Z2D, false};
  if (dims.size() == 1) return pass(ctx, kind, self, out, all, factor);
  const Points others = Points::scratch_like(ctx, self, self.dtype());
  complex_passes(ctx, false, self, others.view(), all.first(dims.size() - 1), 1);
  pass(ctx, kind, others.view(), out, all.last(1), factor);
}

template <auto kernel_fn, class Args>
void push_transform(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<kernel_fn, &transform_supports<Args>>(
      "cufft", MT_TAKES_STRIDED | MT_TAKES_COMPLEX));
}

}  // namespace

void register_fourier(KernelEntries& kernels) {
  push_transform<&c2c, mt_args__fft_c2c>(kernels);
  push_transform<&r2c, mt_args__fft_r2c>(kernels);
  push_transform<&c2r, mt_args__fft_c2r>(kernels);
}

}  // namespace mytorch::cuda

#endif  // cufft_absent.cpp otherwise
