#include "mytorch/distributed/functional.h"

#include "core/types/errors.h"
#include "mytorch/autograd/function.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::distributed {
namespace {

using autograd::FunctionContext;
using autograd::tensor_list;

struct Peer {
  Group group;
  int rank;
  std::vector<int64_t> sizes;
};
Peer& peer_of(FunctionContext* ctx) { return *std::any_cast<Peer>(&ctx->saved_data["peer"]); }

// Lets a result without inputs take part in differentiation: it requires a gradient and gets none.
Tensor anchor(ScalarType dtype) { return mytorch::empty({0}, dtype).requires_grad_(); }

std::vector<int64_t> with_rows(IntList sizes, int64_t rows) {
  std::vector<int64_t> result = sizes.vec();
  result[0] = rows;
  return result;
}

void check_rows(const char* op, IntList sizes, const Group& group, bool divided) {
  if (sizes.empty() || (divided && sizes[0] % group.size() != 0)) {
    fail(ErrorCode::kShape, "[", op, "] a tensor of shape ", shape_str(sizes), " for ",
         group.size(), " ranks: dimension 0 ",
         divided ? "must be a multiple of them" : "is missing");
  }
}

struct Gather : autograd::Function<Gather> {
  static constexpr const char* kName = "gather";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, const Peer& peer) {
    ctx->saved_data["peer"] = peer;
    const Group& group = peer.group;
    const bool receives = group.rank() == peer.rank;
    Tensor all = mytorch::empty(with_rows(x.sizes(), receives ? x.size(0) * group.size() : 0),
                                x.dtype(), x.device());
    group.gather(all, x, peer.rank);
    return all;
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    const Peer& peer = peer_of(ctx);
    const Tensor part = mytorch::empty(peer.sizes, grads[0].dtype(), grads[0].device());
    peer.group.scatter(part, grads[0], peer.rank);
    return {part, Tensor()};
  }
};

struct Scatter : autograd::Function<Scatter> {
  static constexpr const char* kName = "scatter";
  // Ranks other than the source pass an anchor.
  static Tensor forward(FunctionContext* ctx, const Tensor& x, const Peer& peer) {
    ctx->saved_data["peer"] = peer;
    const Device device = peer.group.rank() == peer.rank ? x.device() : peer.group.device();
    Tensor part =
        mytorch::empty(with_rows(peer.sizes, peer.sizes[0] / peer.group.size()), x.dtype(), device);
    peer.group.scatter(part, x, peer.rank);
    return part;
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    const Peer& peer = peer_of(ctx);
    const bool receives = peer.group.rank() == peer.rank;
    const Tensor all =
        receives ? mytorch::empty(peer.sizes, grads[0].dtype(), grads[0].device()) : Tensor();
    peer.group.gather(all, grads[0], peer.rank);
    return {all, Tensor()};
  }
};

struct Send : autograd::Function<Send> {
  static constexpr const char* kName = "send";
  static Tensor forward(FunctionContext* ctx, const Tensor& x, const Peer& peer) {
    ctx->saved_data["peer"] = peer;
    peer.group.send(x, peer.rank);
    return mytorch::empty({0}, x.dtype(), x.device());
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    const Peer& peer = peer_of(ctx);
    const Tensor grad = mytorch::empty(peer.sizes, grads[0].dtype(), peer.group.device());
    peer.group.recv(grad, peer.rank);
    return {grad, Tensor()};
  }
};

struct Recv : autograd::Function<Recv> {
  static constexpr const char* kName = "recv";
  static Tensor forward(FunctionContext* ctx, const Tensor& anchor, const Peer& peer) {
    ctx->saved_data["peer"] = peer;
    Tensor x = mytorch::empty(peer.sizes, anchor.dtype(), peer.group.device());
    peer.group.recv(x, peer.rank);
    return x;
  }
  static tensor_list backward(FunctionContext* ctx, const tensor_list& grads) {
    const Peer& peer = peer_of(ctx);
    peer.group.send(grads[0], peer.rank);
    return {Tensor(), Tensor()};
  }
};

Peer peer_for(const Group& group, int rank, IntList sizes) {
  return {group.defined() ? group : world(), rank, sizes.vec()};
}

}  // namespace

Tensor gather(const Tensor& tensor, int dst, const Group& group) {
  const Peer peer = peer_for(group, dst, tensor.sizes());
  check_rows("gather", tensor.sizes(), peer.group, false);
  return Gather::apply(tensor, peer);
}

Tensor scatter(const Tensor& all, int src, const Group& group) {
  const Peer peer = peer_for(group, src, all.sizes());
  check_rows("scatter", all.sizes(), peer.group, true);
  return Scatter::apply(all, peer);
}

Tensor scatter(IntList sizes, ScalarType dtype, int src, const Group& group) {
  const Peer peer = peer_for(group, src, sizes);
  check_rows("scatter", sizes, peer.group, true);
  if (peer.group.rank() == src) {
    fail(ErrorCode::kValue, "[scatter] rank ", src, " is the source: pass the tensor");
  }
  return Scatter::apply(anchor(dtype), peer);
}

Tensor send(const Tensor& tensor, int to, const Group& group) {
  return Send::apply(tensor, peer_for(group, to, tensor.sizes()));
}

Tensor recv(IntList sizes, ScalarType dtype, int from, const Group& group) {
  return Recv::apply(anchor(dtype), peer_for(group, from, sizes));
}

}  // namespace mytorch::distributed
