// Gather, scatter and messages for ranks that have no tensor to give the operators
// (gather_into_tensor, scatter_tensor, send, recv) its shape and type. Their backward communicates
// the other way: every rank that called one of them must use its result in a loss, and all must
// run backward. As for all collective operators, what backward computes is the gradient of the sum
// of all ranks' losses.
#pragma once

#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/dtype.h"
#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::distributed {

// Returns the tensors of all ranks, joined along dimension 0, on rank `dst`; on the others, an
// empty tensor, (0, ...), whose sum may be added to the loss.
Tensor gather(const Tensor& tensor, int dst, const Group& group = {});

// Returns this rank's part of the tensor `all` of rank `src`, whose dimension 0 is a multiple of
// the ranks. Other ranks pass the sizes and the type of the whole tensor instead.
Tensor scatter(const Tensor& all, int src, const Group& group = {});
Tensor scatter(IntList sizes, ScalarType dtype, int src, const Group& group = {});

// Sends a tensor to a rank. Returns an empty tensor, whose sum may be added to the loss: its
// backward receives the gradient.
Tensor send(const Tensor& tensor, int to, const Group& group = {});
// Receives a tensor; backward sends its gradient back.
Tensor recv(IntList sizes, ScalarType dtype, int from, const Group& group = {});

}  // namespace mytorch::distributed
