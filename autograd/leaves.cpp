#include "autograd/leaves.h"

#include <unordered_set>

#include "autograd/access.h"
#include "mytorch/autograd/record.h"

namespace mytorch::autograd {

std::vector<Tensor> leaves_of(TensorList outputs, TensorList ends) {
  std::vector<Tensor> leaves;
  std::unordered_set<const Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const Tensor& end : ends) {
    if (end.requires_grad()) seen.insert(edge_of(end.impl()).node);
  }
  for (const Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) visit(edge_of(output.impl()).node);
  }
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (NodeAccess::is_leaf(node)) {
      leaves.push_back(Tensor::share(NodeAccess::leaf_tensor(node)));
      continue;
    }
    for (uint32_t i = 0; i < node->num_edges(); ++i) visit(node->edges()[i].node);
  }
  return leaves;
}

}  // namespace mytorch::autograd
