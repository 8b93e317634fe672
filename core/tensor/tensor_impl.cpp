#include "mytorch/tensor_impl.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <vector>

#include "core/runtime/cpu_block.h"
#include "core/runtime/cpu_pool.h"
#include "core/runtime/device_registry.h"
#include "core/tensor/capture_layer.h"
#include "core/types/checked.h"
#include "mytorch/autograd_table.h"
#include "mytorch/thread_state.h"

namespace mytorch {
namespace {

// The size class of a header that lies in the block of its storage.
constexpr uint16_t kEmbedded = UINT16_MAX;
// The same after replace_data: the header also keeps that block, which its storage is no longer.
constexpr uint16_t kMoved = UINT16_MAX - 1;

Storage* block_of(TensorImpl* embedded) { return reinterpret_cast<Storage*>(embedded) - 1; }

void release_storage(Storage* storage) {
  if (detail::release_last(storage)) storage->destroy(storage);
}

size_t header_bytes(int ndim) {
  return sizeof(TensorImpl) + (ndim > kInlineDims ? 2 * sizeof(int64_t) * ndim : 0);
}

// Constructs a header in the given memory; beyond kInlineDims, the dimensions follow it.
inline TensorImpl* construct(void* block, int ndim, uint16_t size_class) {
  auto* impl = new (block) TensorImpl;
  int64_t* dims = ndim > kInlineDims ? reinterpret_cast<int64_t*>(impl + 1) : impl->inline_dims;
  impl->abi.dl.ndim = ndim;
  impl->abi.dl.shape = dims;
  impl->abi.dl.strides = dims + ndim;
  impl->size_class = size_class;
  impl->inference = thread_state.inference_mode;
  return impl;
}

inline TensorImpl* blank(int ndim) {
  uint16_t size_class = 0;
  void* block = cpu_pool::allocate(header_bytes(ndim), &size_class);
  if (block == nullptr) [[unlikely]]
    fail(ErrorCode::kOutOfMemory, "[tensor] out of memory");
  return construct(block, ndim, size_class);
}

inline void set_storage(TensorImpl* impl, Storage* storage, int slot, Device device, void* data,
                        ScalarType dtype) {
  impl->storage = storage;
  impl->abi.storage = &storage->abi;
  impl->abi.dl.data = data;
  impl->abi.dl.device = {device.type, device.index};
  impl->abi.dl.dtype = to_abi(dtype);
  impl->device_slot = static_cast<uint8_t>(slot);
  impl->dtype = dtype;
}

// `offset` is in bytes.
void set_storage(TensorImpl* impl, Storage* storage, ScalarType dtype, int64_t offset) {
  set_storage(impl, storage, storage->device_slot, storage->device,
              static_cast<char*>(storage->data) + offset, dtype);
}

// Returns whether a tensor can have these sizes (see kMaxExtent).
[[nodiscard]] inline bool set_geometry(TensorImpl* impl, IntList sizes, IntList strides) {
  int64_t* const shape = impl->abi.dl.shape;
  int64_t* const steps = impl->abi.dl.strides;
  const int64_t* const from_sizes = sizes.data();
  const int64_t* const from_strides = strides.data();
  int64_t expected = 1;
  bool contiguous = true;
  bool empty = false;
  bool overflow = false;
  for (int64_t i = static_cast<int64_t>(sizes.size()) - 1; i >= 0; --i) {
    const int64_t size = shape[i] = from_sizes[i];
    const int64_t step = steps[i] = from_strides[i];
    contiguous = contiguous && (size == 1 || step == expected);
    const bool none = size == 0;
    empty = empty || none;
    overflow |= __builtin_mul_overflow(expected, size + static_cast<int64_t>(none), &expected);
  }
  impl->numel = empty ? 0 : expected;
  if (contiguous || empty) impl->abi.flags |= MT_TENSOR_CONTIGUOUS;
  return !overflow && expected <= kMaxExtent;
}

// Returns the size of an array in bytes. Checked: a shape from a file or a user must not overflow.
uint64_t checked_bytes(const int64_t* sizes, int ndim, ScalarType dtype) {
  const IntList shape{sizes, static_cast<size_t>(ndim)};
  for (const int64_t size : shape) {
    if (size < 0) {
      fail(ErrorCode::kShape, "[empty] shape ", shape_str(shape), " has a negative size");
    }
  }
  return static_cast<uint64_t>(checked_product(shape, "empty")) *
         static_cast<uint64_t>(element_size(dtype));
}

}  // namespace

int64_t count(IntList sizes) {
  uint64_t n = 1;
  for (int64_t size : sizes) n *= static_cast<uint64_t>(size);
  return static_cast<int64_t>(n);
}

void contiguous_strides(const int64_t* sizes, int ndim, int64_t* strides) {
  int64_t stride = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    stride = wrapping_mul(stride, std::max<int64_t>(sizes[i], 1));
  }
}

