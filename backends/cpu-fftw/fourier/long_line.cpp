// A long transform as short ones in both directions of a matrix, so that each stays in the cache
// (D. H. Bailey, "FFTs in external or hierarchical memory", 1990). With j = j2 n1 + j1 and
// k = k1 n2 + k2,
//
//   X[k] = sum over j1 of w1^(j1 k1) w^(j1 k2) sum over j2 of w2^(j2 k2) x[j]
//
// where w, w1 and w2 are the roots of one for n = n1 n2, n1 and n2 points.
#include <algorithm>
#include <vector>

#include "backends/cpu-fftw/common/columns.h"
#include "backends/cpu-fftw/common/memory.h"
#include "backends/cpu-fftw/fourier/arithmetic.h"
#include "backends/cpu-fftw/fourier/line.h"

namespace mytorch::fftw {
namespace {

// Columns that are loaded together: they share cache lines.
constexpr int64_t kColumns = 32;

constexpr int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

template <class T>
class LongLine : public Line<T> {
 public:
  using C = Complex<T>;

  LongLine(int64_t n1, int64_t n2, bool forward)
      : n1_(n1),
        n2_(n2),
        pitch_(padded(n2)),
        first_(line_of<T>(n1, forward)),
        second_(line_of<T>(n2, forward)) {
    const int64_t n = n1 * n2;
    const int sign = forward ? -1 : 1;
    while ((int64_t{1} << 2 * shift_) < n) ++shift_;
    for (int64_t m = 0; m < int64_t{1} << shift_; ++m) fine_.push_back(root_of_one(m, n, sign));
    for (int64_t m = 0; m < n; m += int64_t{1} << shift_) {
      coarse_.push_back(root_of_one(m, n, sign));
    }
  }

  int64_t work() const override { return n1_ * pitch_; }

  void run(const Team& team, const C* from, C* to, C* work) const override {
    team.each(tiles(n1_), kColumns * n2_, [&](int64_t begin, int64_t end) {
      const int64_t pitch = padded(n2_);
      const int64_t blocks = n2_ / 16 + 1;
      Memory memory(padded_bytes<C>(kColumns * pitch) + padded_bytes<C>(second_->work()) +
                    padded_bytes<C>(16) + padded_bytes<C>(blocks));
      C *const rows = memory.take<C>(kColumns * pitch), *const inner =
                                                            memory.take<C>(second_->work());
      C *const fine = memory.take<C>(16), *const coarse = memory.take<C>(blocks);
      for (int64_t t = begin; t < end; ++t) {
        const int64_t j0 = t * kColumns, count = std::min(kColumns, n1_ - j0);
        load(from + j0, n1_, 1, n2_, count, rows, pitch);
        for (int64_t j = 0; j < count; ++j) {
          C* const row = work + (j0 + j) * pitch_;
          second_->run(Team(), rows + j * pitch, row, inner);
          for (int64_t k = 0; k < 16; ++k) fine[k] = C(root((j0 + j) * k));
          for (int64_t b = 0; b < blocks; ++b) coarse[b] = C(root((j0 + j) * (16 * b)));
          turn(row, n2_, fine, coarse);
        }
      }
    });
    team.each(tiles(n2_), kColumns * n1_, [&](int64_t begin, int64_t end) {
      const int64_t pitch = padded(n1_);
      Memory memory(2 * padded_bytes<C>(kColumns * pitch) + padded_bytes<C>(first_->work()));
      C *const rows = memory.take<C>(kColumns * pitch), *const done =
                                                            memory.take<C>(kColumns * pitch);
      C* const inner = memory.take<C>(first_->work());
      for (int64_t t = begin; t < end; ++t) {
        const int64_t k0 = t * kColumns, count = std::min(kColumns, n2_ - k0);
        load(work + k0, pitch_, 1, n1_, count, rows, pitch);
        for (int64_t k = 0; k < count; ++k) {
          first_->run(Team(), rows + k * pitch, done + k * pitch, inner);
        }
        store(done, pitch, to + k0, n2_, 1, n1_, count);
      }
    });
  }

 private:
  static int64_t tiles(int64_t columns) { return (columns + kColumns - 1) / kColumns; }
  // Rows that are not a power of 2 apart, which would share sets of the cache.
  static int64_t padded(int64_t n) { return rounded_up(n, 8) + 8; }

  // w^m for m < n^2.
  Complex<double> root(int64_t m) const {
    m %= n1_ * n2_;
    return times(fine_[static_cast<size_t>(m & ((int64_t{1} << shift_) - 1))],
                 coarse_[static_cast<size_t>(m >> shift_)]);
  }

  const int64_t n1_, n2_, pitch_;
  std::shared_ptr<const Line<T>> first_, second_;
  int shift_ = 0;
  std::vector<Complex<double>> fine_, coarse_;
};

}  // namespace

template <class T>
std::shared_ptr<const Line<T>> long_line(int64_t n1, int64_t n2, bool forward) {
  return std::make_shared<LongLine<T>>(n1, n2, forward);
}

template std::shared_ptr<const Line<float>> long_line(int64_t n1, int64_t n2, bool forward);
template std::shared_ptr<const Line<double>> long_line(int64_t n1, int64_t n2, bool forward);

}  // namespace mytorch::fftw
