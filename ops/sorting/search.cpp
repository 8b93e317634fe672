// Binary search, and the different elements of a tensor.
#include <algorithm>

#include "core/types/holds.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/any.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/clamp_max.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/nonzero.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/searchsorted.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/unique_consecutive.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "ops/check.h"
#include "ops/geometry.h"
#include "ops/spec.h"

namespace mytorch {

namespace shape {

TensorSpec searchsorted(const Tensor& sorted_sequence, const Tensor& self, bool out_int32,
                        bool right, std::optional<std::string_view> side, const Tensor& sorter) {
  const char* op = "searchsorted";
  check_value(!side || *side == "left" || *side == "right", op, "side is '", side.value_or(""),
              "': give 'left' or 'right'");
  check_value(!side || !right || *side == "right", op, "side is 'left', but right is true");
  check_shape(sorted_sequence.dim() >= 1, op, "the sequence is 0-dim: give at least a vector");
  const bool shared = sorted_sequence.dim() == 1;
  bool fits = shared || sorted_sequence.dim() == self.dim();
  for (int64_t d = 0; fits && !shared && d + 1 < self.dim(); ++d) {
    fits = sorted_sequence.size(d) == self.size(d);
  }
  check_shape(fits, op, "the leading dimensions of the sequence, ", sorted_sequence.sizes(),
              ", and of the elements, ", self.sizes(), ", differ: give a vector or equal ones");
  check_same_type(sorted_sequence, "sorted_sequence", self, "self", op);
  if (sorter.defined()) {
    check_shape(sorter.sizes() == sorted_sequence.sizes(), op, "sorter has shape ", sorter.sizes(),
                ", the sequence ", sorted_sequence.sizes());
  }
  return like(self, to_dims(self.sizes()), out_int32 ? kInt32 : kInt64);
}

}  // namespace shape

namespace composite {
namespace {

// NaN is the largest, as in sort.
Tensor below(const Tensor& a, const Tensor& b) {
  Tensor less = a < b;
  if (!a.is_floating_point()) return less;
  return mytorch::where(mytorch::isnan(b), mytorch::isnan(a).logical_not(), less);
}

Tensor not_above(const Tensor& a, const Tensor& b) { return below(b, a).logical_not(); }

// Returns whether each slice of dimension 0 but the first differs from the one before.
Tensor starts_of_runs(const Tensor& rows) {
  const int64_t n = rows.size(0);
  Tensor first = mytorch::ones({std::min<int64_t>(n, 1)}, kBool, rows.device());
  if (n < 2) return first;
  Tensor differ = rows.narrow(0, 1, n - 1) != rows.narrow(0, 0, n - 1);
  if (differ.dim() > 1) differ = differ.flatten(1).any({1});
  return mytorch::cat({first, differ}, 0);
}

struct Runs {
  Tensor starts;   // positions of the first slices
  Tensor inverse;  // the run of each slice
  Tensor counts;
};

Runs runs_of(const Tensor& rows) {
  const Tensor is_start = starts_of_runs(rows);
  const Tensor starts = is_start.nonzero().squeeze(1);
  const Tensor ends = mytorch::cat(
      {starts.slice(0, 1),
       mytorch::full({starts.size(0) == 0 ? 0 : 1}, rows.size(0), kInt64, rows.device())},
      0);
  return {starts, is_start.to(kInt64).cumsum(0) - 1, ends - starts};
}

// The slices of `dim` as rows, or all elements.
Tensor rows_of(const Tensor& self, std::optional<int64_t> dim, const char* op) {
  if (!dim) return self.reshape({-1});
  check_shape(self.dim() != 0, op, "a 0-dim tensor has no slices: leave out dim");
  return self.transpose(0, wrap_dim(*dim, self.dim(), op));
}

Tensors<3> results(const Tensor& self, std::optional<int64_t> dim, const Tensor& rows,
                   const Runs& runs, const Tensor& inverse, bool return_inverse,
                   bool return_counts) {
  const Tensor none = mytorch::empty({0}, kInt64, self.device());
  Tensor output = rows.index_select(0, runs.starts);
  if (dim) output = output.transpose(0, *dim).contiguous();
  return {output,
          !return_inverse ? none
          : dim           ? inverse
                          : inverse.reshape(self.sizes()),
          return_counts ? runs.counts : none};
}

}  // namespace

Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& self, bool out_int32, bool right,
                    std::optional<std::string_view> side, const Tensor& sorter) {
  const bool after = right || (side && *side == "right");
  const bool shared = sorted_sequence.dim() == 1;
  Tensor sequence = sorted_sequence.detach();
  const Tensor elements = self.detach();
  if (sorter.defined()) {
    sequence = sequence.gather(-1, sorter);
    return mytorch::searchsorted(sequence, elements, out_int32, after);
  }
  const int64_t n = sequence.size(-1);
  // Everything before `low` is smaller; the answer is at most `length` behind it. The search takes
  // as many steps for each element.
  Tensor low = mytorch::zeros(elements.sizes(), kInt64, elements.device());
  for (int64_t length = n; length > 0;) {
    const int64_t half = (length + 1) / 2;
    // Does the answer lie behind the half?
    const Tensor probe = mytorch::clamp_max(low + (half - 1), n - 1);
    const Tensor value = shared ? sequence.take(probe) : sequence.gather(-1, probe);
    const Tensor beyond = mytorch::logical_and(
        after ? not_above(value, elements) : below(value, elements), low + (half - 1) < n);
    low = low + beyond.to(kInt64) * half;
    length -= half;
  }
  return out_int32 ? low.to(kInt32) : low;
}

Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  check_shape(boundaries.dim() == 1, "bucketize", "boundaries has shape ", boundaries.sizes(),
              ": it must be a vector");
  const ScalarType type = promote_types(self.dtype(), boundaries.dtype());
  return mytorch::searchsorted(boundaries.to(type), self.to(type), out_int32, right);
}