bool is_contiguous(IntList sizes, IntList strides) {
  int64_t expected = 1;
  bool contiguous = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) contiguous = false;
    expected =
        static_cast<int64_t>(static_cast<uint64_t>(expected) * static_cast<uint64_t>(sizes[i]));
  }
  return contiguous;
}

TensorImpl* new_tensor(const int64_t* sizes, int ndim, ScalarType dtype, Device device, int slot) {
  // The number of elements of ordinary shapes; falls back to the checked computation if this, or
  // the product of the other sizes of an empty shape, could overflow.
  uint64_t elements = 1;
  bool ordinary = true;
  for (int i = 0; i < ndim; ++i) {
    ordinary &= static_cast<uint64_t>(sizes[i]) <= UINT32_MAX && elements <= (uint64_t{1} << 26);
    elements *= static_cast<uint64_t>(sizes[i]);
  }
  uint64_t bytes = elements * static_cast<uint64_t>(element_size(dtype));
  if (!ordinary || elements == 0) [[unlikely]] {
    bytes = checked_bytes(sizes, ndim, dtype);
    if (bytes == 0) elements = 0;
  }
  TensorImpl* impl;
  if (slot == kCpuSlot) [[likely]] {
    const CpuBlock block = allocate_cpu_block(device, header_bytes(ndim), bytes);
    impl = construct(block.storage + 1, ndim, kEmbedded);
    set_storage(impl, block.storage, kCpuSlot, device, block.data, dtype);
  } else {
    Storage* storage = allocate_storage(device, slot, bytes);
    impl = blank(ndim);
    set_storage(impl, storage, dtype, 0);
  }
  impl->numel = static_cast<int64_t>(elements);
  impl->abi.flags = MT_TENSOR_CONTIGUOUS;
  int64_t stride = 1;
  int64_t* const shape = ndim > kInlineDims ? impl->abi.dl.shape : impl->inline_dims;
  for (int i = ndim - 1; i >= 0; --i) {
    const int64_t size = sizes[i];
    shape[i] = size;
    shape[ndim + i] = stride;
    stride *= size > 1 ? size : 1;
  }
  return impl;
}

TensorImpl* new_contiguous_like(const TensorImpl& like, ScalarType dtype) {
  const int ndim = like.abi.dl.ndim;
  if (like.device_slot != kCpuSlot || ndim > kInlineDims) [[unlikely]] {
    return new_tensor(like.abi.dl.shape, ndim, dtype, like.device(), like.device_slot);
  }
  // The elements exist in memory, so this cannot overflow.
  const uint64_t bytes =
      static_cast<uint64_t>(like.numel) * static_cast<uint64_t>(element_size(dtype));
  const Device device = like.device();
  const CpuBlock block = allocate_cpu_block(device, sizeof(TensorImpl), bytes);
  auto* impl = new (block.storage + 1) TensorImpl;
  impl->abi = like.abi;
  impl->abi.dl.data = block.data;
  impl->abi.dl.shape = impl->inline_dims;
  impl->abi.dl.strides = impl->inline_dims + ndim;
  impl->abi.storage = &block.storage->abi;
  if (dtype != like.dtype) impl->abi.dl.dtype = to_abi(dtype);
  impl->dtype = dtype;
  impl->size_class = kEmbedded;
  impl->inference = thread_state.inference_mode;
  impl->numel = like.numel;
  impl->storage = block.storage;
  // Copy all words: a fixed number costs less than the exact one.
  std::memcpy(impl->inline_dims, like.inline_dims, sizeof(impl->inline_dims));
  return impl;
}

