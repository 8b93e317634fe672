#include "backends/cpu-openmp/pointwise/complex.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backends/cpu-openmp/pointwise/complex_nodes.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/iterate.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/parallel.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {
namespace {

constexpr int kMaxOperands = 16;
constexpr int kMaxNodes = 64;
constexpr int64_t kGrain = 2048;  // elements

using Loop = sdk::StridedLoop<kMaxOperands>;

// Reads n elements, `step` bytes apart, into a tile.
template <class T>
using Load = void (*)(const char* from, int64_t step, ComplexTile<T> to, int64_t n);
template <class T>
using Store = void (*)(ComplexTile<T> from, char* to, int64_t step, int64_t n);

template <class T, class Part>
void load_complex(const char* from, int64_t step, ComplexTile<T> to, int64_t n) {
  if constexpr (std::is_same_v<T, Part>) {
    if (step == 2 * int64_t{sizeof(Part)}) {
      return complex_vector_fns<T>().load(reinterpret_cast<const T*>(from), to, n);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    const auto* parts = reinterpret_cast<const Part*>(from + i * step);
    to.re[i] = static_cast<T>(parts[0]);
    to.im[i] = static_cast<T>(parts[1]);
  }
}

template <class T, class From>
void load_real(const char* from, int64_t step, ComplexTile<T> to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to.re[i] = sdk::convert<T>(*reinterpret_cast<const From*>(from + i * step));
    to.im[i] = 0;
  }
}

template <class T>
Load<T> loader(mt_dtype dtype) {
  if (sdk::is_complex(dtype))
    return dtype.bits == 64 ? load_complex<T, float> : load_complex<T, double>;
  return sdk::visit_dtype(
      dtype, [](auto tag) -> Load<T> { return load_real<T, typename decltype(tag)::type>; });
}

template <class T, class Part>
void store_complex(ComplexTile<T> from, char* to, int64_t step, int64_t n) {
  if constexpr (std::is_same_v<T, Part>) {
    if (step == 2 * int64_t{sizeof(Part)}) {
      return complex_vector_fns<T>().store(from, reinterpret_cast<T*>(to), n);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    auto* parts = reinterpret_cast<Part*>(to + i * step);
    parts[0] = static_cast<Part>(from.re[i]);
    parts[1] = static_cast<Part>(from.im[i]);
  }
}

// The real parts: of a real or bool result, or the gradient of a real operand.
template <class T, class To>
void store_real(ComplexTile<T> from, char* to, int64_t step, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<To*>(to + i * step) = sdk::convert<To>(from.re[i]);
  }
}

template <class T>
Store<T> storer(mt_dtype dtype) {
  if (sdk::is_complex(dtype)) {
    return dtype.bits == 64 ? store_complex<T, float> : store_complex<T, double>;
  }
  return sdk::visit_dtype(
      dtype, [](auto tag) -> Store<T> { return store_real<T, typename decltype(tag)::type>; });
}

template <class T>
ComplexLoop<T> find_loop(std::string_view name) {
  const ComplexVectorFns<T>& fns = complex_vector_fns<T>();
  for (int i = 0; i < fns.num_rows; ++i) {
    if (name == fns.rows[i].name) return fns.rows[i].loop;
  }
  return find_complex_function<T>(name);
}

// The tiles of one thread, on its stack.
template <class T>
class Tiles {
 public:
  explicit Tiles(size_t count) { std::fill_n(memory_, count * 2 * kComplexTile, T(0)); }
  ComplexTile<T> operator[](size_t i) {
    T* const re = memory_ + i * 2 * kComplexTile;
    return {re, re + kComplexTile};
  }

 private:
  alignas(64) T memory_[kMaxNodes * 2 * kComplexTile];
};

template <class T>
class ComplexProgram {
 public:
  explicit ComplexProgram(const mt_program& program)
      : outputs_(program.outputs, program.outputs + program.num_outputs) {
    if (program.fold != nullptr) throw sdk::Declined{};
    for (int32_t i = 0; i < program.num_nodes; ++i) {
      const mt_node& node = program.nodes[i];
      const std::string_view name = node.op;
      if (node.type == MT_TYPE_INDEX) throw sdk::Declined{};
      places_.push_back(i);
      nodes_.push_back(node);
      if (name == "input") {
        inputs_.push_back(i);
      } else if (name == "scalar" || name == "const") {
        constants_.push_back(i);
      } else if (name == "cast" && node.type == MT_TYPE_COMPUTE) {
        places_.back() = places_[static_cast<size_t>(node.a[0])];  // a bool is 0 or 1 already
      } else {
        const ComplexLoop<T> loop = find_loop<T>(name);
        if (loop == nullptr) throw sdk::Declined{};
        steps_.push_back({i, loop});
      }
    }
    if (nodes_.size() > kMaxNodes || inputs_.size() + outputs_.size() > kMaxOperands) {
      throw sdk::Declined{};
    }
  }

