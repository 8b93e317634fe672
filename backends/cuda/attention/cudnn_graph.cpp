#include "backends/cuda/attention/cudnn_graph.h"

#include <bit>
#include <limits>

namespace mytorch::cuda {
namespace {

Layout4 contiguous(const Sizes4& size) {
  return {size, {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1}};
}

Layout4 transposed(Layout4 x) {
  std::swap(x.size[2], x.size[3]);
  std::swap(x.stride[2], x.stride[3]);
  return x;
}

// A library call that failed while a graph was built: the library does not support it.
struct Unsupported {};

void require(bool done) {
  if (!done) throw Unsupported{};
}

// A graph under construction. Intermediate results are virtual tensors of float32 unless said
// otherwise.
class Builder {
 public:
  // A tensor, by its index.
  enum class Value : size_t {};

  // `alignment` is in bytes.
  Value operand(int64_t id, cudnnDataType_t type, const Layout4& layout, int64_t alignment = 16) {
    return add(id, type, layout, Kind::kOperand, alignment);
  }
  Value logsumexp(const Layout4& layout) {
    return operand(kLogsumexp, CUDNN_DATA_FLOAT, layout, sizeof(float));
  }
  // A number in host memory that the caller sets in each execution.
  Value number(int64_t id) { return add(id, CUDNN_DATA_FLOAT, kNumber, Kind::kNumber); }
  Value constant(float value) {
    return constant(CUDNN_DATA_FLOAT, std::bit_cast<std::array<unsigned char, 4>>(value));
  }
  Value constant(int32_t value) {
    return constant(CUDNN_DATA_INT32, std::bit_cast<std::array<unsigned char, 4>>(value));
  }
  Value intermediate(const Layout4& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return add(next_++, type, layout, Kind::kVirtual);
  }

  void multiply(Value a, Value b, Value c) {
    Descriptor product(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    require(product.finalize());
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
    push(std::move(operation));
  }

  // y = x OP b, or "t ? x : b" for a selection.
  struct Inputs {
    Value x;
    std::optional<Value> b = std::nullopt, t = std::nullopt;
  };
  void pointwise_to(cudnnPointwiseMode_t mode, const Inputs& in, Value y,
                    cudnnDataType_t compute = CUDNN_DATA_FLOAT, int64_t axis = -1) {
    Descriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) pointwise.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
    require(pointwise.finalize());
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(in.x));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
    if (in.b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(*in.b));
    if (in.t) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(*in.t));
    push(std::move(operation));
  }
  // Returns a new tensor of the sizes of `in.x`.
  Value pointwise(cudnnPointwiseMode_t mode, const Inputs& in,
                  cudnnDataType_t type = CUDNN_DATA_FLOAT,
                  cudnnDataType_t compute = CUDNN_DATA_FLOAT, int64_t axis = -1) {
    const Value y = intermediate(contiguous(tensors_[index(in.x)].size), type);
    pointwise_to(mode, in, y, compute, axis);
    return y;
  }

  void reduce(cudnnReduceTensorOp_t mode, Value x, Value y) {
    Descriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    require(reduction.finalize());
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y));
    push(std::move(operation));
  }

  void reshape(Value x, Value y) {
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
    push(std::move(operation));
  }

  CudnnGraph finish(cudnnHandle_t handle) {
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    std::vector<cudnnBackendDescriptor_t> operations;
    for (const Descriptor& operation : operations_) operations.push_back(operation.get());
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              static_cast<int64_t>(operations.size()), operations.data());
    if (handle != nullptr) {
      graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    }
    require(graph.finalize());
    return {std::move(graph), std::move(constants_)};
  }

 private:
  enum class Kind { kOperand, kVirtual, kNumber };
  static constexpr Layout4 kNumber = {{1, 1, 1, 1}, {1, 1, 1, 1}};
  struct Tensor {
    Descriptor descriptor;
    Sizes4 size;
  };

  static size_t index(Value value) { return static_cast<size_t>(value); }
  const Descriptor& at(Value value) const { return tensors_[index(value)].descriptor; }

  Value add(int64_t id, cudnnDataType_t type, const Layout4& layout, Kind kind,
            int64_t alignment = 16) {
    Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool yes = true;
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.size.data());
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.stride.data());
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    if (kind == Kind::kVirtual) {
      tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    if (kind == Kind::kNumber) {
      tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    require(tensor.finalize());
    tensors_.push_back({std::move(tensor), layout.size});
    return Value{tensors_.size() - 1};
  }

  Value constant(cudnnDataType_t type, const std::array<unsigned char, 4>& bytes) {
    constants_.push_back({next_, bytes});
    return add(next_++, type, kNumber, Kind::kNumber);
  }

  void push(Descriptor operation) {
    require(operation.finalize());
    operations_.push_back(std::move(operation));
  }

  int64_t next_ = kFirstConstant;
  std::vector<Tensor> tensors_;
  std::vector<Descriptor> operations_;
  std::vector<CudnnConstant> constants_;
};

