// Size-dependent code paths of gather, scatter_add and topk: several elements per step, long lines,
// lines shared by several threads, and small selections from many elements.
#include "backends/cpu-openmp/indexing/indexing.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/gather.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/abi_ops/topk.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

constexpr mt_dtype kFloat = sdk::dtype_of<float>;
constexpr mt_dtype kIndex = sdk::dtype_of<int64_t>;

TestTensor indices(Random& random, const Shape& shape, int64_t below) {
  const TestTensor tensor = TestTensor::empty(kIndex, shape);
  int64_t* data = tensor.view().data<int64_t>();
  std::generate_n(data, tensor.view().numel(), [&] { return random.below(below); });
  return tensor;
}

TEST(IndexingSizes, EveryLengthOfContiguousLines) {
  Random random(1);
  for (int64_t length = 1; length < 20; ++length) {
    const TestTensor self = TestTensor::empty(kFloat, {5, 30});
    const TestTensor src = TestTensor::empty(kFloat, {5, length});
    random.fill(self), random.fill(src);
    const TestTensor index = indices(random, {5, length}, 30);
    mt_args_gather gather{};
    const TestTensor picked = TestTensor::empty(kFloat, {5, length});
    gather.self = self, gather.dim = 1, gather.index = index, gather.out = picked;
    TestContext context(2);
    ASSERT_EQ(run_cpu(cpu::register_gather, "gather", gather, context), MT_OK);
    mt_args_scatter_add add{};
    const TestTensor out = TestTensor::empty(kFloat, {5, 30});
    add.self = self, add.dim = 1, add.index = index, add.src = src, add.out = out;
    ASSERT_EQ(run_cpu(cpu::register_scatter, "scatter_add", add, context), MT_OK);
    const auto x = self.values<float>(), s = src.values<float>();
    const auto which = index.values<int64_t>();
    std::vector<float> sums = x;
    for (int64_t i = 0; i < 5 * length; ++i) {
      const int64_t at = i / length * 30 + which[static_cast<size_t>(i)];
      ASSERT_EQ(picked.values<float>()[i], x[static_cast<size_t>(at)]) << length << " " << i;
      sums[static_cast<size_t>(at)] += s[static_cast<size_t>(i)];
    }
    ASSERT_EQ(out.values<float>(), sums) << length;
  }
}

TEST(IndexingSizes, ABadIndexIsNamedWhereverItStands) {
  Random random(2);
  const TestTensor self = TestTensor::empty(kFloat, {2, 30}), src = self;
  random.fill(self);
  for (int64_t place = 0; place < 22; ++place) {
    for (const int64_t bad : {int64_t{-1}, int64_t{30}, std::numeric_limits<int64_t>::min()}) {
      const TestTensor index = indices(random, {2, 11}, 30);
      index.view().data<int64_t>()[place] = bad;
      const std::string text =
          "index " + std::to_string(bad) + " is out of range for dimension 1 of size 30";
      const TestTensor picked = TestTensor::empty(kFloat, {2, 11});
      const TestTensor out = TestTensor::empty(kFloat, {2, 30});
      TestContext context(2);
      mt_args_gather gather{};
      gather.self = self, gather.dim = 1, gather.index = index, gather.out = picked;
      EXPECT_EQ(run_cpu(cpu::register_gather, "gather", gather, context), MT_ERROR_VALUE);
      EXPECT_EQ(context.error, "[gather] " + text);
      mt_args_scatter_add add{};
      add.self = self, add.dim = 1, add.index = index, add.src = src, add.out = out;
      EXPECT_EQ(run_cpu(cpu::register_scatter, "scatter_add", add, context), MT_ERROR_VALUE);
      EXPECT_EQ(context.error, "[scatter_add] " + text);
    }
  }
}

