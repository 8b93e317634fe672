// The backend of newchip: a device of its own, whose memory is the host's until you put your
// driver's calls in the places of aligned_alloc, free and memcpy; and two kernels to begin with.
// What has no kernel here runs on the CPU where the user allows it (MYTORCH_FALLBACK=1), and
// `mytorch check` says which operators those are.
#include "mytorch/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/copy_.h"

namespace sdk = mytorch::sdk;

namespace {

// ---- the device. `self` is mt_backend::self, `index` the number of the device. -----------------

int device_count(void* /*self*/) { return 1; }

// At least 64-byte aligned. NULL: out of memory.
void* allocate(void* /*self*/, int32_t /*index*/, size_t bytes, void* /*stream*/) {
  if (bytes > SIZE_MAX - 63) return nullptr;
  return std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64);
}

void release(void* /*self*/, int32_t /*index*/, void* data, size_t /*bytes*/, void* /*stream*/) {
  std::free(data);
}

// `kind` says which of the two is memory of the device: MT_COPY_TO_DEVICE, _TO_HOST, _ON_DEVICE.
int copy(void* /*self*/, int32_t /*index*/, int32_t /*kind*/, void* to, const void* from,
         size_t bytes, void* /*stream*/) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return MT_OK;
}

// One queue, in order: whoever has streams fills in create_stream and the entries behind it, too.
constexpr mt_device_ops kDevice = {.size = sizeof(mt_device_ops),
                                   .type = 0,  // a run-time type, by its name
                                   .host_accessible = 0,
                                   .device_count = device_count,
                                   .allocate = allocate,
                                   .release = release,
                                   .copy = copy};

// ---- kernels -----------------------------------------------------------------------------------

// Elements of any type and strides, broadcast, to any type and strides: the first kernel to write,
// because every conversion for the others rests on it. `src` may be a number (TensorView::is_host):
// its memory is then the host's, also where the device's is not.
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

// Products of batches of matrices: (b, n, k) by (b, k, m). Linear layers and attention consist of
// them. Without flags in the table below, the operands come contiguous; float and double are taken.
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
  throw sdk::Declined{};  // before anything is written: the next kernel is asked
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
