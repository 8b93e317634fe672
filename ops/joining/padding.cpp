// Padding with a constant, or with elements of the tensor itself.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/flip.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/pad.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch::composite {
namespace {

void check_pairs(const Tensor& self, IntList pad) {
  check_shape(
      pad.size() % 2 == 0 && static_cast<int64_t>(pad.size() / 2) <= self.dim(), "pad", "pad ", pad,
      " is not a (before, after) pair for each of the last dimensions of shape ", self.sizes());
}

// Returns the padded size of a dimension.
int64_t padded(int64_t size, int64_t before, int64_t after) {
  return checked(Wide{size} + before + after, "pad", "the padded size");
}

void check_padding(bool fits, const Tensor& self, IntList pad, int64_t dim, Str mode) {
  check_shape(fits, "pad", "pad ", pad, " in mode '", mode, "' is too much for dimension ", dim,
              " of shape ", self.sizes());
}

// Returns the `before` elements that pad a dimension at its begin, and the `after` ones at its end.
Tensor first_piece(const Tensor& x, int64_t dim, int64_t before, Str mode) {
  if (mode == "circular") return x.narrow(dim, x.size(dim) - before, before);
  if (mode == "reflect") return mytorch::flip(x.narrow(dim, 1, before), {dim});
  return x.narrow(dim, 0, 1).expand(as_list(geometry::with_size(x.sizes(), dim, before)));
}
Tensor last_piece(const Tensor& x, int64_t dim, int64_t after, Str mode) {
  const int64_t size = x.size(dim);
  if (mode == "circular") return x.narrow(dim, 0, after);
  if (mode == "reflect") return mytorch::flip(x.narrow(dim, size - 1 - after, after), {dim});
  return x.narrow(dim, size - 1, 1).expand(as_list(geometry::with_size(x.sizes(), dim, after)));
}

}  // namespace

Tensor constant_pad_nd(const Tensor& self, IntList pad, const Scalar& value) {
  check_pairs(self, pad);
  Dims sizes = to_dims(self.sizes());
  Tensor from = self;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const int64_t dim = self.dim() - 1 - static_cast<int64_t>(i);
    const int64_t before = pad[2 * i], after = pad[2 * i + 1];
    const int64_t size = sizes[dim];
    sizes[dim] = padded(size, before, after);
    check_padding(sizes[dim] >= 0, self, pad, dim, "constant");
    const int64_t first = -std::clamp<int64_t>(before, -size, 0);
    const int64_t last = std::max(first, size + std::clamp<int64_t>(after, -size, 0));
    from = from.slice(dim, first, last);
  }
  Tensor result = mytorch::full(as_list(sizes), value, self.dtype(), self.device());
  Tensor to = result;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const int64_t dim = self.dim() - 1 - static_cast<int64_t>(i);
    to = to.narrow(dim, std::min(std::max<int64_t>(pad[2 * i], 0), sizes[dim]), from.sizes()[dim]);
  }
  to.copy_(from);
  return result;
}

Tensor pad(const Tensor& self, IntList pad, Str mode, std::optional<double> value) {
  if (mode == "constant") return mytorch::constant_pad_nd(self, pad, value.value_or(0.0));
  check_value(mode == "reflect" || mode == "replicate" || mode == "circular", "pad", "mode '", mode,
              "' is none of 'constant', 'reflect', 'replicate' and 'circular'");
  check_value(!value.has_value() || *value == 0, "pad", "mode '", mode, "' takes no value");
  check_pairs(self, pad);
  Tensor result = self;
  bool copied = false;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const int64_t dim = self.dim() - 1 - static_cast<int64_t>(i);
    int64_t before = pad[2 * i], after = pad[2 * i + 1];
    if (before == 0 && after == 0) continue;
    if (mode == "circular" && std::min(before, after) < 0) {
      // The elements that remain after cropping wrap around.
      const int64_t first = -std::max(std::min<int64_t>(before, 0), -self.sizes()[dim]);
      const int64_t last =
          self.sizes()[dim] + std::max(std::min<int64_t>(after, 0), -self.sizes()[dim]);
      check_padding(first <= last, self, pad, dim, mode);
      result = result.slice(dim, first, last);
      before = std::max<int64_t>(before, 0);
      after = std::max<int64_t>(after, 0);
    }
    const int64_t size = result.sizes()[dim];
    const int64_t most = mode == "reflect" ? size - 1 : mode == "circular" ? size : INT64_MAX;
    check_padding(before <= most && after <= most && size != 0 && padded(size, before, after) >= 0,
                  self, pad, dim, mode);
    std::vector<Tensor> pieces;
    if (before > 0) pieces.push_back(first_piece(result, dim, before, mode));
    pieces.push_back(result);
    if (after > 0) pieces.push_back(last_piece(result, dim, after, mode));
    copied = copied || pieces.size() > 1;
    if (pieces.size() > 1) result = mytorch::cat(pieces, dim);
    // Negative padding crops what is padded.
    const int64_t padded_size = result.size(dim);
    result = result.slice(dim, std::max<int64_t>(-before, 0),
                          padded_size - std::max<int64_t>(-after, 0));
  }
  return copied ? result.contiguous() : result.clone();
}

// Pads the last `n` dimensions, behind channels and perhaps a batch.
static Tensor pad_last(const char* op, const Tensor& self, IntList padding, int64_t n, Str mode) {
  check_value(static_cast<int64_t>(padding.size()) == 2 * n, op, "padding is ", padding, ": give ",
              2 * n, " numbers, two for each dimension");
  check_shape(self.dim() == n + 1 || self.dim() == n + 2, op, "self has shape ", self.sizes(),
              ": give ", n + 2, " dimensions, or ", n + 1, " without a batch");
  return mytorch::pad(self, padding, mode);
}

Tensor reflection_pad1d(const Tensor& self, IntList padding) {
  return pad_last("reflection_pad1d", self, padding, 1, "reflect");
}

Tensor reflection_pad2d(const Tensor& self, IntList padding) {
  return pad_last("reflection_pad2d", self, padding, 2, "reflect");
}

Tensor reflection_pad3d(const Tensor& self, IntList padding) {
  return pad_last("reflection_pad3d", self, padding, 3, "reflect");
}

Tensor replication_pad1d(const Tensor& self, IntList padding) {
  return pad_last("replication_pad1d", self, padding, 1, "replicate");
}

Tensor replication_pad2d(const Tensor& self, IntList padding) {
  return pad_last("replication_pad2d", self, padding, 2, "replicate");
}

Tensor replication_pad3d(const Tensor& self, IntList padding) {
  return pad_last("replication_pad3d", self, padding, 3, "replicate");
}

}  // namespace mytorch::composite

namespace mytorch::grads {

Tensor constant_pad_nd_backward(const Tensor& grad, IntList pad) {
  Dims opposite = to_dims(pad);
  for (int64_t& n : opposite) n = checked(-Wide{n}, "pad", "the padding");
  return mytorch::constant_pad_nd(grad, as_list(opposite));
}

}  // namespace mytorch::grads