TensorImpl* new_tensor_strided(IntList sizes, IntList strides, ScalarType dtype, Device device) {
  const int slot = checked_device_slot(device);
  const uint64_t bytes = checked_bytes(sizes.data(), static_cast<int>(sizes.size()), dtype);
  Storage* storage = allocate_storage(device, slot, bytes);
  TensorImpl* impl = blank(static_cast<int>(sizes.size()));
  set_storage(impl, storage, dtype, 0);
  (void)set_geometry(impl, sizes, strides);  // checked_bytes accepted the sizes
  return impl;
}

TensorImpl* new_view(TensorImpl* of, IntList sizes, IntList strides, int64_t offset) {
  TensorImpl* impl = blank(static_cast<int>(sizes.size()));
  impl->abi.storage = of->abi.storage;
  impl->abi.dl.device = of->abi.dl.device;
  impl->abi.dl.dtype = of->abi.dl.dtype;
  impl->storage = of->storage;
  impl->dtype = of->dtype;
  impl->device_slot = of->device_slot;
  impl->read_only = of->read_only;
  if (!set_geometry(impl, sizes, strides)) [[unlikely]] {
    impl->storage = nullptr;  // not counted yet
    destroy_tensor(impl);
    checked_product(sizes, "view");
  }
  // The offset of a view without elements may lie anywhere: its base's strides may exceed int64.
  const int64_t elements = impl->numel == 0 ? 0 : offset;
  impl->abi.dl.data = static_cast<char*>(of->abi.dl.data) + elements * element_size(of->dtype);
  if (of->inference || thread_state.inference_mode) {
    // Untracked: it holds the storage, not the base.
    impl->inference = of->inference;
    detail::retain(impl->storage);
    return impl;
  }
  impl->no_grad_view = !thread_state.grad_mode || of->no_grad_view;
  impl->view_version = static_cast<uint32_t>(of->abi.storage->version);
  impl->base = of->base != nullptr ? of->base : of;
  detail::retain(impl->base);
  __atomic_store_n(&impl->base->has_views, true, __ATOMIC_RELAXED);
  return impl;
}

TensorImpl* new_view(TensorImpl* of, IntList sizes, IntList strides, int64_t offset,
                     ScalarType dtype) {
  TensorImpl* impl = new_view(of, sizes, strides, offset);
  impl->abi.dl.dtype = to_abi(dtype);
  impl->dtype = dtype;
  return impl;
}

TensorImpl* new_header(TensorImpl* of, IntList sizes, IntList strides, ScalarType dtype) {
  TensorImpl* impl = new_view(of, sizes, strides, 0, dtype);
  if (impl->base == nullptr) {
    release_storage(impl->storage);  // `of` holds it, too
    impl->base = of;
    detail::retain(of);
  }
  return impl;
}

TensorImpl* new_alias(TensorImpl* of) {
  TensorImpl* impl = blank(of->abi.dl.ndim);
  detail::retain(of->storage);
  const int64_t bytes =
      static_cast<const char*>(of->abi.dl.data) - static_cast<const char*>(of->storage->data);
  set_storage(impl, of->storage, of->dtype, bytes);
  impl->read_only = of->read_only;
  // A variable that keeps the alias keeps what is watched, too.
  if (of->replaced.load(std::memory_order_relaxed) != 0) watch_replaced(impl);
  (void)set_geometry(impl, of->sizes(), of->strides());
  return impl;
}

TensorImpl* new_tensor_over(Storage* storage, IntList sizes, IntList strides, ScalarType dtype,
                            int64_t offset) {
  TensorImpl* impl = blank(static_cast<int>(sizes.size()));
  set_storage(impl, storage, dtype, offset * element_size(dtype));
  (void)set_geometry(impl, sizes, strides);  // the caller checked the sizes
  return impl;
}

