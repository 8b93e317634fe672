// The differences between oneDNN 2 and 3, on which no other file depends. Version 2 makes a
// primitive descriptor from an operation descriptor, version 3 makes it directly. For operations
// that version 2 describes with one data layout, version 3 takes source and destination layouts.
// The rest of the API that this backend uses is the same in both versions.
#pragma once

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "backends/cpu-onednn/engine/engine.h"
#include "mytorch/backend/windows.h"

namespace mytorch::onednn {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Attr = dnnl::primitive_attr;
// A primitive descriptor: it has the layouts that oneDNN chose.
using Description = dnnl::primitive_desc_base;

// The geometry of windows. oneDNN counts dilations from 0. `before` and `after` are the padding;
// `after` may be negative.
struct Windows {
  Dims kernel, stride, dilation, before, after;

  // Adds a dimension with `output` windows on an input of size `input`.
  void add(const sdk::Window& window, int64_t input, int64_t output) {
    kernel.push_back(window.kernel);
    stride.push_back(window.stride);
    dilation.push_back(window.dilation - 1);
    before.push_back(window.padding);
    after.push_back(window.place(output - 1, window.kernel - 1) + 1 - input);
  }
};

// oneDNN's backward primitives take the forward primitive descriptor as a hint.
#if DNNL_VERSION_MAJOR >= 3

template <class P, class... Args>
typename P::primitive_desc describe_forward(const Attr& attr, const Args&... args) {
  return typename P::primitive_desc(engine(), args..., attr);
}
template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const Attr& attr, const Hint& hint,
                                             const Args&... args) {
  return typename P::primitive_desc(engine(), args..., hint, attr);
}

inline void append_linear(dnnl::post_ops& ops, float scale) {
  ops.append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0.0f);
}

#else

template <class P, class... Args>
typename P::primitive_desc describe_forward(const Attr& attr, const Args&... args) {
  return typename P::primitive_desc(typename P::desc(args...), attr, engine());
}
template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const Attr& attr, const Hint& hint,
                                             const Args&... args) {
  return typename P::primitive_desc(typename P::desc(args...), attr, engine(), hint);
}

inline void append_linear(dnnl::post_ops& ops, float scale) {
  ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, scale, 0.0f);
}

#endif

// ---- products ---------------------------------------------------------------------------------

inline Description matmul(const Attr& attr, const Desc& a, const Desc& b, const Desc& bias,
                          const Desc& c) {
  return describe_forward<dnnl::matmul>(attr, a, b, bias, c);
}

inline auto convolution_hint(const Attr& attr, const Desc& src, const Desc& weights,
                             const Desc& bias, const Desc& dst, const Windows& w) {
  return describe_forward<dnnl::convolution_forward>(
      attr, dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, src, weights,
      bias, dst, w.stride, w.dilation, w.before, w.after);
}
inline Description convolution(const Attr& attr, const Desc& src, const Desc& weights,
                               const Desc& bias, const Desc& dst, const Windows& w) {
  return convolution_hint(attr, src, weights, bias, dst, w);
}
inline Description convolution_backward_data(const Attr& attr, const Desc& diff_src,
                                             const Desc& weights, const Desc& diff_dst,
                                             const Windows& w) {
  return describe_backward<dnnl::convolution_backward_data>(
      attr, convolution_hint(attr, diff_src, weights, Desc(), diff_dst, w),
      dnnl::algorithm::convolution_direct, diff_src, weights, diff_dst, w.stride, w.dilation,
      w.before, w.after);
}
inline Description convolution_backward_weights(const Attr& attr, const Desc& src,
                                                const Desc& diff_weights, const Desc& diff_dst,
                                                const Windows& w) {
  return describe_backward<dnnl::convolution_backward_weights>(
      attr, convolution_hint(attr, src, diff_weights, Desc(), diff_dst, w),
      dnnl::algorithm::convolution_direct, src, diff_weights, diff_dst, w.stride, w.dilation,
      w.before, w.after);
}

// ---- other operations: `data` describes both input and output ---------------------------------