  void run(mt_ctx& ctx, const void* args) const {
    std::vector<Operand> operands;  // the outputs first: they determine the order
    std::vector<sdk::TensorView> tensors;
    for (const mt_program_output& output : outputs_) {
      const sdk::TensorView tensor = sdk::tensor_at(args, output.offset);
      if (!tensor) continue;
      operands.push_back({places_[static_cast<size_t>(output.node)], tensor.data<char>(), nullptr,
                          storer<T>(tensor.dtype())});
      tensors.push_back(tensor);
    }
    if (operands.empty()) return;
    const size_t num_outputs = operands.size();
    for (const int32_t i : inputs_) {
      const mt_node& node = nodes_[static_cast<size_t>(i)];
      const sdk::TensorView tensor = sdk::tensor_at(args, node.offset);
      operands.push_back(
          {i, tensor.data<char>(),
           node.type == MT_TYPE_BOOL ? bool_loader(tensor.dtype()) : loader<T>(tensor.dtype()),
           nullptr});
      tensors.push_back(tensor);
    }
    const std::span<const int64_t> shape = tensors[0].shape();
    std::vector<int64_t> strides(tensors.size() * std::max<size_t>(shape.size(), 1));
    std::array<const int64_t*, kMaxOperands> pointers{};
    for (size_t k = 0; k < tensors.size(); ++k) {
      int64_t* const own = strides.data() + k * shape.size();
      sdk::broadcast_strides(tensors[k], shape, own);
      pointers[k] = own;
    }
    Loop loop;
    loop.collapse(shape, std::span(pointers.data(), tensors.size()));
    for (size_t k = 0; k < tensors.size(); ++k) {
      loop.scale(static_cast<int>(k), tensors[k].itemsize());
    }
    sdk::parallel_for(ctx, 0, loop.numel(), kGrain, [&](int64_t begin, int64_t end) noexcept {
      run_range(loop, operands, num_outputs, args, begin, end);
    });
  }

 private:
  struct Operand {
    int32_t node;
    char* data;
    Load<T> load;
    Store<T> store;
  };
  struct Step {
    int32_t node;
    ComplexLoop<T> loop;
  };

  static void load_bool(const char* from, int64_t step, ComplexTile<T> to, int64_t n) {
    load_real<T, bool>(from, step, to, n);
  }
  static Load<T> bool_loader(mt_dtype dtype) {
    if (!sdk::is_bool(dtype)) throw sdk::Declined{};
    return &load_bool;
  }

  void run_range(const Loop& loop, const std::vector<Operand>& operands, size_t num_outputs,
                 const void* args, int64_t begin, int64_t end) const {
    Tiles<T> tiles(nodes_.size());
    for (const int32_t i : constants_) {
      const mt_node& node = nodes_[static_cast<size_t>(i)];
      const auto value = std::string_view(node.op) == "const"
                             ? std::complex<double>(node.value)
                             : sdk::complex_scalar_at<std::complex<double>>(args, node);
      const ComplexTile<T> tile = tiles[static_cast<size_t>(i)];
      std::fill_n(tile.re, kComplexTile, static_cast<T>(value.real()));
      std::fill_n(tile.im, kComplexTile, static_cast<T>(value.imag()));
    }
    sdk::StridedCursor<kMaxOperands> cursor(loop, begin);
    for (int64_t i = begin; i < end;) {
      const int64_t n = std::min({kComplexTile, cursor.left(), end - i});
      // All inputs are read before an output is written, because an output may be an input.
      for (size_t k = num_outputs; k < operands.size(); ++k) {
        const int at = static_cast<int>(k);
        operands[k].load(operands[k].data + cursor.offset(at), loop.inner_stride(at),
                         tiles[static_cast<size_t>(operands[k].node)], n);
      }
      for (const Step& step : steps_) {
        const mt_node& node = nodes_[static_cast<size_t>(step.node)];
        ComplexTile<T> in[3] = {};
        for (int a = 0; a < 3; ++a) {
          if (node.a[a] >= 0) in[a] = tiles[place(node.a[a])];
        }
        step.loop(in, tiles[static_cast<size_t>(step.node)], n);
      }
      for (size_t k = 0; k < num_outputs; ++k) {
        const int at = static_cast<int>(k);
        operands[k].store(tiles[static_cast<size_t>(operands[k].node)],
                          operands[k].data + cursor.offset(at), loop.inner_stride(at), n);
      }
      cursor.advance(n);
      i += n;
    }
  }

  // The tile of a node's value.
  size_t place(int32_t node) const {
    return static_cast<size_t>(places_[static_cast<size_t>(node)]);
  }

  std::vector<mt_program_output> outputs_;
  std::vector<mt_node> nodes_;
  std::vector<int32_t> places_;
  std::vector<int32_t> inputs_;
  std::vector<int32_t> constants_;
  std::vector<Step> steps_;
};

template <class T>
int run_complex(void* self, mt_ctx* ctx, const void* args) {
  return sdk::guarded(ctx, [&] { static_cast<const ComplexProgram<T>*>(self)->run(*ctx, args); });
}

template <class T>
void make(const mt_program& program, mt_kernel_entry& kernel) {
  kernel.self = std::make_unique<ComplexProgram<T>>(program).release();
  kernel.run = &run_complex<T>;
}

}  // namespace

void compile_complex(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel) {
  (compute.bits == 64 ? make<float> : make<double>)(program, kernel);
}

}  // namespace mytorch::cpu
