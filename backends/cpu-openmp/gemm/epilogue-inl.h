// The epilogue, which writes sums to C: edges, strides, conversion, bias and activation.
#if defined(MYTORCH_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_GEMM_EPILOGUE_INL_H_
#undef MYTORCH_GEMM_EPILOGUE_INL_H_
#else
#define MYTORCH_GEMM_EPILOGUE_INL_H_
#endif

#include <type_traits>

#include "backends/cpu-openmp/gemm/convert-inl.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE {

// The epilogue of a tile. `bias` points to that of the tile's first element.
template <class T>
struct Epilogue {
  bool accumulate;  // adds the contents of C
  bool relu;
  const T* bias;
  int64_t bias_row, bias_col;
  Compute<T> alpha;  // of floating-point types
};

template <class T>
HWY_INLINE void store_element(Compute<T> sum, T* to, const T* bias, const Epilogue<T>& epilogue) {
  if constexpr (std::is_floating_point_v<Compute<T>>) sum *= epilogue.alpha;
  if (epilogue.accumulate) sum += load_scalar(*to);
  if (bias != nullptr) sum += load_scalar(*bias);
  // A NaN compares false, and stays.
  if (epilogue.relu && sum < Compute<T>{}) sum = Compute<T>{};
  store_scalar(sum, to);
}

// Writes rows x cols sums, whose rows are contiguous and `sums_row` apart, to C.
template <class T>
void store_tile(const Compute<T>* HWY_RESTRICT sums, int64_t sums_row, int64_t rows, int64_t cols,
                T* HWY_RESTRICT c, int64_t c_row, int64_t c_col, const Epilogue<T>& epilogue) {
  using C = Compute<T>;
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool vectors =
      c_col == 1 && (epilogue.bias == nullptr || epilogue.bias_col == 0 || epilogue.bias_col == 1);
  for (int64_t i = 0; i < rows; ++i) {
    const C* from = sums + i * sums_row;
    T* to = c + i * c_row;
    const T* bias = epilogue.bias == nullptr ? nullptr : epilogue.bias + i * epilogue.bias_row;
    int64_t j = 0;
    if (vectors) {
      for (; j + lanes <= cols; j += lanes) {
        auto sum = hn::LoadU(d, from + j);
        if constexpr (hwy::IsFloat<C>()) sum = hn::Mul(sum, hn::Set(d, epilogue.alpha));
        if (epilogue.accumulate) sum = hn::Add(sum, load_compute(d, to + j));
        if (bias != nullptr) {
          sum = hn::Add(sum, epilogue.bias_col == 0 ? hn::Set(d, load_scalar(*bias))
                                                    : load_compute(d, bias + j));
        }
        if constexpr (hwy::IsFloat<C>()) {
          if (epilogue.relu) sum = hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(d)), sum);
        }
        store_compute(d, sum, to + j);
      }
    }
    for (; j < cols; ++j) {
      store_element(from[j], to + j * c_col, bias == nullptr ? bias : bias + j * epilogue.bias_col,
                    epilogue);
    }
  }
}

}  // namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MYTORCH_GEMM_EPILOGUE_INL_H_
