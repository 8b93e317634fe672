#include "backends/cpu-openmp/pointwise/complex.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backends/cpu-openmp/common/loop.h"
#include "backends/cpu-openmp/pointwise/complex_nodes.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/iterate.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/parallel.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {
namespace {

constexpr int kMaxNodes = 64;
constexpr int64_t kGrain = 2048;  // elements
constexpr int64_t kTileSize = 256;
constexpr int64_t kUnit = 8;  // elements of at least a cache line

// Reads n elements, `step` bytes apart, into a tile.
template <class T>
using Load = void (*)(const char* from, int64_t step, T* to, int64_t n);
template <class T>
using Store = void (*)(const T* from, char* to, int64_t step, int64_t n);

template <class T, class Part>
void load_complex(const char* from, int64_t step, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto* parts = reinterpret_cast<const Part*>(from + i * step);
    to[2 * i] = static_cast<T>(parts[0]);
    to[2 * i + 1] = static_cast<T>(parts[1]);
  }
}

template <class T, class From>
void load_real(const char* from, int64_t step, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[2 * i] = sdk::convert<T>(*reinterpret_cast<const From*>(from + i * step));
    to[2 * i + 1] = 0;
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
void store_complex(const T* from, char* to, int64_t step, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    auto* parts = reinterpret_cast<Part*>(to + i * step);
    parts[0] = static_cast<Part>(from[2 * i]);
    parts[1] = static_cast<Part>(from[2 * i + 1]);
  }
}

