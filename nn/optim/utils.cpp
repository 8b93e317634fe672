#include "mytorch/nn/utils.h"

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::nn::utils {

Tensor parameters_to_vector(TensorList parameters) {
  std::vector<Tensor> flat;
  for (const Tensor& parameter : parameters) flat.push_back(parameter.reshape({-1}));
  return flat.empty() ? zeros({0}) : cat(flat);
}

void vector_to_parameters(const Tensor& vector, TensorList parameters) {
  int64_t total = 0;
  for (const Tensor& parameter : parameters) total += parameter.numel();
  if (vector.dim() != 1 || vector.numel() != total) {
    fail(ErrorCode::kShape, "[vector_to_parameters] the vector has shape ",
         shape_str(vector.sizes()), ": the parameters have ", total, " elements, so give (", total,
         ",)");
  }
  NoGradGuard no_grad;
  int64_t begin = 0;
  for (const Tensor& parameter : parameters) {
    const int64_t end = begin + parameter.numel();
    parameter.copy_(vector.narrow(0, begin, end - begin).reshape(parameter.sizes()));
    begin = end;
  }
}

}  // namespace mytorch::nn::utils
