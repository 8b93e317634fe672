// The cpu-openmp backend, and tensors for its tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tests/backends/reference/fake_host.h"

extern "C" int mytorch_cpu_openmp_init(const mt_host*, mt_backend*);

namespace mytorch::testing {

// What converts elements of every dtype is compiled once, in primitives.cpp.
extern template std::vector<double> TestTensor::values<double>() const;
extern template std::vector<float> TestTensor::values<float>() const;
extern template std::vector<int64_t> TestTensor::values<int64_t>() const;

inline const mt_backend& cpu() { return loaded<mytorch_cpu_openmp_init>(); }

template <class Args>
int run_cpu(std::string_view op, Args& args, mt_dtype compute, TestContext& context) {
  return run_on(cpu(), op, args, compute, context);
}
template <class Args>
std::string run_cpu(std::string_view op, Args& args, mt_dtype compute, int threads = 1) {
  return run_on(cpu(), op, args, compute, threads);
}

inline constexpr mt_dtype kFloat = sdk::dtype_of<float>;
inline constexpr mt_dtype kAllDtypes[] = {sdk::dtype_of<bool>,      sdk::dtype_of<uint8_t>,
                                          sdk::dtype_of<int8_t>,    sdk::dtype_of<int16_t>,
                                          sdk::dtype_of<int32_t>,   sdk::dtype_of<int64_t>,
                                          sdk::dtype_of<sdk::Half>, sdk::dtype_of<sdk::BFloat16>,
                                          sdk::dtype_of<float>,     sdk::dtype_of<double>};

// Returns the name of a parameterized case.
inline std::string dtype_case(const ::testing::TestParamInfo<mt_dtype>& info) {
  return sdk::dtype_name(info.param);
}
inline std::string dtype_pair_case(
    const ::testing::TestParamInfo<std::tuple<mt_dtype, mt_dtype>>& info) {
  return std::string(sdk::dtype_name(std::get<0>(info.param))) + "_to_" +
         sdk::dtype_name(std::get<1>(info.param));
}

// A tensor of a dtype known at run time, from doubles.
TestTensor tensor_of(mt_dtype dtype, Shape shape, const std::vector<double>& values);

// Sets the flag that the framework sets on contiguous tensors, which enables the kernels' fast
// paths.
inline TestTensor contiguous(TestTensor tensor) {
  const_cast<mt_tensor*>(static_cast<const mt_tensor*>(tensor))->flags |= MT_TENSOR_CONTIGUOUS;
  return tensor;
}

// Returns values that every dtype except bool represents: small, and of both signs if the dtype is
// signed.
std::vector<double> small_values(int64_t n, mt_dtype dtype, int seed = 1);

}  // namespace mytorch::testing
