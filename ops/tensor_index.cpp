// Tensor::index and index_put_ with indices of several kinds: the integers, slices and new
// dimensions make a view, from which the tensors select.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "mytorch/ops/add.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/index.h"
#include "mytorch/ops/index_put.h"
#include "mytorch/ops/nonzero.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/slice.h"
#include "mytorch/ops/squeeze.h"
#include "mytorch/ops/unsqueeze.h"
#include "ops/geometry.h"

namespace mytorch {

struct IndexedTensor::Source {
  Tensor view;
  std::vector<Tensor> tensors;  // for mytorch::index(view, tensors)
  bool selects = false;         // whether `tensors` has a defined one
};

namespace {

using Indexed = IndexedTensor::Source;
using indexing::Slice;
using indexing::TensorIndex;

bool is_mask(const Tensor& index) { return index.dtype() == kBool || index.dtype() == kUInt8; }

// Returns the number of dimensions that an index takes.
int64_t dims_taken(const TensorIndex& index) {
  switch (index.kind()) {
    case TensorIndex::kInteger:
    case TensorIndex::kSlice:
      return 1;
    case TensorIndex::kTensor:
      return index.tensor().defined() && is_mask(index.tensor()) ? index.tensor().dim() : 1;
    case TensorIndex::kNone:
    case TensorIndex::kEllipsis:
    case TensorIndex::kBool:
      break;
  }
  return 0;
}

class Indexer {
 public:
  Indexer(const Tensor& self, const TensorIndex* indices, size_t n, const char* op)
      : self_(self), op_(op) {
    int64_t taken = 0;
    int64_t ellipses = 0;
    for (size_t i = 0; i < n; ++i) {
      taken += dims_taken(indices[i]);
      ellipses += indices[i].kind() == TensorIndex::kEllipsis;
    }
    if (ellipses > 1) {
      fail(ErrorCode::kValue, "[", op_, "] ", ellipses, " ellipses: give one at most");
    }
    if (taken > self.dim()) {
      fail(ErrorCode::kShape, "[", op_, "] the indices take ", taken, " dimensions, but shape ",
           shape_str(self.sizes()), " has ", self.dim());
    }
    rest_ = self.dim() - taken;
    result_.view = self;
    for (size_t i = 0; i < n; ++i) apply(indices[i]);
  }

  Indexed take() { return std::move(result_); }

 private:
  void apply(const TensorIndex& index) {
    switch (index.kind()) {
      case TensorIndex::kNone:
        result_.view = result_.view.unsqueeze(dim_);
        return keep(1);
      case TensorIndex::kEllipsis:
        from_ += rest_;
        return keep(rest_);
      case TensorIndex::kInteger:
        return select(index.integer());
      case TensorIndex::kSlice:
        return slice(index.slice());
      case TensorIndex::kBool:
        return select_new(index.integer() != 0 ? tensor({0}) : tensor({}, kInt64));
      case TensorIndex::kTensor:
        return select(index.tensor());
    }
  }

  // Goes on to the dimension after the next n, which are taken whole.
  void keep(int64_t n) {
    dim_ += n;
    result_.tensors.resize(result_.tensors.size() + static_cast<size_t>(n));
  }

  void select(int64_t at) {
    const int64_t size = self_.sizes()[from_];
    if (at < -size || at >= size) {
      fail(ErrorCode::kValue, "[", op_, "] index ", at, " is out of range for dimension ", from_,
           " of shape ", shape_str(self_.sizes()));
    }
    ++from_;
    result_.view = result_.view.select(dim_, at);
  }

  void slice(const Slice& slice) {
    if (slice.start.has_value() || slice.stop.has_value() || slice.step != 1) {
      result_.view = mytorch::slice(result_.view, dim_, slice.start, slice.stop, slice.step);
    }
    ++from_;
    keep(1);
  }

  void select(const Tensor& index) {
    if (!index.defined()) {
      ++from_;
      return keep(1);
    }
    if (is_mask(index) && index.dim() == 0) {
      return select_new(mytorch::nonzero(index.reshape(1)).select(1, 0));
    }
    const int64_t dims = is_mask(index) ? index.dim() : 1;
    from_ += dims;
    dim_ += dims;
    add(index);
  }

