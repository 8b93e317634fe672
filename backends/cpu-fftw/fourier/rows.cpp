#include "backends/cpu-fftw/fourier/rows.h"

#include "backends/cpu-fftw/fourier/arithmetic.h"

namespace mytorch::fftw {
namespace {

template <class T>
Complex<T> conjugate(Complex<T> x) {
  return {x.real(), -x.imag()};
}

}  // namespace

template <class T>
HalvedLine<T>::HalvedLine(int64_t n, bool forward)
    : n_(n), half_(n % 2 == 0 ? n / 2 : 0), line_(line_of<T>(half_ != 0 ? half_ : n, forward)) {
  for (int64_t k = 0; half_ != 0 && k <= n / 4; ++k) {
    roots_.push_back(Complex<T>(root_of_one(k, n, forward ? -1 : 1)));
  }
}

// Z[k], the transform of x[2 j] + i x[2 j + 1], is E[k] + i O[k] with the transforms of the even
// and the odd elements, of which (Z[k] + conj(Z[m - k])) / 2 is E[k]. X[k] = E[k] + w^k O[k], m = n
// / 2.
template <class T>
void RealRow<T>::run(const Team& team, const T* from, Complex<T>* to, Complex<T>* work) const {
  using C = Complex<T>;
  if (half_ == 0) {
    C *const x = work, *const y = work + this->padded(n_);
    for (int64_t j = 0; j < n_; ++j) x[j] = from[j];
    line_->run(team, x, y, y + this->padded(n_));
    const int64_t count = whole_ ? n_ : n_ / 2 + 1;
    for (int64_t k = 0; k < count; ++k) to[k] = y[k];
    return;
  }
  const int64_t m = half_;
  C* const z = is_aligned(to) ? to : work;
  line_->run(team, reinterpret_cast<const C*>(from), z, work + this->padded(n_));
  const C first = z[0];
  team.each(m / 2, 1, [&](int64_t begin, int64_t end) {
    separate(z, roots_.data(), m, begin + 1, end + 1, to);
  });
  to[0] = {first.real() + first.imag(), 0};
  to[m] = {first.real() - first.imag(), 0};
  if (!whole_) return;
  for (int64_t k = 1; k < m; ++k) to[n_ - k] = conjugate(to[k]);
}

template <class T>
void HalfRow<T>::run(const Team& team, const Complex<T>* from, T* to, Complex<T>* work) const {
  using C = Complex<T>;
  C *const x = work, *const inner = work + 2 * this->padded(n_);
  if (half_ == 0) {
    C* const y = work + this->padded(n_);
    x[0] = from[0].real();
    for (int64_t k = 1; k <= n_ / 2; ++k) {
      x[k] = from[k];
      x[n_ - k] = conjugate(from[k]);
    }
    line_->run(team, x, y, inner);
    for (int64_t j = 0; j < n_; ++j) to[j] = y[j].real();
    return;
  }
  const int64_t m = half_;
  const T first = from[0].real(), last = from[m].real();
  x[0] = {first + last, first - last};
  team.each(m / 2, 1, [&](int64_t begin, int64_t end) {
    unite(from, roots_.data(), m, begin + 1, end + 1, x);
  });
  line_->run(team, x, reinterpret_cast<C*>(to), inner);
}

template <class T>
Point<T>* RealRow<T>::run_batch(Point<T>* x, Point<T>* y) const {
  Point<T>* const z = line_->batch()->run(x, y);
  separate_points(z, roots_.data(), half_, z);
  return z;
}

template <class T>
Point<T>* HalfRow<T>::run_batch(Point<T>* x, Point<T>* y) const {
  unite_points(x, roots_.data(), half_, x);
  return line_->batch()->run(x, y);
}

template class HalvedLine<float>;
template class HalvedLine<double>;
template class RealRow<float>;
template class RealRow<double>;
template class HalfRow<float>;
template class HalfRow<double>;

}  // namespace mytorch::fftw
