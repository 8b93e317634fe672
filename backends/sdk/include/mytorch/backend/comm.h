// For engines of process groups (mytorch/abi_comm.h): their elements, and the arithmetic of
// reductions on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "mytorch/abi_comm.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/error.h"

// Enters an engine's functions for all collectives and messages, named by a prefix:
// PREFIX_broadcast to PREFIX_end.
#define MYTORCH_COMM_CALLS(comm, prefix)                  \
  do {                                                    \
    (comm)->broadcast = prefix##_broadcast;               \
    (comm)->reduce = prefix##_reduce;                     \
    (comm)->all_reduce = prefix##_all_reduce;             \
    (comm)->scatter = prefix##_scatter;                   \
    (comm)->gather = prefix##_gather;                     \
    (comm)->all_gather = prefix##_all_gather;             \
    (comm)->all_gather_v = prefix##_all_gather_v;         \
    (comm)->reduce_scatter = prefix##_reduce_scatter;     \
    (comm)->reduce_scatter_v = prefix##_reduce_scatter_v; \
    (comm)->all_to_all = prefix##_all_to_all;             \
    (comm)->all_to_all_v = prefix##_all_to_all_v;         \
    (comm)->barrier = prefix##_barrier;                   \
    (comm)->send = prefix##_send;                         \
    (comm)->recv = prefix##_recv;                         \
    (comm)->begin = prefix##_begin;                       \
    (comm)->end = prefix##_end;                           \
  } while (false)

// The same for one-sided calls, PREFIX_window_create to PREFIX_window_accumulate. A host of version
// 1.0 has no place for them.
#define MYTORCH_COMM_WINDOWS(comm, prefix)                                               \
  do {                                                                                   \
    if ((comm)->size >= offsetof(mt_comm, window_accumulate) + sizeof(void (*)(void))) { \
      (comm)->window_create = prefix##_window_create;                                    \
      (comm)->window_free = prefix##_window_free;                                        \
      (comm)->window_put = prefix##_window_put;                                          \
      (comm)->window_get = prefix##_window_get;                                          \
      (comm)->window_accumulate = prefix##_window_accumulate;                            \
    }                                                                                    \
  } while (false)

