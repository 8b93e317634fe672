// Random expressions as machine code, beside the same operations on single numbers: bits of all
// results, the last elements, and nothing written beyond them.
#include "backends/cpu-openmp/fused/machine_code.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/core/random_seed.h"

namespace mytorch::cpu {
namespace {

using Op = Operation;

// What an operation gives; masks are 0 and 1.
float value_of(Op::Code code, float a, float b, float c) {
  switch (code) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kMulAdd:
      return std::fma(a, b, c);
    case Op::kMulSub:
      return std::fma(a, b, -c);
    case Op::kNegMulAdd:
      return std::fma(-a, b, c);
    case Op::kMaximum:
      return std::isnan(a) || std::isnan(b) ? NAN : a > b ? a : b;
    case Op::kMinimum:
      return std::isnan(a) || std::isnan(b) ? NAN : a < b ? a : b;
    case Op::kNeg:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSign:
      return static_cast<float>((a > 0) - (a < 0));
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRsqrt:
      return 1 / std::sqrt(a);
    case Op::kFloor:
      return std::floor(a);
    case Op::kCeil:
      return std::ceil(a);
    case Op::kTrunc:
      return std::trunc(a);
    case Op::kRound:
      return std::nearbyint(a);
    case Op::kWhere:
      return a != 0 ? b : c;
    case Op::kFromMask:
      return a;
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return !(a == b);
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    case Op::kGe:
      return a >= b;
    case Op::kIsnan:
      return std::isnan(a);
    case Op::kAnd:
      return a * b;
    case Op::kOr:
      return std::fmax(a, b);
    case Op::kXor:
      return a != b;
    default:
      return 1 - a;  // kNot
  }
}

int arity(Op::Code code) {
  if ((code >= Op::kMulAdd && code <= Op::kNegMulAdd) || code == Op::kWhere) return 3;
  const bool one = (code >= Op::kNeg && code <= Op::kRound) || code == Op::kFromMask ||
                   code == Op::kIsnan || code == Op::kNot;
  return one ? 1 : 2;
}
bool takes_masks(Op::Code code) { return code >= Op::kAnd || code == Op::kFromMask; }

struct Made {
  Expression expression;
  std::vector<bool> bools;   // of each input
  std::vector<float> given;  // the numbers that are given to the loop
};

template <class Random>
Made random_expression(Random& random, int operations) {
  const auto below = [&](size_t n) { return random() % n; };
  Made made;
  auto& all = made.expression.operations;
  std::vector<int32_t> vectors, masks;
  const auto append = [&](const Op& op) {
    (is_mask(op.code) ? masks : vectors).push_back(static_cast<int32_t>(all.size()));
    all.push_back(op);
  };
  for (int i = 0, count = 1 + static_cast<int>(below(8)); i < count; ++i) {
    made.bools.push_back(i > 0 && below(4) == 0);
    Op leaf{made.bools.back() ? Op::kBools : Op::kInput};
    leaf.input = i;
    append(leaf);
  }
  for (size_t i = below(20); i > 0; --i) {
    Op number{Op::kNumber};
    number.number = static_cast<float>(static_cast<int>(below(100)) - 50) / 16;
    if (below(2) == 0) {
      number.code = Op::kParameter;
      number.parameter = static_cast<int32_t>(made.given.size());
      made.given.push_back(std::exchange(number.number, 0.0f));
    }
    append(number);
  }
  const auto any = [&](const std::vector<int32_t>& of) {
    return below(2) != 0 ? of[below(of.size())]
                         : of[of.size() - 1 - below(std::min<size_t>(of.size(), 40))];
  };
  for (int i = 0; i < operations; ++i) {
    Op op{static_cast<Op::Code>(Op::kAdd + below(Op::kNot - Op::kAdd + 1))};
    const bool of_masks = takes_masks(op.code);
    if ((of_masks || op.code == Op::kWhere) && masks.empty()) continue;
    // Masks live shortly, because there are few registers for them.
    op.a = of_masks || op.code == Op::kWhere ? masks.back() : any(vectors);
    if (arity(op.code) > 1) op.b = of_masks ? masks.back() : any(vectors);
    if (arity(op.code) > 2) op.c = any(vectors);
    append(op);
  }
  for (size_t i = 0, count = 1 + below(6); i < count; ++i) {
    const bool mask = !masks.empty() && below(4) == 0;
    made.expression.results.push_back(mask ? masks.back() : any(vectors));
  }
  return made;
}

TEST(MachineCode, RandomExpressions) {
  if (!makes_machine_code()) GTEST_SKIP() << "this processor or build makes no machine code";
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr float kSpecial[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e-40f};
  constexpr char kUntouched = 77;
  int compiled = 0;
  constexpr int kExpressions = 2000;
  for (int t = 0; t < kExpressions; ++t) {
    const Made made = random_expression(random, t % 10 == 0 ? 200 : 30);
    const auto& [operations, results] = made.expression;
    const std::shared_ptr<const InnerLoop> loop = machine_code(made.expression);
    if (loop == nullptr) continue;
    Scalars scalars;
    scalars.self = made.given.data();
    ++compiled;
    const size_t n = random() % 70;
    std::vector<std::vector<float>> numbers;
    std::vector<std::vector<uint8_t>> bytes;
    std::vector<const void*> inputs;
    for (const bool is_bool : made.bools) {
      auto& row = numbers.emplace_back(n);
      auto& bits = bytes.emplace_back(n);
      for (size_t i = 0; i < n; ++i) {
        bits[i] = static_cast<uint8_t>(random() % 2);
        row[i] = is_bool             ? bits[i]
                 : random() % 8 == 0 ? kSpecial[random() % std::size(kSpecial)]
                                     : static_cast<float>(random() % 2000) / 100 - 10;
      }
      inputs.push_back(is_bool ? static_cast<const void*>(bits.data()) : row.data());
    }
    std::vector<std::vector<char>> stored;
    std::vector<void*> outputs;
    for (size_t r = 0; r < results.size(); ++r) {
      stored.emplace_back(n * 4 + 64, kUntouched);
      outputs.push_back(stored.back().data());
    }
    ASSERT_TRUE((*loop)(inputs.data(), outputs.data(), scalars, static_cast<int64_t>(n)));
    for (size_t k = 0; k < n; ++k) {
      std::vector<float> values;
      for (const Op& op : operations) {
        const auto at = [&](int32_t of) { return of < 0 ? 0 : values[static_cast<size_t>(of)]; };
        values.push_back(op.code == Op::kNumber      ? op.number
                         : op.code == Op::kParameter ? made.given[static_cast<size_t>(op.parameter)]
                         : op.input >= 0             ? numbers[static_cast<size_t>(op.input)][k]
                                         : value_of(op.code, at(op.a), at(op.b), at(op.c)));
      }
      for (size_t r = 0; r < results.size(); ++r) {
        const float wanted = values[static_cast<size_t>(results[r])];
        float found = stored[r][k];
        if (!is_mask(operations[static_cast<size_t>(results[r])].code)) {
          std::memcpy(&found, &stored[r][k * 4], 4);
        }
        ASSERT_TRUE(found == wanted || (std::isnan(found) && std::isnan(wanted)))
            << "expression " << t << ", result " << r << ", element " << k << " of " << n << ": "
            << found << " for " << wanted;
      }
    }
    for (size_t r = 0; r < results.size(); ++r) {
      const bool mask = is_mask(operations[static_cast<size_t>(results[r])].code);
      for (size_t i = n * (mask ? 1 : 4); i < stored[r].size(); ++i) {
        ASSERT_EQ(stored[r][i], kUntouched) << "expression " << t << ", byte " << i;
      }
    }
  }
  EXPECT_GT(compiled, kExpressions * 9 / 10);
}

TEST(MachineCode, SixteenBitInputs) {
  if (!makes_machine_code()) GTEST_SKIP() << "this processor or build makes no machine code";
  const std::vector<uint16_t> bfloat16(19, 0x3fc0), float16(19, 0x3e00);  // 1.5
  Op a{Op::kBfloat16}, b{Op::kFloat16};
  a.input = 0;
  b.input = 1;
  const auto loop = machine_code({{a, b, {Op::kAdd, 0, 1}}, {2}});
  ASSERT_NE(loop, nullptr);
  std::vector<float> sums(20, 7);
  const void* inputs[] = {bfloat16.data(), float16.data()};
  void* outputs[] = {sums.data()};
  (*loop)(inputs, outputs, Scalars(), 19);
  for (int i = 0; i < 19; ++i) EXPECT_EQ(sums[static_cast<size_t>(i)], 3);
  EXPECT_EQ(sums[19], 7);
}

TEST(MachineCode, LoopsOfOtherNumbersAreOneAndLeaveWithTheLastReference) {
  const size_t before = num_loops();
  Op x{Op::kInput}, given{Op::kParameter}, number{Op::kNumber};
  x.input = given.parameter = 0;
  const auto times = [&](const Op& factor) {
    return machine_code({{x, factor, {Op::kMul, 0, 1}}, {2}});
  };
  if (!makes_machine_code()) return;
  auto loop = times(given);
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(times(given), loop);
  EXPECT_EQ(num_loops(), before + 1);
  number.number = 2;
  EXPECT_NE(times(number), loop);
  const std::vector<float> ones(21, 1);
  std::vector<float> products(21);
  const void* inputs[] = {ones.data()};
  void* outputs[] = {products.data()};
  for (const float factor : {3.0f, -0.5f}) {
    Scalars scalars;
    scalars.self = &factor;
    (*loop)(inputs, outputs, scalars, 21);
    EXPECT_EQ(products, std::vector<float>(21, factor));
  }
  loop.reset();
  EXPECT_EQ(num_loops(), before);
}

}  // namespace
}  // namespace mytorch::cpu