// Returns the position of a number in a vector, in the vector's type or, where that does not have
// the number, in float64 or int64.
static Tensor position_of(const Scalar& number, const Tensor& line, bool out_int32, bool right,
                          std::optional<std::string_view> side, const Tensor& sorter) {
  ScalarType type = line.dtype();
  if (number.is_float() && !line.is_floating_point()) type = kFloat64;
  if (!number.is_float() && (type == kBool || !holds(type, number))) type = kInt64;
  return mytorch::searchsorted(line.to(type), mytorch::full(IntList(), number, type, line.device()),
                               out_int32, right, side, sorter);
}

Tensor searchsorted_scalar(const Tensor& sorted_sequence, const Scalar& self, bool out_int32,
                           bool right, std::optional<std::string_view> side, const Tensor& sorter) {
  check_shape(sorted_sequence.dim() == 1, "searchsorted", "the sequence has shape ",
              sorted_sequence.sizes(), ": a number is searched in a vector");
  return position_of(self, sorted_sequence, out_int32, right, side, sorter);
}

Tensor bucketize_scalar(const Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  check_shape(boundaries.dim() == 1, "bucketize", "boundaries has shape ", boundaries.sizes(),
              ": it must be a vector");
  return position_of(self, boundaries, out_int32, right, {}, Tensor());
}

Tensor isin_number(const Tensor& elements, const Scalar& test_element, bool /*assume_unique*/,
                   bool invert) {
  const Tensor x = elements.detach();
  return invert ? mytorch::ne(x, test_element) : mytorch::eq(x, test_element);
}

Tensor isin_of_number(const Scalar& element, const Tensor& test_elements, bool /*assume_unique*/,
                      bool invert) {
  const Tensor found = mytorch::any(mytorch::eq(test_elements.detach(), element));
  return invert ? found.logical_not() : found;
}

Tensor isin(const Tensor& elements, const Tensor& test_elements, bool /*assume_unique*/,
            bool invert) {
  const ScalarType type = promote_types(elements.dtype(), test_elements.dtype());
  const Tensor x = elements.detach().to(type);
  const Tensor sorted = std::get<0>(mytorch::sort(test_elements.detach().to(type).reshape({-1})));
  if (sorted.numel() == 0) return mytorch::full(x.sizes(), invert, kBool, x.device());
  const Tensor at = mytorch::clamp_max(mytorch::searchsorted(sorted, x), sorted.numel() - 1);
  const Tensor found = sorted.take(at);
  return invert ? found != x : found == x;
}

Tensors<3> unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                              std::optional<int64_t> dim) {
  const Tensor rows = rows_of(self.detach(), dim, "unique_consecutive");
  const Runs runs = runs_of(rows);
  return results(self, dim, rows, runs, runs.inverse, return_inverse, return_counts);
}

Tensors<3> unique(const Tensor& self, bool /*sorted*/, bool return_inverse, bool return_counts,
                  std::optional<int64_t> dim) {
  const Tensor rows = rows_of(self.detach(), dim, "unique");
  // Slices are sorted by their last element first: each later sort is stable.
  Tensor order = mytorch::arange(rows.size(0), kInt64, self.device());
  if (dim) {
    const Tensor flat = rows.reshape({rows.size(0), rows.size(0) == 0 ? 0 : -1});
    for (int64_t column = flat.size(1); column-- > 0;) {
      const Tensor key = flat.select(1, column).index_select(0, order);
      order = order.index_select(0, std::get<1>(mytorch::sort(key, true, 0, false)));
    }
  } else {
    order = std::get<1>(mytorch::sort(rows, true, 0, false));
  }
  const Tensor sorted = rows.index_select(0, order);
  const Runs runs = runs_of(sorted);
  Tensor inverse;
  if (return_inverse) {
    inverse =
        mytorch::zeros({order.numel()}, kInt64, self.device()).scatter(0, order, runs.inverse);
  }
  return results(self, dim, sorted, runs, inverse, return_inverse, return_counts);
}

Tensor msort(const Tensor& self) { return std::get<0>(mytorch::sort(self, true, 0, false)); }

}  // namespace composite
}  // namespace mytorch
