// Discrete Fourier transforms in double: by the factors of the length (J. W. Cooley, J. W. Tukey,
// "An algorithm for the machine calculation of complex Fourier series", 1965), and of long primes
// as a convolution (L. I. Bluestein, "A linear filtering approach to the computation of the
// discrete Fourier transform", 1970), so that every length n takes O(n log n) operations.
#include "mytorch/backend/fourier.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <map>
#include <memory>
#include <numbers>
#include <span>
#include <vector>

#include "backends/reference/elements.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/iterate.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

using sdk::TensorView;
using Z = std::complex<double>;

// std::complex's product looks for infinities, which the transform's definition does not.
Z times(Z a, Z b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// exp(sign * 2 pi i k / n)
Z root_of_one(int64_t k, int64_t n, int sign) {
  const long double angle = 2 * std::numbers::pi_v<long double> * static_cast<long double>(k % n) /
                            static_cast<long double>(n);
  return {static_cast<double>(std::cos(angle)), sign * static_cast<double>(std::sin(angle))};
}

int64_t smallest_factor(int64_t n) {
  for (int64_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) return p;
  }
  return n;
}

// A transform of n points that is not divided by anything.
class Transform {
 public:
  Transform(int64_t n, bool forward) : n_(n), sign_(forward ? -1 : 1) {
    for (int64_t k = 0; k < n; ++k) roots_.push_back(root_of_one(k, n, sign_));
  }

  // The points of `from` are `step` apart; `to` has n, and is another memory.
  void run(const Z* from, int64_t step, Z* to) { part(from, step, n_, to); }

 private:
  // The most points of a prime length that are transformed by the definition.
  static constexpr int64_t kMostDirect = 64;

  // exp(sign 2 pi i k / n) for an n that divides the transform's.
  Z root(int64_t k, int64_t n) const { return roots_[static_cast<size_t>(k % n * (n_ / n))]; }

  // Transforms n points, where n divides the length of the whole.
  void part(const Z* from, int64_t step, int64_t n, Z* to) {
    if (n == 1) {
      *to = *from;
      return;
    }
    const int64_t p = smallest_factor(n), m = n / p;
    if (m == 1 && p > kMostDirect) return convolution(from, step, p, to);
    // The p transforms of every p-th point, then for each k a transform of p points.
    for (int64_t r = 0; r < p; ++r) part(from + r * step, step * p, m, to + r * m);
    std::vector<Z> column(static_cast<size_t>(p));
    for (int64_t k = 0; k < m; ++k) {
      for (int64_t r = 0; r < p; ++r) {
        column[static_cast<size_t>(r)] = times(to[r * m + k], root(r * k, n));
      }
      for (int64_t q = 0; q < p; ++q) {
        Z sum = column[0];
        for (int64_t r = 1; r < p; ++r) {
          sum += times(column[static_cast<size_t>(r)], root(r * q, p));
        }
        to[k + q * m] = sum;
      }
    }
  }

  // j k = (j^2 + k^2 - (k - j)^2) / 2 makes the transform of n points a convolution with the chirp
  // c[j] = exp(-sign pi i j^2 / n), which transforms of a power of 2 of points compute.
  struct Chirp {
    Chirp(int64_t n, int sign)
        : size(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * n - 1)))),
          forward(std::make_unique<Transform>(size, true)),
          inverse(std::make_unique<Transform>(size, false)) {
      std::vector<Z> filter(static_cast<size_t>(size));
      for (int64_t j = 0; j < n; ++j) {
        const int64_t square = j * j % (2 * n);
        values.push_back(root_of_one(square, 2 * n, sign));
        filter[static_cast<size_t>(j)] = std::conj(values.back());
        if (j > 0) filter[static_cast<size_t>(size - j)] = filter[static_cast<size_t>(j)];
      }
      spectrum.resize(static_cast<size_t>(size));
      forward->run(filter.data(), 1, spectrum.data());
    }
    int64_t size;
    std::unique_ptr<Transform> forward, inverse;
    std::vector<Z> values, spectrum;
  };

  void convolution(const Z* from, int64_t step, int64_t n, Z* to) {
    std::unique_ptr<Chirp>& chirp = chirps_[n];
    if (chirp == nullptr) chirp = std::make_unique<Chirp>(n, sign_);
    std::vector<Z> x(static_cast<size_t>(chirp->size)), y(x.size());
    for (int64_t j = 0; j < n; ++j) {
      x[static_cast<size_t>(j)] = times(from[j * step], chirp->values[static_cast<size_t>(j)]);
    }
    chirp->forward->run(x.data(), 1, y.data());
    for (size_t k = 0; k < y.size(); ++k) y[k] = times(y[k], chirp->spectrum[k]);
    chirp->inverse->run(y.data(), 1, x.data());
    for (int64_t k = 0; k < n; ++k) {
      const Z value = times(x[static_cast<size_t>(k)], chirp->values[static_cast<size_t>(k)]);
      to[k] = value / static_cast<double>(chirp->size);
    }
  }

  int64_t n_;
  int sign_;
  std::vector<Z> roots_;
  std::map<int64_t, std::unique_ptr<Chirp>> chirps_;
};