  // Selects from a new dimension of one element.
  void select_new(const Tensor& positions) {
    result_.view = result_.view.unsqueeze(dim_);
    ++dim_;
    add(positions);
  }

  void add(const Tensor& index) {
    result_.tensors.push_back(index);
    result_.selects = true;
  }

  const Tensor& self_;
  const char* op_;
  int64_t rest_ = 0;  // the number of dimensions that an ellipsis stands for
  int64_t from_ = 0;  // the next dimension of self_
  int64_t dim_ = 0;   // the next dimension of the view
  Indexed result_;
};

IndexedTensor read(const Tensor& self, const TensorIndex* indices, size_t n) {
  Indexed indexed = Indexer(self, indices, n, "index").take();
  if (!indexed.selects) return {indexed.view, nullptr};
  const Tensor values = mytorch::index(indexed.view, indexed.tensors);
  return {values, std::make_shared<const Indexed>(std::move(indexed))};
}

void write(const Indexed& to, const Tensor& values, bool accumulate) {
  if (to.selects) {
    mytorch::index_put_(to.view, to.tensors, values, accumulate);
    return;
  }
  // As in NumPy, the values may have more dimensions than the view if their sizes are 1.
  Tensor source = values;
  while (source.dim() > to.view.dim() && source.sizes()[0] == 1) source = source.squeeze(0);
  if (accumulate) {
    to.view.add_(source);
  } else {
    to.view.copy_(source);
  }
}

void write(const Tensor& self, const TensorIndex* indices, size_t n, const Tensor& values,
           bool accumulate) {
  write(Indexer(self, indices, n, "index_put_").take(), values, accumulate);
}

void write(const Tensor& self, const TensorIndex* indices, size_t n, const Scalar& value,
           bool accumulate) {
  write(self, indices, n, scalar_tensor(value, self.dtype(), self.device()), accumulate);
}

}  // namespace

IndexedTensor::IndexedTensor(Tensor values, std::shared_ptr<const Source> source)
    : Tensor(std::move(values)), source_(std::move(source)) {}

const IndexedTensor& IndexedTensor::operator=(const Tensor& values) && {
  if (source_ == nullptr) {
    static_cast<Tensor&&>(*this) = values;
  } else if (values.defined()) {
    write(*source_, values.to(dtype()), false);
  } else {
    fail(ErrorCode::kValue, "[=] the assigned tensor is undefined");
  }
  return *this;
}

// NOLINTNEXTLINE(bugprone-unhandled-self-assignment): copies elements
const IndexedTensor& IndexedTensor::operator=(const IndexedTensor& values) && {
  return std::move(*this) = static_cast<const Tensor&>(values);
}

const IndexedTensor& IndexedTensor::operator=(const Scalar& value) && {
  if (source_ == nullptr) {
    static_cast<Tensor&&>(*this) = value;
  } else {
    write(*source_, scalar_tensor(value, dtype(), device()), false);
  }
  return *this;
}

IndexedTensor& IndexedTensor::operator=(const Tensor& other) & {
  static_cast<Tensor&>(*this) = other;
  source_ = nullptr;
  return *this;
}

IndexedTensor Tensor::index(std::initializer_list<TensorIndex> indices) const {
  return read(*this, indices.begin(), indices.size());
}

IndexedTensor Tensor::index(const std::vector<TensorIndex>& indices) const {
  return read(*this, indices.data(), indices.size());
}

IndexedTensor Tensor::operator[](const TensorIndex& index) const { return read(*this, &index, 1); }

const Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> indices, const Tensor& values,
                                 bool accumulate) const {
  write(*this, indices.begin(), indices.size(), values, accumulate);
  return *this;
}

const Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> indices, const Scalar& value,
                                 bool accumulate) const {
  write(*this, indices.begin(), indices.size(), value, accumulate);
  return *this;
}

const Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Tensor& values,
                                 bool accumulate) const {
  write(*this, indices.data(), indices.size(), values, accumulate);
  return *this;
}

const Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Scalar& value,
                                 bool accumulate) const {
  write(*this, indices.data(), indices.size(), value, accumulate);
  return *this;
}

}  // namespace mytorch
