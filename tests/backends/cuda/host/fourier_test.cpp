// Fourier transforms on the GPU beside the CPU's: lengths that the library treats differently, more
// dimensions than it takes at once, strides, captured graphs, and several threads. Conformance
// tests compare small ones with the reference.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "mytorch/fft.h"
#include "mytorch/graph.h"
#include "mytorch/ops.h"
#include "mytorch/tensor.h"
#include "tests/backends/cuda/gpu.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch::testing {
namespace {

class FourierOnGpu : public Gpu {};

Tensor random_points(IntList sizes, ScalarType dtype, uint64_t seed = 1) {
  return randn(sizes, dtype, kCPU, Generator(seed));
}

// The norm of the difference, beside that of the numbers. Both are on the CPU.
double relative_difference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(kCPU), y = b.to(kCPU);
  return linalg_vector_norm(x - y).item<double>() /
         std::max(linalg_vector_norm(y).item<double>(), 1e-300);
}

double allowed(ScalarType dtype) { return dtype == kFloat32 ? 1e-6 : 1e-14; }

TEST_F(FourierOnGpu, LengthsOfEveryKind) {
  for (const int64_t n :
       {1, 2, 3, 8, 97, 100, 1009, 1018, 1024, 2039, 8209, 65536, 65537, 1 << 20}) {
    for (const ScalarType dtype : {kFloat32, kFloat64}) {
      const Tensor real = random_points({3, n}, dtype);
      const Tensor points = random_points({3, n}, to_complex(dtype));
      const double most = 4 * allowed(dtype);
      const std::string text = std::to_string(n);
      EXPECT_LE(relative_difference(fft::fft(points.to(kCUDA)), fft::fft(points)), most) << text;
      EXPECT_LE(relative_difference(fft::fft(real.to(kCUDA)), fft::fft(real)), most) << text;
      EXPECT_LE(relative_difference(fft::rfft(real.to(kCUDA)), fft::rfft(real)), most) << text;
      EXPECT_LE(relative_difference(fft::irfft(fft::rfft(real.to(kCUDA)), n), real), most) << text;
      EXPECT_LE(relative_difference(fft::hfft(fft::ihfft(real.to(kCUDA)), n), real), most) << text;
      EXPECT_LE(
          relative_difference(
              fft::ifft(fft::fft(points.to(kCUDA), {}, -1, "ortho"), {}, -1, "ortho"), points),
          most)
          << text;
    }
  }
}

TEST_F(FourierOnGpu, ManyDimensionsAndStrides) {
  const Tensor x = random_points({3, 4, 5, 6, 7}, kComplex128), on_gpu = x.to(kCUDA);
  EXPECT_LE(relative_difference(fft::fftn(on_gpu), fft::fftn(x)), 1e-14);
  EXPECT_LE(relative_difference(fft::fftn(on_gpu, {}, {1, 3}), fft::fftn(x, {}, {1, 3})), 1e-14);
  EXPECT_LE(relative_difference(fft::ifftn(on_gpu.permute({4, 2, 0, 3, 1}), {}, {0, 2}),
                                fft::ifftn(x.permute({4, 2, 0, 3, 1}), {}, {0, 2})),
            1e-14);
  EXPECT_LE(relative_difference(fft::fft(on_gpu.slice(4, 0, 7, 2)), fft::fft(x.slice(4, 0, 7, 2))),
            1e-14);
  const Tensor real = random_points({3, 4, 5, 6, 7}, kFloat64);
  EXPECT_LE(relative_difference(fft::rfftn(real.to(kCUDA)), fft::rfftn(real)), 1e-14);
  // A spectrum that no real signal has.
  EXPECT_LE(relative_difference(fft::irfftn(on_gpu), fft::irfftn(x)), 1e-14);
  // Real operands at addresses that are not aligned as complex numbers are.
  const Tensor odd = random_points({9}, kFloat32);
  EXPECT_LE(
      relative_difference(fft::rfft(odd.to(kCUDA).slice(0, 1, 9)), fft::rfft(odd.slice(0, 1, 9))),
      1e-6);
}

