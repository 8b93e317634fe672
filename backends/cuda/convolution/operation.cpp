#include "backends/cuda/convolution/operation.h"

namespace mytorch::cuda {
namespace {

enum { kInputId = 1, kWeightId = 2, kOutputId = 3 };

Descriptor tensor_descriptor(const Layout& layout, cudnnDataType_t type, int64_t id,
                             int64_t alignment) {
  Descriptor node(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  node.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  node.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, layout.ndim, layout.size.data());
  node.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, layout.ndim, layout.stride.data());
  node.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  node.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  CUDNN(cudnnBackendFinalize(node.get()));
  return node;
}

Descriptor convolution_descriptor(const sdk::ConvolutionGeometry& g, cudnnDataType_t compute) {
  const int dims = g.dims == 3 ? 3 : 2;
  const int skip = 3 - dims;
  Descriptor node(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  node.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  node.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  node.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{dims});
  node.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dims, g.dilation.data() + skip);
  node.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, dims, g.stride.data() + skip);
  node.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, dims, g.padding.data() + skip);
  node.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, dims, g.padding.data() + skip);
  CUDNN(cudnnBackendFinalize(node.get()));
  return node;
}

// The attribute names of an operation.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, input, weight, output, alpha, beta;
};
constexpr Names kForward = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr Names kBackwardInput = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
constexpr Names kBackwardWeight = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

}  // namespace

std::optional<Descriptor> graph_of(cudnnHandle_t handle, const Convolution& call,
                                   const Layout& input, const Layout& weight, const Layout& output,
                                   const std::array<int64_t, 3>& alignment) {
  const cudnnDataType_t type = cudnn_type_of(call.result().dtype());
  const bool wide = type == CUDNN_DATA_DOUBLE;
  const Descriptor x = tensor_descriptor(input, type, kInputId, alignment[0]);
  const Descriptor w = tensor_descriptor(weight, type, kWeightId, alignment[1]);
  const Descriptor y = tensor_descriptor(output, type, kOutputId, alignment[2]);
  const Descriptor convolution =
      convolution_descriptor(call.geometry, wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  const Names& names = call.computed == Convolution::kOutput  ? kForward
                       : call.computed == Convolution::kInput ? kBackwardInput
                                                              : kBackwardWeight;
  Descriptor operation(names.operation);
  operation.set(names.convolution, convolution);
  operation.set(names.input, x);
  operation.set(names.weight, w);
  operation.set(names.output, y);
  const double one = 1, zero = 0;
  const float one32 = 1, zero32 = 0;
  const cudnnBackendAttributeType_t factor = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  operation.set(names.alpha, factor, 1, wide ? static_cast<const void*>(&one) : &one32);
  operation.set(names.beta, factor, 1, wide ? static_cast<const void*>(&zero) : &zero32);
  if (!operation.finalize()) return std::nullopt;
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  if (!graph.finalize()) return std::nullopt;
  return graph;
}

bool Operands::run(cudnnHandle_t handle, const Descriptor& plan) const {
  const int64_t ids[] = {kInputId, kWeightId, kOutputId};
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  CUDNN(cudnnBackendFinalize(pack.get()));
  return cudnnBackendExecute(handle, plan.get(), pack.get()) == CUDNN_STATUS_SUCCESS;
}

}  // namespace mytorch::cuda
