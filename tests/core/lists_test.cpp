// The lists that operators take: what converts to them, and what does not.
#include <gtest/gtest.h>

#include <initializer_list>
#include <type_traits>
#include <vector>

#include "mytorch/list.h"
#include "mytorch/ops/cat.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

template <class List, class... Values>
constexpr bool all_convert = (std::is_convertible_v<Values, List> && ...);
template <class List, class... Values>
constexpr bool any_converts = (std::is_convertible_v<Values, List> || ...);

template <class List>
constexpr bool takes_integers_only =
    all_convert<List, int, int64_t, unsigned, size_t, short, uint8_t, std::vector<int64_t>> &&
    !any_converts<List, bool, char, wchar_t, char8_t, float, double, const char*, const int64_t*>;
static_assert(takes_integers_only<IntList>);
static_assert(takes_integers_only<OptionalIntList>);

template <class T>
concept Summable = requires(const Tensor& x, T value) {
  x.sum(value);
};
static_assert(Summable<int> && Summable<size_t> && !Summable<bool> && !Summable<char> &&
              !Summable<double>);
template <class T>
concept Reshapable = requires(const Tensor& x, T value) {
  x.reshape({value, value});
};
static_assert(Reshapable<int> && Reshapable<int64_t> && !Reshapable<bool> && !Reshapable<char> &&
              !Reshapable<double>);

template <class T>
concept Concatenable = requires(T a, T b) {
  cat({a, b});
};
static_assert(Concatenable<Tensor> && !Concatenable<int> && !Concatenable<double>);
static_assert(!std::is_constructible_v<TensorList, int, int>);
static_assert(!std::is_constructible_v<TensorList, std::nullptr_t, int>);
static_assert(!any_converts<TensorList, int, std::nullptr_t, std::vector<int>>);

TEST(IntList, HoldsAnIntegerOfAnyType) {
  const size_t big = size_t{1} << 40;
  EXPECT_EQ(IntList(big).vec(), (std::vector<int64_t>{int64_t{1} << 40}));
  const OptionalIntList one = uint8_t{200};
  EXPECT_EQ((*one)[0], 200);
}

TEST(TensorList, RefersToAnArray) {
  const Tensor two[] = {tensor({1.0}), tensor({2.0})};
  EXPECT_EQ(cat(TensorList(two, 2)).numel(), 2);
}

}  // namespace
}  // namespace mytorch
