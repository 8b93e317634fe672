// Transforms through the library: every kind of length beside the definition, which is summed in
// double for single frequencies, and what holds of all of them. Conformance tests compare the
// kernels with the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <string>
#include <thread>
#include <vector>

#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/fft.h"
#include "mytorch/ops.h"
#include "mytorch/tensor.h"
#include "mytorch/threads.h"
#include "tests/core/same_bits.h"

namespace mytorch {
namespace {

Tensor random_points(IntList sizes, ScalarType dtype, uint64_t seed = 1) {
  return randn(sizes, dtype, kCPU, Generator(seed));
}

double size_of(const Tensor& x) { return linalg_vector_norm(x).item<double>(); }

// The norm of the difference, beside that of the numbers.
double distance(const Tensor& a, const Tensor& b) {
  return size_of(a - b) / std::max(size_of(b), 1e-300);
}

double allowed(ScalarType dtype) { return dtype == kFloat32 || dtype == kComplex64 ? 1e-6 : 1e-14; }

// A frequency of a vector by the definition.
std::complex<double> frequency(const Tensor& x, int64_t k) {
  const Tensor points = view_as_real(x.to(kComplex128)).contiguous();
  const double* at = points.data_ptr<double>();
  const int64_t n = x.size(0);
  std::complex<double> sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    const auto turn = static_cast<double>(j * k % n) / static_cast<double>(n);
    const double angle = -2 * std::numbers::pi * turn;
    const double c = std::cos(angle), s = std::sin(angle);
    sum +=
        std::complex<double>(at[2 * j] * c - at[2 * j + 1] * s, at[2 * j] * s + at[2 * j + 1] * c);
  }
  return sum;
}

// Many lines, in the lanes of vectors, are the lines alone: of every radix and kind of transform,
// with lanes that stay empty, as rows, as columns, and with elements that are apart.
TEST(ManyLines, AreTheLinesAlone) {
  for (const int64_t n : {8, 12, 16, 18, 20, 42, 49, 60, 100, 128, 210, 256, 500, 1000, 2048}) {
    for (const ScalarType dtype : {kFloat32, kFloat64}) {
      for (const int64_t lines : {8, 16, 37}) {
        const Tensor points = random_points({lines, n}, to_complex(dtype));
        const Tensor real = random_points({lines, n}, dtype, 2);
        const Tensor many = fft::fft(points), back = fft::ifft(points), half = fft::rfft(real);
        for (const int64_t i : {int64_t{0}, lines / 2, lines - 1}) {
          const double most = allowed(dtype);
          EXPECT_LE(distance(many[i], fft::fft(points[i])), most) << n << " " << lines;
          EXPECT_LE(distance(back[i], fft::ifft(points[i])), most) << n << " " << lines;
          EXPECT_LE(distance(half[i], fft::rfft(real[i])), most) << n << " " << lines;
        }
        EXPECT_LE(distance(fft::irfft(half, n), real), allowed(dtype)) << n << " " << lines;
        const Tensor columns = points.t().contiguous();
        EXPECT_TRUE(same_bits(fft::fft(columns, {}, 0).t().contiguous(), many))
            << n << " " << lines;
        const Tensor apart = stack({points, points}, 2).reshape({lines, 2 * n}).unfold(1, 1, 2);
        EXPECT_TRUE(same_bits(fft::fft(apart.squeeze(2)), many)) << n << " " << lines;
      }
    }
  }
}

// Results that are written past the caches.
TEST(ManyLines, OfLargeTensorsAreTheLinesAlone) {
  const Tensor points = random_points({2100, 1024}, kComplex64);
  const Tensor many = fft::fft(points);
  EXPECT_TRUE(same_bits(many.narrow(0, 1000, 32), fft::fft(points.narrow(0, 1000, 32))));
}

class Lengths : public testing::TestWithParam<int64_t> {};

// Of one call of the library, of the convolutions of primes and of others, and of long lines.
INSTANTIATE_TEST_SUITE_P(Fourier, Lengths,
                         testing::Values(1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 37, 41, 60, 64,
                                         97, 100, 101, 127, 128, 509, 1000, 1009, 1018, 1024, 2039,
                                         4096, 8192, 8193, 8209, 10007, 12288, 15625, 16384, 65536,
                                         65537, 62500, 131072, 100003, 1 << 20),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(Lengths, EqualTheDefinition) {
  const int64_t n = GetParam();
  for (const ScalarType dtype : {kComplex64, kComplex128}) {
    const Tensor x = random_points({n}, dtype);
    const Tensor found = fft::fft(x);
    const double scale = size_of(x);
    for (const int64_t k : {int64_t{0}, int64_t{1}, n / 3, n / 2, n - 1}) {
      if (k >= n) continue;
      const std::complex<double> want = frequency(x, k);
      const Tensor got = view_as_real(found[k].to(kComplex128));
      const std::complex<double> value(got[0].item<double>(), got[1].item<double>());
      EXPECT_LE(std::abs(value - want), 8 * allowed(dtype) * scale)
          << dtype_name(dtype) << " " << k;
    }
  }
}

TEST_P(Lengths, InversesGiveTheInput) {
  const int64_t n = GetParam();
  for (const ScalarType dtype : {kFloat32, kFloat64}) {
    const Tensor real = random_points({2, n}, dtype);
    EXPECT_LE(distance(fft::irfft(fft::rfft(real), n), real), allowed(dtype));
    EXPECT_LE(distance(fft::hfft(fft::ihfft(real), n), real), allowed(dtype));
    const Tensor points = random_points({2, n}, to_complex(dtype));
    EXPECT_LE(distance(fft::ifft(fft::fft(points)), points), allowed(dtype));
    EXPECT_LE(distance(fft::fft(fft::ifft(points, {}, -1, "forward"), {}, -1, "forward"), points),
              allowed(dtype));
  }
}

TEST_P(Lengths, KeepTheNorm) {
  const int64_t n = GetParam();
  const Tensor x = random_points({n}, kComplex128);
  EXPECT_NEAR(size_of(fft::fft(x, {}, -1, "ortho")) / size_of(x), 1, 1e-12);
}

TEST_P(Lengths, RealOnesAreHalfOfComplexOnes) {
  const int64_t n = GetParam();
  const Tensor x = random_points({3, n}, kFloat64);
  const Tensor whole = fft::fft(x.to(kComplex128));
  EXPECT_LE(distance(fft::fft(x), whole), 1e-14);
  EXPECT_LE(distance(fft::rfft(x), whole.narrow(1, 0, n / 2 + 1)), 1e-14);
}

TEST_P(Lengths, BitsDependOnNeitherThreadsNorStrides) {
  const int64_t n = GetParam();
  const Tensor x = random_points({2, n}, kComplex64);
  const int before = num_threads();
  set_num_threads(1);
  const Tensor alone = fft::fft(x);
  const Tensor half = fft::rfft(real(x));
  set_num_threads(2);
  EXPECT_TRUE(same_bits(fft::fft(x), alone));
  EXPECT_TRUE(same_bits(fft::rfft(real(x)), half));
  // One line alone has all threads.
  EXPECT_TRUE(same_bits(fft::fft(x[1]), alone[1].clone()));
  set_num_threads(before);
  const Tensor columns = x.t().contiguous();
  EXPECT_TRUE(same_bits(fft::fft(columns, {}, 0).t().contiguous(), alone));
}

TEST(Fourier, DimensionsAreTransformedOneAfterTheOther) {
  const Tensor x = random_points({3, 20, 7, 12}, kComplex128);
  const Tensor each = fft::fft(fft::fft(fft::fft(x, {}, 1), {}, 3), {}, 0);
  EXPECT_LE(distance(fft::fftn(x, {}, {0, 1, 3}), each), 1e-14);
  EXPECT_LE(distance(fft::fftn(x.permute({2, 0, 3, 1}), {}, {1, 3, 2}).permute({1, 3, 0, 2}), each),
            1e-14);
  const Tensor r = random_points({4, 9, 10}, kFloat64);
  EXPECT_LE(distance(fft::irfftn(fft::rfftn(r), r.sizes()), r), 1e-14);
  EXPECT_LE(distance(fft::hfftn(fft::ihfftn(r), r.sizes()), r), 1e-14);
}

TEST(Fourier, InputsAreCroppedOrPaddedWithZeros) {
  const Tensor x = random_points({3, 10}, kFloat64);
  EXPECT_LE(distance(fft::fft(x, 6), fft::fft(x.narrow(1, 0, 6))), 1e-15);
  EXPECT_LE(distance(fft::fft(x, 5000), fft::fft(constant_pad_nd(x, {0, 4990}))), 1e-15);
}

TEST(Fourier, NanStaysInItsLine) {
  Tensor x = random_points({4, 1009}, kComplex64);
  x[2][5] = std::numeric_limits<double>::quiet_NaN();
  const Tensor finite = isfinite(fft::fft(x)).all(1);
  EXPECT_TRUE(finite[0].item<bool>() && finite[1].item<bool>() && finite[3].item<bool>());
  EXPECT_FALSE(finite[2].item<bool>());
}

// More lengths than the cache keeps, by several threads.
TEST(Fourier, ThreadsShareTheCacheOfLengths) {
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&wrong, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const int64_t n = 1 + (static_cast<int64_t>(t) * 37 + i * 11) % 150;
        const Tensor x = random_points({2, n}, kFloat32, static_cast<uint64_t>(n));
        wrong[t] += distance(fft::irfft(fft::rfft(x), n), x) > 1e-6 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

TEST(Fourier, ShiftsAndFrequenciesFitTogether) {
  for (const int64_t n : {1, 2, 5, 8}) {
    const Tensor f = fft::fftfreq(n, 0.5, kFloat64);
    const Tensor sorted = fft::fftshift(f);
    EXPECT_TRUE(n == 1 || (diff(sorted) > 0).all().item<bool>()) << n;
    EXPECT_TRUE(equal(fft::ifftshift(sorted), f)) << n;
    EXPECT_TRUE(equal(fft::rfftfreq(n, 0.5, kFloat64), abs(f.narrow(0, 0, n / 2 + 1)))) << n;
  }
}

TEST(Fourier, ShortTimeTransformsHaveAnInverse) {
  const Tensor signal = random_points({2, 1000}, kFloat64);
  const Tensor window = hann_window(64, true, kFloat64);
  const Tensor spectra = stft(signal, 64, 16, {}, window, true, "reflect", false, {}, true);
  EXPECT_EQ(spectra.sizes(), (std::vector<int64_t>{2, 33, 63}));
  const Tensor back = istft(spectra, 64, 16, {}, window, true, false, {}, 1000);
  // The last samples are not in any whole window.
  EXPECT_LE(distance(back.narrow(1, 0, 992), signal.narrow(1, 0, 992)), 1e-14);
}

TEST(Fourier, RefusesWhatHasNoTransform) {
  const auto failure = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(failure([] { fft::fft(ones({4}, kFloat16)); }).find("float32, float64"),
            std::string::npos);
  EXPECT_NE(failure([] { fft::fft(ones({4}), int64_t{1} << 62); }), "");
  EXPECT_NE(failure([] { fft::irfft(ones({4}), std::numeric_limits<int64_t>::min()); }), "");
  EXPECT_NE(failure([] { fft::rfft(ones({4}, kComplex64)); }).find("real tensor"),
            std::string::npos);
}

}  // namespace
}  // namespace mytorch
