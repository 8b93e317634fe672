// A backend for the device newchip. Its memory is host memory: replace aligned_alloc, free and
// memcpy by your driver's calls. It starts with two kernels; `mytorch check` lists the operators
// that lack one. With MYTORCH_FALLBACK=1, those run on the CPU.
#include "mytorch/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/copy_.h"

namespace sdk = mytorch::sdk;

namespace {

// ---- the device: `self` is mt_backend::self, `index` the number of the device ------------------

int device_count(void* /*self*/) { return 1; }

// Returns memory that is aligned to at least 64 bytes, or NULL if there is not enough.
void* allocate(void* /*self*/, int32_t /*index*/, size_t bytes, void* /*stream*/) {
  if (bytes > SIZE_MAX - 63) return nullptr;
  return std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64);
}

void release(void* /*self*/, int32_t /*index*/, void* data, size_t /*bytes*/, void* /*stream*/) {
  std::free(data);
}

// `kind` tells which of `to` and `from` is device memory: MT_COPY_TO_DEVICE, MT_COPY_TO_HOST or
// MT_COPY_ON_DEVICE.
int copy(void* /*self*/, int32_t /*index*/, int32_t /*kind*/, void* to, const void* from,
         size_t bytes, void* /*stream*/) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return MT_OK;
}

// Without create_stream, the device has a single in-order queue. A device with streams also sets
// create_stream and the entries after it.
constexpr mt_device_ops kDevice = {.size = sizeof(mt_device_ops),
                                   .type = 0,  // assigned at run time, by name
                                   .host_accessible = 0,
                                   .device_count = device_count,
                                   .allocate = allocate,
                                   .release = release,
                                   .copy = copy};

// ---- kernels -----------------------------------------------------------------------------------

// Copies `src`, broadcast, to `self`, for any types and strides. This is the first kernel to write:
// the host uses it to convert operands for all other kernels. `src` may be a scalar
// (TensorView::is_host), whose value lies in host memory.
void copy_(mt_ctx& /*ctx*/, const mt_args_copy_& args) {
  const sdk::TensorView to = args.self;
  const sdk::TensorView from = args.src;
  std::vector<int64_t> strides(to.shape().size());
  sdk::broadcast_strides(from, to.shape(), strides.data());
  const sdk::StridedLoop<2> loop(to.shape(), {to.strides().data(), strides.data()});
  sdk::visit_dtype(to.dtype(), [&](auto to_tag) {
    using To = typename decltype(to_tag)::type;
    sdk::visit_dtype(from.dtype(), [&](auto from_tag) {
      using From = typename decltype(from_tag)::type;
      loop.for_each_run(0, loop.numel(), [&](const auto& offsets, int64_t count) {
        To* out = to.data<To>() + offsets[0];
        const From* in = from.data<From>() + offsets[1];
        for (int64_t i = 0; i < count; ++i) {
          out[i * loop.inner_stride(0)] = sdk::convert<To>(in[i * loop.inner_stride(1)]);
        }
      });
    });
  });
}

// Multiplies batches of matrices: (b, n, k) by (b, k, m). Linear layers and attention decompose
// into this operator. Its entry in the table below has no flags, so the host passes contiguous
// operands of one type.
template <class T>
void multiply(const mt_args_bmm& args) {
  const sdk::TensorView out = args.out;
  const int64_t rows = out.size(1);
  const int64_t columns = out.size(2);
  const int64_t depth = sdk::TensorView(args.self).size(2);
  for (int64_t row = 0; row < out.size(0) * rows; ++row) {
    const T* a = sdk::TensorView(args.self).data<T>() + row * depth;
    const T* b = sdk::TensorView(args.mat2).data<T>() + row / rows * depth * columns;
    T* c = out.data<T>() + row * columns;
    std::fill(c, c + columns, T(0));
    for (int64_t k = 0; k < depth; ++k, b += columns) {
      for (int64_t j = 0; j < columns; ++j) c[j] += a[k] * b[j];
    }
  }
}

void bmm(mt_ctx& /*ctx*/, const mt_args_bmm& args) {
  const sdk::TensorView out = args.out;
  if (out.is<float>()) return multiply<float>(args);
  if (out.is<double>()) return multiply<double>(args);
  throw sdk::Declined{};  // the host tries the next kernel; allowed only before the first write
}

constexpr uint32_t kAnyOperands = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES;
constexpr mt_kernel_entry kKernels[] = {
    sdk::kernel<&copy_>("strided", kAnyOperands),
    sdk::kernel<&bmm>("rows"),
};

}  // namespace

extern "C" MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  return sdk::fill_backend(host, backend,
                           {.name = "newchip",
                            .version = "0.1",
                            .device_type = "newchip",
                            .kernels = kKernels,
                            .device = &kDevice});
}