// The real parts: of a real or bool result, or the gradient of a real operand.
template <class T, class To>
void store_real(const T* from, char* to, int64_t step, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<To*>(to + i * step) = sdk::convert<To>(from[2 * i]);
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

template <class T>
void fill(T* to, int64_t n, T real, T imaginary) {
  for (int64_t i = 0; i < 2 * n; i += 2) {
    to[i] = real;
    to[i + 1] = imaginary;
  }
}

// The tiles of one thread, on its stack.
template <class T>
class Tiles {
 public:
  T* operator[](size_t i) { return memory_ + i * 2 * kTileSize; }

 private:
  alignas(64) T memory_[kMaxNodes * 2 * kTileSize];
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
    ComplexCall call;
    call.args = args;
    std::array<sdk::TensorView, kMaxOperands> tensors;  // the outputs determine the order
    for (const mt_program_output& output : outputs_) {
      const sdk::TensorView tensor = sdk::tensor_at(args, output.offset);
      if (!tensor) continue;
      tensors[static_cast<size_t>(call.count)] = tensor;
      call.operands[call.count++] = {place(output.node),        tensor.data<char>(),      nullptr,
                                     storer<T>(tensor.dtype()), is_exact(tensor.dtype()), false};
    }
    if (call.count == 0) return;
    call.num_outputs = call.count;
    for (const int32_t i : inputs_) {
      const mt_node& node = nodes_[static_cast<size_t>(i)];
      const sdk::TensorView tensor = sdk::tensor_at(args, node.offset);
      if (node.type == MT_TYPE_BOOL && !sdk::is_bool(tensor.dtype())) throw sdk::Declined{};
      tensors[static_cast<size_t>(call.count)] = tensor;
      const auto stores = [&](const ComplexOperand& output) {
        return output.node == static_cast<size_t>(i);
      };
      const bool copied = call.num_outputs > 1 &&
                          std::any_of(call.operands, call.operands + call.num_outputs, stores);
      call.operands[call.count++] = {static_cast<size_t>(i),    tensor.data<char>(),
                                     loader<T>(tensor.dtype()), nullptr,
                                     is_exact(tensor.dtype()),  copied};
    }
    const auto used = std::span(tensors).first(static_cast<size_t>(call.count));
    if (is_line(used)) {
      call.loop.set_line(tensors[0].numel(), call.count);
      for (int k = 0; k < call.count; ++k) {
        call.loop.set_stride(k, 0, used[static_cast<size_t>(k)].itemsize());
      }
    } else {
      set_loop(call.loop, tensors[0].shape(), used);
    }
    // The last step may write the result in place, because all operands have been read.
    const int32_t root = outputs_[0].node;
    call.writes = outputs_.size() == 1 && !steps_.empty() &&
                  place(root) == place(steps_.back().node) && is_direct(call, 0);
    call.whole = call.writes && steps_.size() == 1 && constants_.empty();
    for (int k = call.num_outputs; k < call.count; ++k) call.whole &= is_direct(call, k);
    const int64_t n = call.loop.numel();
    sdk::parallel_for(ctx, 0, (n + kUnit - 1) / kUnit, kGrain / kUnit,
                      [&](int64_t begin, int64_t end) noexcept {
                        begin *= kUnit;
                        end = std::min(end * kUnit, n);
                        if (!call.whole) return run_tiles(call, begin, end);
                        run_whole(call, begin, end);
                      });
  }

 private:
  struct ComplexOperand {
    size_t node;
    char* data;
    Load<T> load;
    Store<T> store;
    bool exact;   // of the type of the computation
    bool copied;  // an input that is an output, too, which another output may overwrite
  };
  struct ComplexCall {
    const void* args;
    ComplexOperand operands[kMaxOperands];  // the outputs first
    int count = 0;
    int num_outputs = 0;
    Loop loop;
    bool writes;  // the last step writes to the output
    bool whole;   // there is one step, all of whose operands are in place
  };
  struct Step {
    int32_t node;
    ComplexLoop<T> loop;
  };

  static bool is_exact(mt_dtype dtype) {
    return sdk::is_complex(dtype) && dtype.bits == 16 * sizeof(T);
  }
  // Returns whether rows of the operand are contiguous and of the type of the computation.
  static bool is_direct(const ComplexCall& call, int k) {
    return call.operands[k].exact && call.loop.inner_stride(k) == 2 * int64_t{sizeof(T)};
  }
  static bool is_line(std::span<const sdk::TensorView> tensors) {
    for (const sdk::TensorView& tensor : tensors) {
      if (!tensor.is_contiguous() || !std::ranges::equal(tensor.shape(), tensors[0].shape())) {
        return false;
      }
    }
    return true;
  }

  void run_step(const Step& step, T* const* values, T* to, int64_t n) const {
    const mt_node& node = nodes_[static_cast<size_t>(step.node)];
    const T* in[3] = {};
    for (int a = 0; a < 3; ++a) {
      if (node.a[a] >= 0) in[a] = values[place(node.a[a])];
    }
    step.loop(in, to, n);
  }

  void run_whole(const ComplexCall& call, int64_t begin, int64_t end) const {
    T* values[kMaxNodes];
    Cursor cursor(call.loop, begin);
    for (int64_t i = begin; i < end;) {
      const int64_t n = std::min(cursor.left(), end - i);
      for (int k = call.num_outputs; k < call.count; ++k) {
        values[call.operands[k].node] =
            reinterpret_cast<T*>(call.operands[k].data + cursor.offset(k));
      }
      run_step(steps_[0], values, reinterpret_cast<T*>(call.operands[0].data + cursor.offset(0)),
               n);
      cursor.advance(n);
      i += n;
    }
  }

  void run_tiles(const ComplexCall& call, int64_t begin, int64_t end) const {
    Tiles<T> tiles;
    T* values[kMaxNodes];
    for (size_t i = 0; i < nodes_.size(); ++i) values[i] = tiles[i];
    for (const int32_t i : constants_) {
      const mt_node& node = nodes_[static_cast<size_t>(i)];
      const auto value = std::string_view(node.op) == "const"
                             ? std::complex<double>(node.value)
                             : sdk::complex_scalar_at<std::complex<double>>(call.args, node);
      fill(tiles[static_cast<size_t>(i)], kTileSize, static_cast<T>(value.real()),
           static_cast<T>(value.imag()));
    }
    const char* repeated[kMaxOperands] = {};  // the elements that tiles are filled with
    Cursor cursor(call.loop, begin);
    for (int64_t i = begin; i < end;) {
      const int64_t n = std::min({kTileSize, cursor.left(), end - i});
      for (int k = call.num_outputs; k < call.count; ++k) {
        const ComplexOperand& operand = call.operands[k];
        const char* const from = operand.data + cursor.offset(k);
        const int64_t stride = call.loop.inner_stride(k);
        if (is_direct(call, k) && operand.copied) {
          std::memcpy(tiles[operand.node], from, static_cast<size_t>(n) * 2 * sizeof(T));
        } else if (is_direct(call, k)) {
          values[operand.node] = reinterpret_cast<T*>(operand.data + cursor.offset(k));
        } else if (stride != 0) {
          operand.load(from, stride, tiles[operand.node], n);
        } else if (from != repeated[k]) {
          repeated[k] = from;
          T parts[2];
          operand.load(from, 0, parts, 1);
          fill(tiles[operand.node], std::min(kTileSize, cursor.left()), parts[0], parts[1]);
        }
      }
      for (const Step& step : steps_) {
        const size_t node = static_cast<size_t>(step.node);
        const bool last = call.writes && &step == &steps_.back();
        char* const out = call.operands[0].data + cursor.offset(0);
        run_step(step, values, last ? reinterpret_cast<T*>(out) : tiles[node], n);
      }
      // Outputs are stored last, because an output may be an input.
      for (int k = 0; k < call.num_outputs && !call.writes; ++k) {
        char* const to = call.operands[k].data + cursor.offset(k);
        const T* const from = values[call.operands[k].node];
        if (is_direct(call, k)) {
          if (to != reinterpret_cast<const char*>(from)) {
            std::memcpy(to, from, static_cast<size_t>(n) * 2 * sizeof(T));
          }
        } else {
          call.operands[k].store(from, to, call.loop.inner_stride(k), n);
        }
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
