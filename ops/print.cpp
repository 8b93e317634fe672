// Tensors as text: nested brackets, long dimensions abbreviated, columns aligned.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/to.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

constexpr int64_t kThreshold = 1000;  // longer tensors are abbreviated
constexpr int64_t kEdge = 3;          // elements shown at either end then

class Printer {
 public:
  explicit Printer(const Tensor& x) : sizes_(x.sizes().vec()), abbreviate_(x.numel() > kThreshold) {
    const NoGradGuard no_grad;
    const bool floating = x.is_floating_point();
    const Tensor values = to(x.device().is_cpu() ? x : to(x, kCPU), floating ? kFloat64 : kInt64);
    contiguous_ = contiguous(values);
    for (int64_t i = 0; i < contiguous_.numel(); ++i) {
      if (!floating) {
        const int64_t v = static_cast<const int64_t*>(contiguous_.raw_data())[i];
        cells_.push_back(x.dtype() == kBool ? (v != 0 ? "true" : "false") : absl::StrCat(v));
      } else {
        char text[40];
        std::snprintf(text, sizeof(text), "%.6g",
                      static_cast<const double*>(contiguous_.raw_data())[i]);
        cells_.push_back(text);
      }
      width_ = std::max(width_, cells_.back().size());
    }
  }
  std::string str() { return block(0, 0); }

 private:
  std::string block(size_t dim, int64_t at) {
    if (dim == sizes_.size()) {
      std::string cell = cells_[at];
      if (!sizes_.empty()) cell.insert(0, width_ - cell.size(), ' ');
      return cell;
    }
    int64_t stride = 1;
    for (size_t k = dim + 1; k < sizes_.size(); ++k) stride *= sizes_[k];
    const bool last = dim + 1 == sizes_.size();
    const std::string between = last ? ", " : ",\n" + std::string(dim + 1, ' ');
    std::string text = "[";
    for (int64_t i = 0; i < sizes_[dim]; ++i) {
      if (i != 0) text += between;
      if (abbreviate_ && sizes_[dim] > 2 * kEdge && i == kEdge) {
        text += "..." + between;
        i = sizes_[dim] - kEdge;
      }
      text += block(dim + 1, at + i * stride);
    }
    return text + "]";
  }

  std::vector<int64_t> sizes_;
  bool abbreviate_;
  Tensor contiguous_;
  std::vector<std::string> cells_;
  size_t width_ = 0;
};

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "tensor(undefined)";
  std::string shape;
  for (int64_t size : sizes()) absl::StrAppend(&shape, shape.empty() ? "" : ", ", size);
  return absl::StrCat("tensor(", Printer(*this).str(), ", shape=[", shape,
                      "], dtype=", dtype_name(dtype()),
                      device().is_cpu() ? "" : absl::StrCat(", device=", device().str()),
                      requires_grad() ? ", requires_grad" : "", ")");
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.str(); }

}  // namespace mytorch