using Value = Builder::Value;

Sizes4 score_sizes(const CudnnAttention& call) {
  return {call.batch(), call.heads(), call.queries(), call.keys()};
}
Layout4 row_layout(const CudnnAttention& call) {
  return contiguous({call.batch(), call.heads(), call.queries(), 1});
}

// Returns "keep ? scores : -infinity".
Value select(Builder& graph, Value scores, Value keep) {
  const Value masked = graph.constant(-std::numeric_limits<float>::infinity());
  return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, masked, keep});
}

// Returns q k^T * scale + mask.
Value scores_of(Builder& graph, const CudnnAttention& call, Value query, Value key, Value scale) {
  Value scores = graph.intermediate(contiguous(score_sizes(call)));
  graph.multiply(query, key, scores);
  scores = graph.pointwise(CUDNN_POINTWISE_MUL, {scores, scale});
  if (!call.mask) return scores;
  const Value mask = graph.operand(kMask, call.type, *call.mask);
  return graph.pointwise(CUDNN_POINTWISE_ADD, {scores, mask});
}

// Returns the scores, or -infinity for keys outside the band.
Value band_of(Builder& graph, const CudnnAttention& call, Value scores) {
  const auto index = [&](int64_t axis) {
    return graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, {scores}, CUDNN_DATA_INT32, CUDNN_DATA_FLOAT,
                           axis);
  };
  const auto shifted = [&](Value x, cudnnPointwiseMode_t mode, int64_t by) {
    return graph.pointwise(mode, {x, graph.constant(static_cast<int32_t>(by))}, CUDNN_DATA_INT32,
                           CUDNN_DATA_INT32);
  };
  const auto compare = [&](cudnnPointwiseMode_t mode, Value a, Value b) {
    return graph.pointwise(mode, {a, b}, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN);
  };
  if (call.highest) {
    Value row = index(2);
    const Value column = index(3);
    if (*call.highest == call.keys() - call.queries() && *call.highest != 0) {
      // The library knows this form as a diagonal that ends in the lower right corner.
      row = shifted(row, CUDNN_POINTWISE_ADD, call.keys());
      row = shifted(row, CUDNN_POINTWISE_SUB, call.queries());
    } else if (*call.highest != 0) {
      row = shifted(row, CUDNN_POINTWISE_ADD, *call.highest);
    }
    scores = select(graph, scores, compare(CUDNN_POINTWISE_CMP_GE, row, column));
  }
  if (call.lowest) {
    const Value row = index(2);
    Value column = index(3);
    const Value window = graph.constant(static_cast<float>(1 - *call.lowest));
    column = graph.pointwise(CUDNN_POINTWISE_ADD, {column, window});
    scores = select(graph, scores, compare(CUDNN_POINTWISE_CMP_GT, column, row));
  }
  return scores;
}

CudnnGraph build_forward(cudnnHandle_t handle, const CudnnAttention& call) {
  Builder graph;
  const Value query = graph.operand(kQuery, call.type, call.query);
  const Value key = graph.operand(kKey, call.type, transposed(call.key));
  const Value scale = graph.number(kScale);
  const Value scores = band_of(graph, call, scores_of(graph, call, query, key, scale));

  const Value highest = graph.intermediate(row_layout(call));
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, highest);
  const Value below = graph.pointwise(CUDNN_POINTWISE_SUB, {scores, highest});
  const Value weights = graph.pointwise(CUDNN_POINTWISE_EXP, {below});
  const Value sum = graph.intermediate(row_layout(call));
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, sum);
  const Value log = graph.pointwise(CUDNN_POINTWISE_LOG, {sum});
  const Value logsumexp = graph.logsumexp(row_layout(call));
  graph.pointwise_to(CUDNN_POINTWISE_ADD, {highest, log}, logsumexp);
  const Value shares = graph.intermediate(contiguous(score_sizes(call)), call.type);
  graph.pointwise_to(CUDNN_POINTWISE_DIV, {weights, sum}, shares);

  const Value value = graph.operand(kValue, call.type, call.value);
  graph.multiply(shares, value, graph.operand(kOutput, call.type, call.output));
  return graph.finish(handle);
}