namespace {

// A storage that keeps a former one for the views of it.
struct SucceedingStorage : Storage {
  Storage* own;
  Storage* former;
};

Storage* succeed(Storage* own, Storage* former) {
  auto* storage = new SucceedingStorage;
  storage->abi = own->abi;
  storage->device_slot = own->device_slot;
  storage->device = own->device;
  storage->data = own->data;
  storage->bytes = own->bytes;
  storage->own = own;
  storage->former = former;
  storage->destroy = [](Storage* self) {
    auto* both = static_cast<SucceedingStorage*>(self);
    release_storage(both->own);
    release_storage(both->former);
    delete both;
  };
  return storage;
}

// Returns the pages of a block's data to the system; the block itself stays allocated.
void drop_pages(const Storage& block) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(block.data);
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = (begin + block.bytes) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

void replace_data(TensorImpl* impl, const TensorImpl& data) {
  Storage* const former = impl->storage;
  Storage* storage = data.storage;
  if (impl == &data) return;
  detail::retain(storage);
  // Values that were saved for a gradient are recognized as overwritten.
  storage->abi.version = std::max(storage->abi.version, former->abi.version + 1);
  // A view is kept alive by its base, but reads its storage.
  const bool viewed = impl->has_views && impl->refs.load(std::memory_order_acquire) > 1;
  if (impl->size_class == kEmbedded) {
    impl->size_class = kMoved;  // the reference to `former` is now that to the header's block
    if (!viewed && former->refs.load(std::memory_order_acquire) == 1) drop_pages(*former);
  } else if (viewed) {
    storage = succeed(storage, former);
  } else {
    release_storage(former);
  }
  impl->storage = storage;
  impl->abi.storage = &storage->abi;
  impl->abi.flags = data.abi.flags;
  impl->abi.dl.data = data.abi.dl.data;
  impl->abi.dl.device = data.abi.dl.device;
  impl->abi.dl.dtype = data.abi.dl.dtype;
  impl->dtype = data.dtype;
  impl->device_slot = data.device_slot;
  impl->read_only = data.read_only;
  std::copy_n(data.abi.dl.strides, data.abi.dl.ndim, impl->abi.dl.strides);
}

uint16_t watch_replaced(TensorImpl* impl) {
  uint16_t count = 0;
  return impl->replaced.compare_exchange_strong(count, 1, std::memory_order_relaxed) ? 1 : count;
}

void count_replaced(const Tensor* variable, TensorImpl* former) {
  if (variable->impl() == former) return;
  if ((thread_state.wanted & kLayerCapture) != 0) {
    if (recording_graph()) capture_table->assigned(*variable, former);
    return;
  }
  if (former == nullptr || former->replaced.load(std::memory_order_relaxed) == 0) return;
  // 0 would say that nobody watches.
  if (former->replaced.fetch_add(1, std::memory_order_relaxed) == UINT16_MAX) {
    former->replaced.fetch_add(1, std::memory_order_relaxed);
  }
}

void destroy_tensor(TensorImpl* impl) {
  if (impl->autograd != nullptr) [[unlikely]]
    autograd_table->destroy_meta(impl);
  TensorImpl* const base = impl->base;
  Storage* const storage = impl->storage;
  const uint16_t size_class = impl->size_class;
  impl->~TensorImpl();
  if (size_class != kEmbedded) {
    if (size_class == kMoved) [[unlikely]] {
      release_storage(block_of(impl));
    } else {
      cpu_pool::release(impl, size_class);
    }
  }
  if (base != nullptr) {
    release(base);
  } else if (storage != nullptr && detail::release_last(storage)) {
    storage->destroy(storage);
  }
}

namespace {

bool same_geometry(const mt_tensor& a, const mt_tensor& b) {
  if (a.dl.data != b.dl.data || a.dl.ndim != b.dl.ndim || !same_dtype(a.dl.dtype, b.dl.dtype)) {
    return false;
  }
  for (int i = 0; i < a.dl.ndim; ++i) {
    if (a.dl.shape[i] != b.dl.shape[i]) return false;
    if (a.dl.shape[i] > 1 && a.dl.strides[i] != b.dl.strides[i]) return false;
  }
  return true;
}

// A dimension of two tensors that have the same strides, and what the dimensions of smaller strides
// reach in each.
struct SharedDim {
  int64_t stride, size_a, size_b, reach_a, reach_b;
};

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Whether an element of a lies `distance` behind one of b, where dimensions before `dim` are
// decided. True if in doubt.
bool may_meet(const std::vector<SharedDim>& dims, size_t dim, int64_t distance) {
  if (dim == dims.size()) return distance == 0;
  const auto& [stride, size_a, size_b, reach_a, reach_b] = dims[dim];
  const int64_t first = -floor_div(reach_a - distance, stride);
  const int64_t last = floor_div(distance + reach_b, stride);
  if (last - first > 1) return true;
  for (int64_t steps = first; steps <= last; ++steps) {
    const bool exist = -size_b < steps && steps < size_a;
    if (exist && may_meet(dims, dim + 1, distance - steps * stride)) return true;
  }
  return false;
}

// Whether two tensors of the same strides share no element although their extents overlap: slices
// of the columns of a matrix, or of the middle of a packed tensor. False if in doubt.
bool interleave(const mt_tensor& a, const mt_tensor& b) {
  if (a.dl.ndim != b.dl.ndim || a.dl.dtype.bits != b.dl.dtype.bits) return false;
  std::vector<SharedDim> dims;
  for (int i = 0; i < a.dl.ndim; ++i) {
    const int64_t size_a = a.dl.shape[i], size_b = b.dl.shape[i];
    if (size_a == 1 && size_b == 1) continue;
    const int64_t stride = size_a == 1 ? b.dl.strides[i] : a.dl.strides[i];
    if (stride <= 0 || (size_b != 1 && b.dl.strides[i] != stride)) return false;
    dims.push_back({stride, size_a, size_b, 0, 0});
  }
  std::sort(dims.begin(), dims.end(),
            [](const SharedDim& x, const SharedDim& y) { return x.stride > y.stride; });
  for (size_t i = dims.size(); i-- > 1;) {
    dims[i - 1].reach_a = dims[i].reach_a + (dims[i].size_a - 1) * dims[i].stride;
    dims[i - 1].reach_b = dims[i].reach_b + (dims[i].size_b - 1) * dims[i].stride;
  }
  const int64_t bytes = a.dl.dtype.bits / 8;
  const auto offset = static_cast<const char*>(b.dl.data) - static_cast<const char*>(a.dl.data);
  return offset % bytes == 0 && !may_meet(dims, 0, offset / bytes);
}

}  // namespace

Extent extent(const mt_tensor& t) {
  // The strides of a tensor without elements may be arbitrary.
  if (std::find(t.dl.shape, t.dl.shape + t.dl.ndim, 0) != t.dl.shape + t.dl.ndim) return {};
  int64_t low = 0;
  int64_t high = 0;
  for (int i = 0; i < t.dl.ndim; ++i) {
    const int64_t reach = (t.dl.shape[i] - 1) * t.dl.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t bytes = t.dl.dtype.bits / 8;
  char* data = static_cast<char*>(t.dl.data);
  return {data + low * bytes, data + (high + 1) * bytes};
}

bool has_internal_overlap(const TensorImpl& impl) {
  if (impl.contiguous() || impl.numel <= 1) return false;
  // Sorted by stride, each dimension must step past all elements that the smaller ones reach.
  // (Patterns that interleave without overlapping fail this test; ATen calls those "too hard" too.)
  const int ndim = impl.abi.dl.ndim;
  std::vector<std::pair<int64_t, int64_t>> dims;  // |stride|, size
  for (int i = 0; i < ndim; ++i) {
    if (impl.abi.dl.shape[i] > 1) {
      dims.emplace_back(std::abs(impl.abi.dl.strides[i]), impl.abi.dl.shape[i]);
    }
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += (size - 1) * stride;
  }
  return false;
}

Overlap overlap(const mt_tensor& a, const mt_tensor& b) {
  if (a.storage == nullptr || a.storage != b.storage) return Overlap::kNone;
  const Extent x = extent(a);
  const Extent y = extent(b);
  if (x.begin == nullptr || y.begin == nullptr || x.end <= y.begin || y.end <= x.begin) {
    return Overlap::kNone;
  }
  if (same_geometry(a, b)) return Overlap::kExact;
  return interleave(a, b) ? Overlap::kNone : Overlap::kPartial;
}

}  // namespace mytorch
