// The calls that the kernels take, their reasons for declining, reorders and threads. The
// conformance tests check results; this file checks those of large problems, for which oneDNN
// chooses other layouts.
#include <dirent.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu-onednn/convolution/problem.h"
#include "backends/cpu-onednn/engine/plan.h"
#include "backends/cpu-onednn/engine/threads.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/convolution.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "mytorch/abi_ops/mm.h"
#include "tests/backends/cpu-onednn/onednn_backend.h"

namespace mytorch::testing {
namespace {

TestTensor floats(Shape shape, uint32_t seed = 1) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<double>(seed >> 20) / 4096 - 0.5;
  }
  return TestTensor::of<float>(std::move(shape), values);
}
TestTensor result(Shape shape) { return TestTensor::empty(sdk::dtype_of<float>, std::move(shape)); }

// A channels-last tensor of the same shape.
TestTensor channels_last(const TestTensor& t) {
  const sdk::TensorView v = t.view();
  const int64_t n = v.size(0), c = v.size(1), h = v.size(2), w = v.size(3);
  const TestTensor last = result({n, h, w, c}).as_strided({n, c, h, w}, {h * w * c, 1, w * c, c});
  for (int64_t i = 0; i < v.numel(); ++i) {
    const int64_t x = i % w, y = i / w % h, k = i / (w * h) % c, b = i / (w * h * c);
    last.view().data<float>()[((b * h + y) * w + x) * c + k] =
        v.data<float>()[b * v.stride(0) + k * v.stride(1) + y * v.stride(2) + x * v.stride(3)];
  }
  return last;
}

template <class Args>
std::string compare(std::string_view op, Args& args, TestTensor& out, int threads = 1) {
  const std::string error = run_onednn(op, args, threads);
  if (!error.empty()) return error;
  const std::vector<float> found = out.values<float>();
  TestTensor expected = result(Shape(out.view().shape().begin(), out.view().shape().end()));
  args.out = expected;
  const std::string failed = run_op(op, args, sdk::dtype_of<float>);
  args.out = out;
  if (!failed.empty()) return failed;
  const std::vector<float> right = expected.values<float>();
  for (size_t i = 0; i < right.size(); ++i) {
    if (!(std::abs(found[i] - right[i]) <= 2e-4f * (1 + std::abs(right[i])))) {
      return "element " + std::to_string(i) + " is " + std::to_string(found[i]) + ", not " +
             std::to_string(right[i]);
    }
  }
  return "";
}

// A convolution of a batch of 4 inputs of 16 x 16 and its gradients, large enough for
// "onednn_large".
struct Convolution {
  int64_t in = 32, out = 64, groups = 1, kernel = 3, transposed = 0, size = 16;
  int64_t stride = 1, padding = 1, dilation = 1;
  size_t dims = 2;

  int64_t result_size() const {
    const int64_t reach = dilation * (kernel - 1) + 1;
    return transposed != 0 ? (size - 1) * stride - 2 * padding + reach
                           : (size + 2 * padding - reach) / stride + 1;
  }
  Shape shape(int64_t first, int64_t second, int64_t each) const {
    Shape all(dims + 2, each);
    all[0] = first, all[1] = second;
    return all;
  }
  Shape input() const { return shape(4, in, size); }
  Shape output() const { return shape(4, out, result_size()); }
  Shape weight() const {
    return transposed != 0 ? shape(in, out / groups, kernel) : shape(out, in / groups, kernel);
  }
  mt_int_list each(int64_t value) const {
    static const std::vector<int64_t> lists[] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}};
    mt_int_list all = list(lists[value]);
    all.size = static_cast<int64_t>(dims);
    return all;
  }
  template <class Args>
  void set(Args& args) const {
    args.stride = each(stride);
    args.padding = each(padding);
    args.dilation = each(dilation);
    args.output_padding = each(0);
    args.transposed = transposed;
    args.groups = groups;
  }

  void check(bool last, int threads) const {
    const auto laid = [&](const TestTensor& t) { return last ? channels_last(t) : t; };
    const TestTensor x = laid(floats(input())), w = floats(weight(), 2), b = floats({out}, 3);
    const TestTensor g = laid(floats(output(), 4));
    {
      TestTensor y = laid(result(output()));
      mt_args_convolution args{};
      set(args);
      args.input = x, args.weight = w, args.bias = b, args.out = y;
      EXPECT_EQ(compare("convolution", args, y, threads), "");
    }
    {
      TestTensor y = laid(result(input()));
      const std::vector<int64_t> sizes = input();
      mt_args_convolution_backward_input args{};
      set(args);
      args.grad_output = g, args.weight = w, args.input_size = list(sizes), args.out = y;
      EXPECT_EQ(compare("convolution_backward_input", args, y, threads), "");
    }
    {
      TestTensor y = result(weight());
      const std::vector<int64_t> sizes = weight();
      mt_args_convolution_backward_weight args{};
      set(args);
      args.grad_output = g, args.input = x, args.weight_size = list(sizes), args.out = y;
      EXPECT_EQ(compare("convolution_backward_weight", args, y, threads), "");
    }
  }
  void check() const {
    check(false, 2);
    if (dims == 2) check(true, 2);
  }
};