inline auto batch_norm_hint(const Attr& attr, const Desc& data, float eps,
                            dnnl::normalization_flags flags) {
  return describe_forward<dnnl::batch_normalization_forward>(
      attr, dnnl::prop_kind::forward_training, data,
#if DNNL_VERSION_MAJOR >= 3
      data,
#endif
      eps, flags);
}
inline Description batch_norm(const Attr& attr, const Desc& data, float eps,
                              dnnl::normalization_flags flags) {
  return batch_norm_hint(attr, data, eps, flags);
}
inline Description batch_norm_backward(const Attr& attr, dnnl::prop_kind what, const Desc& data,
                                       float eps, dnnl::normalization_flags flags) {
  return describe_backward<dnnl::batch_normalization_backward>(
      attr, batch_norm_hint(attr, data, eps, flags), what, data, data,
#if DNNL_VERSION_MAJOR >= 3
      data,
#endif
      eps, flags);
}

inline auto layer_norm_hint(const Attr& attr, const Desc& data, const Desc& statistics, float eps,
                            dnnl::normalization_flags flags) {
  return describe_forward<dnnl::layer_normalization_forward>(
      attr, dnnl::prop_kind::forward_training, data,
#if DNNL_VERSION_MAJOR >= 3
      data,
#endif
      statistics, eps, flags);
}
inline Description layer_norm(const Attr& attr, const Desc& data, const Desc& statistics, float eps,
                              dnnl::normalization_flags flags) {
  return layer_norm_hint(attr, data, statistics, eps, flags);
}
inline Description layer_norm_backward(const Attr& attr, dnnl::prop_kind what, const Desc& data,
                                       const Desc& statistics, float eps,
                                       dnnl::normalization_flags flags) {
  return describe_backward<dnnl::layer_normalization_backward>(
      attr, layer_norm_hint(attr, data, statistics, eps, flags), what, data, data,
#if DNNL_VERSION_MAJOR >= 3
      data,
#endif
      statistics, eps, flags);
}

inline auto pooling_hint(const Attr& attr, dnnl::algorithm algorithm, const Desc& src,
                         const Desc& dst, const Windows& w) {
  return describe_forward<dnnl::pooling_forward>(attr, dnnl::prop_kind::forward_training, algorithm,
                                                 src, dst, w.stride, w.kernel,
#if DNNL_VERSION_MAJOR >= 3
                                                 w.dilation,
#endif
                                                 w.before, w.after);
}
inline Description pooling(const Attr& attr, dnnl::algorithm algorithm, const Desc& src,
                           const Desc& dst, const Windows& w) {
  return pooling_hint(attr, algorithm, src, dst, w);
}
inline Description pooling_backward(const Attr& attr, dnnl::algorithm algorithm,
                                    const Desc& diff_src, const Desc& diff_dst, const Windows& w) {
  return describe_backward<dnnl::pooling_backward>(
      attr, pooling_hint(attr, algorithm, diff_src, diff_dst, w), algorithm, diff_src, diff_dst,
      w.stride, w.kernel,
#if DNNL_VERSION_MAJOR >= 3
      w.dilation,
#endif
      w.before, w.after);
}

inline Description activation_backward(const Attr& attr, dnnl::algorithm algorithm,
                                       const Desc& data) {
  constexpr float kNoParameter = 0;
  const auto hint = describe_forward<dnnl::eltwise_forward>(attr, dnnl::prop_kind::forward_training,
                                                            algorithm, data,
#if DNNL_VERSION_MAJOR >= 3
                                                            data,
#endif
                                                            kNoParameter, kNoParameter);
  return describe_backward<dnnl::eltwise_backward>(attr, hint, algorithm, data, data,
#if DNNL_VERSION_MAJOR >= 3
                                                   data,
#endif
                                                   kNoParameter, kNoParameter);
}

inline Description reordering(const Attr& attr, const Desc& from, const Desc& to) {
  return dnnl::reorder::primitive_desc(engine(), from, engine(), to, attr);
}

}  // namespace mytorch::onednn
