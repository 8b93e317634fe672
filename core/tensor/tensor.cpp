#include "mytorch/tensor.h"

#include <cstring>
#include <limits>
#include <ostream>
#include <string_view>

#include "core/runtime/deferred_memory.h"
#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/thread_state.h"

namespace mytorch {
namespace {

// Called before the host gets the address of a tensor's elements.
void check_host_memory(const Tensor& tensor) {
  check_not_batched(tensor, "data");
  check_host_access(tensor, "data");
  if (is_deferred(*tensor.impl())) {
    fail(ErrorCode::kValue, "[data] the tensor, of shape ", shape_str(tensor.sizes()), ", ",
         kNotYetThere);
  }
}

}  // namespace

void Tensor::fail_undefined() {
  fail(ErrorCode::kValue,
       "[tensor] the Tensor is undefined: it was default-constructed, moved from, or represents an "
       "absent "
       "result (such as a gradient before backward()); check defined() first");
}

std::ostream& operator<<(std::ostream& out, const TensorOptions& options) {
  out << "dtype=" << options.dtype() << ", device=" << options.device();
  out << ", requires_grad=" << (options.requires_grad() ? "true" : "false");
  if (options.pinned_memory()) out << ", pinned_memory=true";
  return out;
}

int64_t Tensor::size(int64_t dim) const {
  return checked()->abi.dl.shape[wrap_dim(dim, impl_->abi.dl.ndim, "size")];
}

int64_t Tensor::stride(int64_t dim) const {
  return checked()->abi.dl.strides[wrap_dim(dim, impl_->abi.dl.ndim, "stride")];
}

const void* Tensor::const_data_checked(ScalarType type) const {
  if (checked()->dtype != type) {
    fail(ErrorCode::kType, "[data] the tensor holds ", dtype_name(impl_->dtype), ", not ",
         dtype_name(type), ": convert it with to(", dtype_name(type), ")");
  }
  check_host_memory(*this);
  return impl_->abi.dl.data;
}

void* Tensor::data_checked(ScalarType type) const {
  const_data_checked(type);
  return raw_mutable_data();
}

void* Tensor::raw_mutable_data() const {
  if (checked()->read_only) {
    fail(ErrorCode::kValue,
         "[data] the tensor is over `const` memory (from_blob): read const_data, or clone() it");
  }
  check_host_memory(*this);
  impl_->storage->abi.flags |= MT_STORAGE_ESCAPED;
  return impl_->abi.dl.data;
}

indexing::TensorIndex::TensorIndex(const char* text) : kind_(kEllipsis) {
  if (std::strcmp(text, "...") != 0) {
    fail(ErrorCode::kValue, "[index] \"", text, "\" is no index: the only text is \"...\"");
  }
}

void Tensor::check_accessor(ScalarType type, size_t n, const char* op) const {
  const TensorImpl& t = *checked();
  if (t.dtype != type) {
    fail(ErrorCode::kType, "[", op, "] the tensor holds ", dtype_name(t.dtype), ", not ",
         dtype_name(type), ": convert it with to(), or access ", dtype_name(t.dtype));
  }
  if (t.abi.dl.ndim != static_cast<int>(n)) {
    fail(ErrorCode::kShape, "[", op, "] an accessor of ", n, " dimensions of a tensor of shape ",
         shape_str(t.sizes()), ": give its number of dimensions, ", t.abi.dl.ndim);
  }
  const std::string_view name = op;
  if (name == "accessor" && !t.device().is_cpu()) {
    fail(ErrorCode::kDevice, "[accessor] the tensor is on ", t.device().str(),
         ": copy it with cpu(), or pass a packed accessor to a kernel");
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (name == "packed_accessor32" &&
      extent(t.abi).bytes() / static_cast<uint64_t>(element_size()) > uint64_t{kMost}) {
    fail(ErrorCode::kShape, "[packed_accessor32] shape ", shape_str(t.sizes()), " and strides ",
         shape_str(t.strides()), " exceed 32 bits: use packed_accessor64");
  }
}

namespace detail {

void fail_access(int64_t index, int64_t size, size_t dims_left) {
  fail(ErrorCode::kValue, "[accessor] index ", index, " is out of range for size ", size,
       " of dimension ", -static_cast<int64_t>(dims_left));
}

}  // namespace detail

std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << dtype_name(type); }
std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }
std::ostream& operator<<(std::ostream& out, const IntList& list) {
  return out << absl::StrCat("[", absl::StrJoin(list, ", "), "]");
}

}  // namespace mytorch