// Sums that depend on their order: equal bits prove that the order is kept.
TEST(ScatterAdd, TheNumberOfThreadsAndTheOutputDoNotMatter) {
  struct Case {
    Shape self, index;
    int64_t dim;
  };
  const Case cases[] = {{{9000}, {100000}, 0},
                        {{100000}, {50}, 0},
                        {{40, 700}, {40, 900}, 1},
                        {{700, 40}, {900, 40}, 0},
                        {{40, 50}, {30, 60}, 1}};
  Random random(3);
  for (const Case& c : cases) {
    for (const mt_dtype dtype : {kFloat, sdk::dtype_of<sdk::BFloat16>}) {
      const TestTensor self = TestTensor::empty(dtype, c.self);
      const TestTensor src = TestTensor::empty(dtype, c.index);
      random.fill(self), random.fill(src);
      const TestTensor index = indices(random, c.index, c.self[static_cast<size_t>(c.dim)]);
      std::vector<float> expected;
      for (const int threads : {1, 2, 5}) {
        for (const bool inplace : {false, true}) {
          const TestTensor out = TestTensor::empty(dtype, c.self);
          std::memcpy(out.view().raw(), self.view().raw(),
                      static_cast<size_t>(self.view().numel() * self.view().itemsize()));
          if (!inplace) std::memset(out.view().raw(), 1, 1);
          mt_args_scatter_add args{};
          args.self = inplace ? out : self;
          args.dim = c.dim, args.index = index, args.src = src, args.out = out;
          TestContext context(threads);
          ASSERT_EQ(run_cpu(cpu::register_scatter, "scatter_add", args, context), MT_OK);
          if (expected.empty()) expected = out.values<float>();
          ASSERT_EQ(out.values<float>(), expected) << threads << " " << inplace;
        }
      }
    }
  }
}

// The first k elements of the stable order, with ties, NaNs at the start of a line (the first
// candidates), and lines that are already sorted in either direction.
TEST(Topk, FewOfMany) {
  constexpr int64_t kN = 2000;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto line = [&](int kind, int64_t i) -> float {
    switch (kind) {
      case 0:
        return 3;
      case 1:
        return nan;
      case 2:
        return static_cast<float>(i % 100);
      case 3:
        return static_cast<float>(-(i % 120));
      case 4:
        return i < 300 || i % 97 == 0 ? nan : static_cast<float>(i * 7919 % 101);
      case 5:
        return i % 2 == 0 ? -0.0f : 0.0f;
      default:
        return i % 499 == 3 ? 1.0f : static_cast<float>(i * 7919 % 101) / -100;
    }
  };
  for (const mt_dtype dtype : {kFloat, sdk::dtype_of<double>, sdk::dtype_of<sdk::Half>,
                               sdk::dtype_of<int8_t>, sdk::dtype_of<int64_t>}) {
    for (int kind = 0; kind < 7; ++kind) {
      std::vector<double> values(kN);
      for (int64_t i = 0; i < kN; ++i) {
        const float x = line(kind, i);
        values[static_cast<size_t>(i)] = sdk::is_floating(dtype) || x == x ? x : 0;
      }
      const TestTensor whole = TestTensor::empty(dtype, {2 * kN});
      const TestTensor strided = whole.as_strided({kN}, {2});
      sdk::visit_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T* data = whole.view().data<T>();
        for (int64_t i = 0; i < kN; ++i) {
          data[2 * i] = sdk::convert<T>(values[static_cast<size_t>(i)]);
          data[2 * i + 1] = sdk::convert<T>(99.0);
        }
      });
      const TestTensor contiguous = TestTensor::empty(dtype, {kN});
      sdk::visit_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = 0; i < kN; ++i) {
          contiguous.view().data<T>()[i] = whole.view().data<T>()[2 * i];
        }
      });
      const auto x = contiguous.values<double>();
      for (const bool largest : {false, true}) {
        std::vector<int64_t> order(kN);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          const double p = x[static_cast<size_t>(largest ? b : a)];
          const double q = x[static_cast<size_t>(largest ? a : b)];
          return p < q || (p == p && q != q);
        });
        for (const int64_t k : {1, 10, 120, 130, 1999}) {
          for (const TestTensor& self : {contiguous, strided}) {
            const TestTensor top = TestTensor::empty(dtype, {k});
            const TestTensor where = TestTensor::empty(kIndex, {k});
            mt_args_topk args{};
            args.self = self, args.k = k, args.dim = 0, args.largest = largest, args.sorted = 1;
            args.values = top, args.indices = where;
            TestContext context(2);
            ASSERT_EQ(run_cpu(cpu::register_sorting, "topk", args, context), MT_OK);
            ASSERT_EQ(where.values<int64_t>(),
                      std::vector<int64_t>(order.begin(), order.begin() + k))
                << sdk::dtype_name(dtype) << " line " << kind << ", k " << k << ", " << largest;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