TEST(OnednnConvolution, RowMajorWindowsAgreeWithTheReference) {
  Convolution().check();
  Convolution().check(false, 1);
}
TEST(OnednnConvolution, PointwiseConvolutionsAgreeWithTheReference) {
  Convolution c;
  c.kernel = 1, c.padding = 0, c.in = c.out = 64;
  c.check();
}
TEST(OnednnConvolution, StridesAndDilationsAgreeWithTheReference) {
  Convolution c;
  c.stride = 2;
  c.check();
  c.stride = 1, c.dilation = 2;
  c.check();
}
TEST(OnednnConvolution, GroupsAgreeWithTheReference) {
  Convolution c;
  c.groups = 4;
  c.check();
  c.in = c.out = c.groups = 64;  // depthwise
  c.check();
}
TEST(OnednnConvolution, PartialChannelBlocksAgreeWithTheReference) {
  Convolution c;
  c.in = 3, c.out = 21, c.kernel = 5;
  c.check();
}
TEST(OnednnConvolution, TransposedConvolutionsAgreeWithTheReference) {
  Convolution c;
  c.transposed = 1, c.in = 64, c.out = 32;
  c.check();
  c.stride = 2, c.groups = 2;
  c.check();
}
TEST(OnednnConvolution, OneAndThreeDimensionsAgreeWithTheReference) {
  for (const size_t dims : {size_t{1}, size_t{3}}) {
    for (const int64_t transposed : {0, 1}) {
      Convolution c;
      c.dims = dims, c.size = dims == 1 ? 500 : 7, c.transposed = transposed;
      c.check();
      c.stride = 2, c.groups = 2;
      c.check();
    }
  }
}

mt_args_convolution large(const Convolution& c, const TestTensor& x, const TestTensor& w,
                          const TestTensor& y) {
  mt_args_convolution args{};
  c.set(args);
  args.input = x, args.weight = w, args.out = y;
  return args;
}

TEST(OnednnConvolution, LargeConvolutionsComeFirstAndExactlyOneKernelTakesEach) {
  Convolution c;
  for (const int64_t in : {2, 64}) {
    for (const int64_t kernel : {3, 4}) {
      c.in = in, c.kernel = kernel;
      const TestTensor x = floats(c.input()), w = floats(c.weight()), y = result(c.output());
      mt_args_convolution args = large(c, x, w, y);
      const mt_kernel_entry* taken = taker("convolution", args);
      ASSERT_NE(taken, nullptr);
      // cpu-openmp computes 3 x 3 taps of many channels by tiles, faster.
      const bool comes_first = in == 64 && kernel == 4;
      EXPECT_STREQ(taken->name, comes_first ? "onednn_large" : "onednn");
      EXPECT_EQ(taken->priority > 0, comes_first);
    }
  }
}

// Returns the number of operands that the plan reorders.
int conversions(const Convolution& c, bool last) {
  const auto laid = [&](const TestTensor& t) { return last ? channels_last(t) : t; };
  const TestTensor x = laid(floats(c.input())), w = floats(c.weight()),
                   y = laid(result(c.output()));
  const mt_args_convolution args = large(c, x, w, y);
  const onednn::Problem p(args);
  const onednn::Layouts l(p);
  onednn::Plan plan(onednn::convolution(onednn::attributes(), l.wanted_input, l.wanted_weight,
                                        onednn::Desc(), l.wanted_output, p.windows));
  plan.input(DNNL_ARG_SRC, l.input);
  plan.output(DNNL_ARG_DST, l.output);
  return plan.conversions();
}