TEST_F(FourierOnGpu, OperandsAreNotChanged) {
  const Tensor spectrum = random_points({4, 33}, kComplex64).to(kCUDA);
  const Tensor before = spectrum.clone();
  fft::irfft(spectrum);
  EXPECT_EQ(relative_difference(spectrum, before), 0);
}

TEST_F(FourierOnGpu, GraphsCaptureTransforms) {
  const Tensor x = random_points({8, 300}, kFloat32), on_gpu = x.to(kCUDA).clone();
  Tensor found;
  Graph graph;
  graph.capture([&] { found = fft::irfft(fft::rfft(on_gpu), 300, -1, "forward"); });
  for (int i = 0; i < 2; ++i) {
    const Tensor next = random_points({8, 300}, kFloat32, static_cast<uint64_t>(i));
    on_gpu.copy_(next);
    graph.replay();
    EXPECT_LE(relative_difference(found, next * 300), 1e-6);
  }
}

// cuFFT would end the capture of this thread, and those of others.
TEST_F(FourierOnGpu, PlansThatBreakCapturesAreRefusedDuringOne) {
  const Tensor x = random_points({3, 2 * 131}, kFloat32), on_gpu = x.to(kCUDA).clone();
  const Tensor y = ones({4}, kFloat32, kCUDA);
  Graph graph;
  graph.capture([&] {
    y.add_(1);
    expect_error(ErrorCode::kUnsupported, {"262 points", "once before the capture"},
                 [&] { fft::rfft(on_gpu); });
    y.mul_(2);
  });
  graph.replay();
  EXPECT_TRUE(equal(y.to(kCPU), full({4}, 4)));
  EXPECT_LE(relative_difference(fft::rfft(on_gpu), fft::rfft(x)), 1e-5);
}

// More lengths than plans are kept: the graph's plan is the one that was used longest ago.
TEST_F(FourierOnGpu, GraphsKeepTheirPlans) {
  const Tensor x = random_points({8, 1009}, kComplex64), on_gpu = x.to(kCUDA).clone();
  Tensor found;
  Graph graph;
  fft::fft(on_gpu);  // whose plan a capture could not make
  graph.capture([&] { found = fft::fft(on_gpu); });
  for (int64_t n = 2; n < 200; ++n) fft::fft(random_points({n}, kComplex64).to(kCUDA));
  for (int i = 0; i < 20; ++i) graph.replay();
  EXPECT_LE(relative_difference(found, fft::fft(x)), 1e-6);
}

TEST_F(FourierOnGpu, ShortTimeTransformsHaveAnInverse) {
  const Tensor signal = random_points({2, 1008}, kFloat64).to(kCUDA);
  const Tensor window = hann_window(64, true, kFloat64, kCUDA);
  const Tensor spectra = stft(signal, 64, 16, {}, window, true, "reflect", false, {}, true);
  EXPECT_LE(relative_difference(spectra, stft(signal.to(kCPU), 64, 16, {}, window.to(kCPU), true,
                                              "reflect", false, {}, true)),
            1e-13);
  EXPECT_LE(relative_difference(istft(spectra, 64, 16, {}, window, true, false, {}, 1008), signal),
            1e-13);
}

// More lengths than plans are kept.
TEST_F(FourierOnGpu, ThreadsShareThePlans) {
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&wrong, t] {
      for (int64_t i = 0; i < 100; ++i) {
        const int64_t n = 1 + (static_cast<int64_t>(t) * 37 + i * 11) % 90;
        const Tensor x = random_points({2, n}, kFloat32, static_cast<uint64_t>(n));
        wrong[t] += relative_difference(fft::irfft(fft::rfft(x.to(kCUDA)), n), x) > 1e-5 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace mytorch::testing