// gradient += x^T y of all query heads that share the gradient's head.
void accumulate(Builder& graph, const CudnnAttention& call, Value x, Value y, int64_t id,
                const Layout4& gradient) {
  Layout4 layout = transposed(contiguous(score_sizes(call)));
  const Value across = graph.intermediate(layout, call.type);
  graph.reshape(x, across);
  const Value to = graph.operand(id, call.type, gradient);
  if (gradient.size[1] == call.heads()) {
    graph.multiply(across, y, to);
    return;
  }
  const Value by_head = graph.intermediate(
      contiguous({call.batch(), call.heads(), call.keys(), gradient.size[3]}), call.type);
  graph.multiply(across, y, by_head);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, to);
}

CudnnGraph build_backward(cudnnHandle_t handle, const CudnnAttention& call) {
  Builder graph;
  const Value query = graph.operand(kQuery, call.type, call.query);
  const Value key = graph.operand(kKey, call.type, transposed(call.key));
  const Value value = graph.operand(kValue, call.type, transposed(call.value));
  const Value output = graph.operand(kOutput, call.type, call.output);
  const Value grad = graph.operand(kGradOutput, call.type, call.grad_output);
  const Value logsumexp = graph.logsumexp(row_layout(call));

  // The sum over a row of probability * gradient.
  const Value products = graph.pointwise(CUDNN_POINTWISE_MUL, {grad, output});
  const Value sums = graph.intermediate(row_layout(call));
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
  const Value row_sums = graph.operand(kRowSums, CUDNN_DATA_FLOAT, row_layout(call));
  graph.pointwise_to(CUDNN_POINTWISE_MUL, {sums, graph.constant(1.0F)}, row_sums);

  const Value scale = graph.number(kScale);
  Value scores = scores_of(graph, call, query, key, scale);
  scores = graph.pointwise(CUDNN_POINTWISE_SUB, {scores, logsumexp});
  const Value shares = graph.pointwise(CUDNN_POINTWISE_EXP, {band_of(graph, call, scores)});
  accumulate(graph, call, shares, grad, kGradValue, call.grad_value);

  Value slope = graph.intermediate(contiguous(score_sizes(call)));
  graph.multiply(grad, value, slope);
  slope = graph.pointwise(CUDNN_POINTWISE_SUB, {slope, row_sums});
  slope = graph.pointwise(CUDNN_POINTWISE_MUL, {slope, shares});
  if (call.grad_mask) {
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, slope,
                 graph.operand(kGradMask, call.type, *call.grad_mask));
  }
  slope = graph.pointwise(CUDNN_POINTWISE_MUL, {slope, scale});
  accumulate(graph, call, slope, query, kGradKey, call.grad_key);

  const Value rows = graph.intermediate(call.key, call.type);
  graph.reshape(key, rows);
  const Value grad_query = graph.operand(kGradQuery, call.type, call.grad_query);
  if (call.deterministic || call.grad_mask) {
    graph.multiply(slope, rows, grad_query);
  } else {
    const Value total = graph.operand(kQuerySums, CUDNN_DATA_FLOAT, contiguous(call.query.size));
    graph.multiply(slope, rows, total);
    graph.pointwise_to(CUDNN_POINTWISE_IDENTITY, {total}, grad_query);
  }
  return graph.finish(handle);
}

template <class Build>
std::optional<CudnnGraph> supported(Build&& build) {
  try {
    return build();
  } catch (const Unsupported&) {
    return std::nullopt;
  } catch (const sdk::Error& error) {
    // The library also reports unsupported attributes when they are set.
    if (error.status() != MT_ERROR_INTERNAL) throw;
    return std::nullopt;
  }
}

}  // namespace

std::optional<CudnnGraph> forward_graph(cudnnHandle_t handle, const CudnnAttention& call) {
  return supported([&] { return build_forward(handle, call); });
}

std::optional<CudnnGraph> backward_graph(cudnnHandle_t handle, const CudnnAttention& call) {
  return supported([&] { return build_backward(handle, call); });
}

}  // namespace mytorch::cuda