TEST(OnednnConvolution, OperandsInThePreferredLayoutAreNotReordered) {
  Convolution c;
  EXPECT_EQ(conversions(c, false), 2);  // windows over rows: blocks of channels
  EXPECT_EQ(conversions(c, true), 0);
  c.kernel = 1, c.padding = 0;
  EXPECT_EQ(conversions(c, true), 0);
  EXPECT_EQ(conversions(c, false), 0);
  c.kernel = 3, c.in = c.out = c.groups = 32;  // depthwise
  EXPECT_EQ(conversions(c, true), 0);
}

// ---- reasons ----------------------------------------------------------------------------------

std::string reasons(const TestTensor& a, const TestTensor& b, const TestTensor& c) {
  mt_args_mm args{};
  args.self = a, args.mat2 = b, args.out = c;
  std::string text;
  return taker("mm", args, &text) != nullptr ? "" : text;
}

TEST(OnednnReasons, NameTheDtypeTheLayoutAndTheSize) {
  const TestTensor a = floats({4, 4});
  EXPECT_EQ(reasons(a, a, result({4, 4})), "");
  const TestTensor doubles = TestTensor::empty(sdk::dtype_of<double>, {4, 4});
  EXPECT_NE(reasons(doubles, doubles, doubles).find("[dtype]"), std::string::npos);
  const TestTensor gaps = floats({16, 16}).as_strided({4, 4}, {32, 2});
  EXPECT_NE(reasons(gaps, a, result({4, 4})).find("contiguous rows"), std::string::npos);
  const TestTensor empty = result({4, 0});
  EXPECT_NE(reasons(empty, result({0, 4}), result({4, 4})).find("no elements"), std::string::npos);
}

TEST(OnednnReasons, WindowsThatExtendBeyondThePaddingAreDeclined) {
  const std::vector<int64_t> two = {2, 2}, none, zero = {0, 0};
  const TestTensor x = floats({1, 1, 5, 5}), y = result({1, 1, 3, 3});
  mt_args_avg_pool2d args{};
  args.self = x, args.out = y, args.ceil_mode = 1, args.count_include_pad = 1;
  args.kernel_size = list(two), args.stride = list(none), args.padding = list(zero);
  EXPECT_NE(run_onednn("avg_pool2d", args).find("beyond the padding"), std::string::npos);
  args.count_include_pad = 0;
  EXPECT_EQ(run_onednn("avg_pool2d", args), "");
}

// ---- threads ----------------------------------------------------------------------------------

int threads_of_process() {
  DIR* const tasks = opendir("/proc/self/task");
  int count = -2;  // . and ..
  while (readdir(tasks) != nullptr) ++count;
  closedir(tasks);
  return count;
}

std::string multiply(int64_t n, int threads) {
  const TestTensor a = floats({1, n, n}), b = floats({1, n, n}, 2);
  TestTensor c = result({1, n, n});
  mt_args_bmm args{};
  args.self = a, args.mat2 = b, args.out = c;
  return compare("bmm", args, c, threads);
}

// OpenMP keeps the threads of its last parallel region.
TEST(OnednnThreads, AreOpenMpThreadsInTheNumberOfTheContext) {
  const int before = omp_get_max_threads();
#pragma omp parallel num_threads(2)
  { omp_get_thread_num(); }
  EXPECT_EQ(threads_of_process(), 2);
  const TestTensor a = floats({400, 400}), c = result({400, 400});
  mt_args_mm args{};
  args.self = a, args.mat2 = a, args.out = c;
  EXPECT_EQ(run_onednn("mm", args, 4), "");
  EXPECT_EQ(threads_of_process(), 4);
#pragma omp parallel num_threads(4)
  { omp_get_thread_num(); }
  EXPECT_EQ(threads_of_process(), 4);
  EXPECT_EQ(run_onednn("mm", args, 1), "");
  EXPECT_EQ(threads_of_process(), 4);
  EXPECT_EQ(omp_get_max_threads(), before);
}

TEST(OnednnThreads, InsideAParallelRegionIsOneThread) {
  TestContext context(4);
  EXPECT_EQ(onednn::threads_of(*context.get()), 4);
  std::atomic<int> wrong = 0;
#pragma omp parallel num_threads(2)
  {
    TestContext own(4);
    if (onednn::threads_of(*own.get()) != 1) ++wrong;
    if (!multiply(100, 4).empty()) ++wrong;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(OnednnThreads, PlansAreSharedByThreadsOfTheProgram) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t n = 8; n < 40; ++n) wrong += multiply(n + t % 2, 1 + t % 2).empty() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mytorch::testing