// Calls f(element) with a pointer to elements of the type: of complex types, to their first part.
template <class F>
void visit_parts(mt_dtype dtype, F&& f) {
  if (dtype.bits == (sdk::is_complex(dtype) ? 64 : 32)) return f(float());
  f(double());
}

// An operand in memory, in row-major order.
struct Array {
  explicit Array(std::span<const int64_t> sizes)
      : shape(sizes.begin(), sizes.end()), data(static_cast<size_t>(sdk::product(sizes))) {}
  explicit Array(const TensorView& from) : Array(from.shape()) {
    const Elements elements(from);
    visit_parts(from.dtype(), [&](auto part) {
      using T = decltype(part);
      for (size_t i = 0; i < data.size(); ++i) {
        const T* const at = static_cast<const T*>(elements[static_cast<int64_t>(i)]);
        data[i] = sdk::is_complex(from.dtype()) ? Z(at[0], at[1]) : Z(at[0]);
      }
    });
  }

  // Calls f(first, step) for every line along a dimension.
  template <class F>
  void each_line(int d, F&& f) {
    const size_t along = static_cast<size_t>(d);
    int64_t inner = 1;
    for (size_t i = along + 1; i < shape.size(); ++i) inner *= shape[i];
    const int64_t n = shape[along];
    for (int64_t first = 0; first < static_cast<int64_t>(data.size()); first += n * inner) {
      for (int64_t i = 0; i < inner; ++i) f(data.data() + first + i, inner);
    }
  }

  void transform(int d, bool forward) {
    const int64_t n = shape[static_cast<size_t>(d)];
    Transform line(n, forward);
    std::vector<Z> to(static_cast<size_t>(n));
    each_line(d, [&](Z* from, int64_t step) {
      line.run(from, step, to.data());
      for (int64_t k = 0; k < n; ++k) from[k * step] = to[static_cast<size_t>(k)];
    });
  }

  // Returns the array with `size` elements along a dimension: the first ones, then zeros.
  Array resized(int d, int64_t size) {
    std::vector<int64_t> sizes = shape;
    sizes[static_cast<size_t>(d)] = size;
    Array to(sizes);
    std::vector<Z*> lines;
    to.each_line(d, [&](Z* first, int64_t) { lines.push_back(first); });
    size_t at = 0;
    const int64_t kept = std::min(size, shape[static_cast<size_t>(d)]);
    each_line(d, [&](const Z* from, int64_t step) {
      for (int64_t k = 0; k < kept; ++k) lines[at][k * step] = from[k * step];
      ++at;
    });
    return to;
  }

  // Stores the numbers, or their real parts.
  void store(const TensorView& to, double factor) const {
    const Elements elements(to);
    visit_parts(to.dtype(), [&](auto part) {
      using T = decltype(part);
      for (size_t i = 0; i < data.size(); ++i) {
        T* const at = static_cast<T*>(elements[static_cast<int64_t>(i)]);
        at[0] = static_cast<T>(data[i].real() * factor);
        if (sdk::is_complex(to.dtype())) at[1] = static_cast<T>(data[i].imag() * factor);
      }
    });
  }

  std::vector<int64_t> shape;
  std::vector<Z> data;
};

}  // namespace

void fft_c2c(mt_ctx& /*ctx*/, const mt_args__fft_c2c& args) {
  if (TensorView(args.out).numel() == 0) return;
  Array x{TensorView(args.self)};
  const std::vector<int> dims = sdk::fourier_dims(args.dim, args.self);
  for (const int d : dims) x.transform(d, args.forward != 0);
  x.store(args.out, sdk::fourier_factor(args.normalization, args.self, dims));
}

void fft_r2c(mt_ctx& /*ctx*/, const mt_args__fft_r2c& args) {
  if (TensorView(args.out).numel() == 0) return;
  Array x{TensorView(args.self)};
  const std::vector<int> dims = sdk::fourier_dims(args.dim, args.self);
  for (const int d : dims) x.transform(d, true);
  const double factor = sdk::fourier_factor(args.normalization, args.self, dims);
  x.resized(dims.back(), TensorView(args.out).size(dims.back())).store(args.out, factor);
}

void fft_c2r(mt_ctx& /*ctx*/, const mt_args__fft_c2r& args) {
  if (TensorView(args.out).numel() == 0) return;
  Array half{TensorView(args.self)};
  const std::vector<int> dims = sdk::fourier_dims(args.dim, args.self);
  const int last = dims.back();
  for (const int d : dims) {
    if (d != last) half.transform(d, false);
  }
  // The other frequencies, and real ones where a frequency is its own conjugate.
  const int64_t n = args.last_dim_size;
  Array x = half.resized(last, n);
  x.each_line(last, [&](Z* line, int64_t step) {
    line[0] = line[0].real();
    for (int64_t k = 1; k <= n / 2; ++k) {
      if (2 * k == n) line[k * step] = line[k * step].real();
      line[(n - k) * step] = std::conj(line[k * step]);
    }
  });
  x.transform(last, false);
  x.store(args.out, sdk::fourier_factor(args.normalization, args.out, dims));
}

}  // namespace mytorch::reference
