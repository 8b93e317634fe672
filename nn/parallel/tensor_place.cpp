#include "nn/parallel/tensor_place.h"

#include <sstream>

#include "absl/strings/numbers.h"
#include "core/types/errors.h"

namespace mytorch::nn::checkpoint {

void check_block(const TensorPart& part) {
  if (part.outer_sizes.empty() && part.origin.empty()) return;
  bool within =
      part.outer_sizes.size() == part.sizes.size() && part.origin.size() == part.sizes.size();
  for (size_t dim = 0; within && dim < part.sizes.size(); ++dim) {
    within = part.origin[dim] >= 0 && part.sizes[dim] <= part.outer_sizes[dim] &&
             part.origin[dim] <= part.outer_sizes[dim] - part.sizes[dim];
  }
  if (!within) {
    fail(ErrorCode::kValue, "[checkpoint] '", part.name, "' of shape ", shape_str(part.outer_sizes),
         " has no block of shape ", shape_str(part.sizes), " at ", shape_str(part.origin));
  }
}

void check_part(const TensorPart& part) {
  const auto dims = static_cast<int64_t>(part.sizes.size());
  const int64_t most = part.dim == TensorPart::kFlat ? product(part.sizes)
                       : part.dim >= 0 && part.dim < dims
                           ? part.sizes[static_cast<size_t>(part.dim)]
                           : 0;
  const bool whole = part.dim == TensorPart::kWhole;
  if (part.dim < TensorPart::kWhole || part.dim >= dims ||
      (!whole && (part.begin < 0 || part.begin > part.end || part.end > most))) {
    fail(ErrorCode::kValue, "[checkpoint] '", part.name, "' of shape ", shape_str(part.sizes),
         " has no part [", part.begin, ", ", part.end, ") of dimension ", part.dim);
  }
  check_block(part);
  const int64_t numel = Place(part).numel();
  if (!part.tensor.defined() || part.tensor.numel() != numel) {
    fail(ErrorCode::kShape, "[checkpoint] the part of '", part.name, "' has ",
         part.tensor.defined() ? part.tensor.numel() : 0, " elements, and its place ", numel);
  }
}

std::string place_text(const TensorPart& part) {
  std::string text = absl::StrCat(part.dim, " ", part.begin, " ", part.end);
  for (const int64_t size : part.sizes) absl::StrAppend(&text, " ", size);
  if (part.outer_sizes.empty()) return text;
  text += " of";
  for (const int64_t size : part.outer_sizes) absl::StrAppend(&text, " ", size);
  text += " at";
  for (const int64_t begin : part.origin) absl::StrAppend(&text, " ", begin);
  return text;
}

TensorPart read_place(const std::string& text) {
  std::istringstream in(text);
  TensorPart part;
  in >> part.dim >> part.begin >> part.end;
  std::vector<int64_t>* numbers = &part.sizes;
  for (std::string word; in >> word;) {
    if (word == "of") {
      numbers = &part.outer_sizes;
    } else if (word == "at") {
      numbers = &part.origin;
    } else if (!absl::SimpleAtoi(word, &numbers->emplace_back())) {
      fail(ErrorCode::kInternal, "[checkpoint] a rank sent '", text, "', which is no place");
    }
  }
  return part;
}

}  // namespace mytorch::nn::checkpoint