namespace mytorch::sdk {
inline namespace v1 {

// Runs f() and returns its status, or that of its exception, whose text goes to the host.
template <class F>
int guarded_comm(const mt_host* host, F&& f) noexcept {
  int status = MT_OK;
  const int thrown =
      status_of([&] { status = f(); },
                [&](int code, const char* message) { host->set_error(code, message); });
  return thrown != MT_OK ? thrown : status;
}

inline size_t bytes_of(int64_t count, mt_dtype dtype) {
  return static_cast<size_t>(count * itemsize(dtype));
}
// Returns the address of element `i`; that of no buffer is nullptr.
template <class T>
T* at(T* data, int64_t i, mt_dtype dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return data == nullptr ? nullptr : static_cast<Byte*>(data) + i * itemsize(dtype);
}

// As visit_dtype, with complex numbers.
template <class F>
decltype(auto) visit_any_dtype(mt_dtype dtype, F&& f) {
  if (same_dtype(dtype, {MT_COMPLEX, 64, 1})) return f(TypeTag<std::complex<float>>{});
  if (same_dtype(dtype, {MT_COMPLEX, 128, 1})) return f(TypeTag<std::complex<double>>{});
  return visit_dtype(dtype, f);
}

template <class T>
inline constexpr bool is_complex_type =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// The type in which elements are combined.
template <class T>
using Combined = std::conditional_t<is_reduced_float<T>, float, T>;

// Returns a combined with b. Integers wrap around.
template <class C>
C combine(int32_t op, C a, C b) {
  if constexpr (std::is_same_v<C, bool>) {
    return op == MT_REDUCE_SUM || op == MT_REDUCE_MAX ? a || b : a && b;
  } else if constexpr (is_complex_type<C>) {
    return op == MT_REDUCE_PRODUCT ? a * b : a + b;
  } else if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<std::common_type_t<C, int>>;
    if (op == MT_REDUCE_PRODUCT) return static_cast<C>(static_cast<U>(a) * static_cast<U>(b));
    if (op == MT_REDUCE_MIN) return std::min(a, b);
    if (op == MT_REDUCE_MAX) return std::max(a, b);
    return static_cast<C>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    if (op == MT_REDUCE_PRODUCT) return a * b;
    if (op == MT_REDUCE_MIN) return std::isnan(a) || a < b ? a : b;
    if (op == MT_REDUCE_MAX) return std::isnan(a) || a > b ? a : b;
    return a + b;
  }
}

// Throws Error(MT_ERROR_TYPE or MT_ERROR_VALUE) for a reduction that the contract does not define.
inline void check_reduction(mt_dtype dtype, const mt_reduction& reduction) {
  const int32_t op = reduction.op;
  const auto refuse = [&](const char* why) {
    throw Error(MT_ERROR_TYPE, std::string(dtype_name(dtype)) + " elements have no " + why);
  };
  if (op < MT_REDUCE_SUM || op > MT_REDUCE_AVERAGE) {
    throw Error(MT_ERROR_VALUE, "there is no reduction " + std::to_string(op));
  }
  if (is_complex(dtype) && (op == MT_REDUCE_MIN || op == MT_REDUCE_MAX)) {
    refuse("order: reduce their real or absolute values");
  }
  if (is_bool(dtype) && op == MT_REDUCE_AVERAGE) refuse("average: convert them to floats");
  if (reduction.scale == 1) return;
  if (!is_floating(dtype) && !is_complex(dtype)) refuse("scale: convert them to floats");
  if (op != MT_REDUCE_SUM && op != MT_REDUCE_AVERAGE) {
    throw Error(MT_ERROR_VALUE, "a scale belongs to sums and averages: leave it at 1");
  }
}

// Combines elements of a window with those of `data`, as mt_comm::window_accumulate does.
inline void accumulate(mt_dtype dtype, const mt_reduction& reduction, void* window,
                       const void* data, int64_t count) {
  visit_any_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Combined<T>;
    auto* to = static_cast<T*>(window);
    const auto* from = static_cast<const T*>(data);
    for (int64_t i = 0; i < count; ++i) {
      C value = static_cast<C>(from[i]);
      if constexpr (std::is_floating_point_v<C>) {
        value *= static_cast<C>(reduction.scale);
      } else if constexpr (is_complex_type<C>) {
        value *= static_cast<typename C::value_type>(reduction.scale);
      }
      to[i] = static_cast<T>(combine<C>(reduction.op, static_cast<C>(to[i]), value));
    }
  });
}

// Reduces elements [begin, end) of `sources`, in their order, into the same elements of `out`,
// which may be one of the sources.
inline void reduce_range(mt_dtype dtype, const mt_reduction& reduction, const void* const* sources,
                         int32_t num_sources, void* out, int64_t begin, int64_t end) {
  visit_any_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Combined<T>;
    const int32_t op = reduction.op;
    const auto read = [&](int32_t source, int64_t i) {
      const C value = static_cast<C>(static_cast<const T*>(sources[source])[i]);
      if constexpr (std::is_floating_point_v<C>) {
        return reduction.scale == 1 ? value
                                    : static_cast<C>(value * static_cast<C>(reduction.scale));
      } else if constexpr (is_complex_type<C>) {
        using Part = typename C::value_type;
        return reduction.scale == 1 ? value : value * static_cast<Part>(reduction.scale);
      } else {
        return value;
      }
    };
    constexpr int64_t kBlock = 1024;
    C sums[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = std::min(kBlock, end - at);
      for (int64_t i = 0; i < n; ++i) sums[i] = read(0, at + i);
      for (int32_t source = 1; source < num_sources; ++source) {
        for (int64_t i = 0; i < n; ++i) sums[i] = combine(op, sums[i], read(source, at + i));
      }
      if (op == MT_REDUCE_AVERAGE) {
        for (int64_t i = 0; i < n; ++i) {
          if constexpr (is_complex_type<C>) {
            sums[i] /= static_cast<typename C::value_type>(num_sources);
          } else if constexpr (!std::is_same_v<C, bool>) {
            sums[i] = static_cast<C>(sums[i] / static_cast<C>(num_sources));
          }
        }
      }
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[at + i] = static_cast<T>(sums[i]);
    }
  });
}

}  // namespace v1
}  // namespace mytorch::sdk
